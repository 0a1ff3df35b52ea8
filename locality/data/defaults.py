"""Which data a model is evaluated on if nobody says: that of its own classes."""

from __future__ import annotations

from locality.data.dataset import open_source
from locality.data.sources.shapes import CLASSES as SHAPES
from locality.errors import DataError
from locality.imagenet_classes import imagenet_wnids
from locality.types import ModelSpec


def default_data(spec: ModelSpec) -> str:
    """The name of the data set whose classes are the model's.

    >>> default_data(ModelSpec("a", classes=("circle", "square")))
    'shapes'
    """
    classes = set(spec.classes)
    if classes and classes <= set(SHAPES):
        return "shapes"
    if classes and classes == set(imagenet_wnids()):
        return "photos"
    if classes:
        try:
            if classes & set(open_source("tiny-imagenet").classes):
                return "tiny-imagenet"
        except DataError as error:
            if all(name.startswith("n") and name[1:].isdecimal() for name in classes):
                raise DataError(f"{spec.name} is evaluated on tiny-imagenet by default, but {error}") from None
    raise DataError(f"`data` must be given for {spec.name}: no data set here has its classes (--data PATH of a manifest)")
