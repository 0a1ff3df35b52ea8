"""The data that a model is measured on by default: the data set with its classes."""

from __future__ import annotations

from collections.abc import Sequence

from locality.data.sources import open_source
from locality.data.sources.cifar10 import WNIDS as CIFAR10
from locality.data.sources.shapes import CLASSES as SHAPES
from locality.errors import DataError
from locality.imagenet_classes import imagenet_wnids
from locality.types import ModelSpec

# The number of images of an evaluation by default: intervals of a few hundredths, and minutes on a small machine.
LIMITS = {"shapes": 200, "tiny-imagenet": 200, "cifar10": 200, "pets": 200}


def default_limit(data: str) -> int | None:
    """The default number of images of a data set; None for all.

    >>> default_limit("shapes:none"), default_limit("photos")
    (200, None)
    """
    return LIMITS.get(data.partition(":")[0])


def default_data(spec: ModelSpec) -> str:
    """The name of the data set that has the model's classes.

    >>> default_data(ModelSpec("a", classes=("circle", "square")))
    'shapes'
    """
    classes = set(spec.classes)
    if classes and classes <= set(SHAPES):
        return "shapes"
    if classes in (set(CIFAR10), set(CIFAR10.values())):
        return "cifar10"
    if classes and classes == set(imagenet_wnids()):
        return "photos"
    if classes:
        try:
            if classes & set(open_source("tiny-imagenet").classes):
                return "tiny-imagenet"
        except DataError as error:
            if all(name.startswith("n") and name[1:].isdecimal() for name in classes):
                raise DataError(f"{spec.name} is evaluated on tiny-imagenet by default, but {error}") from None
    raise DataError(f"`data` must be given for {spec.name}: no known data set has its classes (--data PATH of a manifest)")


def common_data(specs: Sequence[ModelSpec]) -> str:
    """The default data of several models; a model whose classes are unknown takes that of the others.

    >>> common_data([ModelSpec("a", classes=("circle", "square")), ModelSpec("b")])
    'shapes'
    """
    described = [spec for spec in specs if spec.classes] or list(specs)
    names = {spec.name: default_data(spec) for spec in described}
    if len(set(names.values())) > 1:
        defaults = ", ".join(f"{name} is evaluated on {data}" for name, data in names.items())
        raise DataError(f"`data` must be given (--data): by default {defaults}")
    return next(iter(names.values()))
