"""The images of a suite as each model sees them, the same in every process."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locality.curvature.training_run import TrainingImages
from locality.data.dataset import ImageDataset
from locality.data.labels import UnknownClassesWarning
from locality.data.manifest import Manifest
from locality.data.source import Source
from locality.data.sources import open_source
from locality.errors import DataError
from locality.runner.suite import DataChoice
from locality.types import ModelSpec

UNIT_IMAGES = 64
UNIT_PIXELS = 16 * 224 * 224


@functools.lru_cache(maxsize=4)
def opened_source(name: str, seed: int, options: tuple[tuple[str, Any], ...]) -> Source:
    """The source behind a name; cached, because reading the boxes of 50,000 photographs takes a while."""
    return open_source(name, seed=seed, **dict(options))


@functools.lru_cache(maxsize=8)
def chosen_images(choice: DataChoice, name: str, spec: ModelSpec, limit: int | None, any_box: bool = False) -> ImageDataset:
    """At most `limit` images of the suite's choice, balanced over the classes; a smaller choice is part of a larger one.

    `name` is the name of the data set, also where the suite leaves it to the model. With `any_box`, no image is left out for
    the size of its boxes.
    """
    most = min((number for number in (limit, choice.limit) if number is not None), default=None)
    source = opened_source(name, choice.seed, choice.options)
    share = None if any_box else choice.max_box_share
    return ImageDataset.select(source, most, choice.seed, spec, share, choice.region, skip_bad=choice.skip_bad)


@functools.lru_cache(maxsize=8)
def training_images(choice: DataChoice, images: TrainingImages, spec: ModelSpec, limit: int | None) -> ImageDataset:
    """At most `limit` of the images that a model was trained on, balanced over the classes.

    Options of the suite's data set are used if it is the same data set.
    """
    most = min((number for number in (limit, choice.limit) if number is not None), default=None)
    same = choice.name.partition(":")[0] == images.name.partition(":")[0]
    return images.of(spec, most, **dict(choice.options if same else ()))


def forget_images() -> None:
    """Clear the caches: files may have changed."""
    opened_source.cache_clear()
    chosen_images.cache_clear()
    training_images.cache_clear()
    _named.cache_clear()
    _first_pixels.cache_clear()


@contextmanager
def no_class_warnings() -> Iterator[None]:
    """Suppress the warning about classes that a model does not know: the plan gives it once for all images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownClassesWarning)
        yield


def block_hash(data: ImageDataset, first: int, last: int) -> str:
    """A hash of the images from `first` to before `last`: names, labels, boxes, contents, and the pixels of one image.

    The content of a file is its hash in the manifest, its checksum in the zip, or else the hash of its bytes. Only the first
    image of the source is decoded, whichever the block: it shows other decoders, and decoding one image per block would
    take longer than all else that a resumed run does.
    """
    manifest, indices = data.source.manifest, data.indices[first:last]
    digest = hashlib.sha256()
    for column in _named(manifest):
        digest.update(repr(column[indices].tolist()).encode())
    digest.update(repr((data.region, data.classes, data.spec)).encode())
    corners, starts = manifest.take_boxes(indices)
    digest.update(np.ascontiguousarray(corners).tobytes() + starts.tobytes())
    for content in data.contents(first, last):
        digest.update(content.encode())
    digest.update(_first_pixels(data))
    return digest.hexdigest()


@functools.lru_cache(maxsize=8)
def _first_pixels(data: ImageDataset) -> bytes:
    """The preprocessed pixels of the source's first image."""
    with no_class_warnings():
        alone = ImageDataset(data.source, np.zeros(1, dtype=np.int64), data.spec, data.region)
    try:
        return (alone[0].image * 255).round().byte().numpy().tobytes()
    except DataError:
        return b"cannot be read"


@functools.lru_cache(maxsize=4)
def _named(manifest: Manifest) -> tuple[NDArray[np.object_], ...]:
    """What names each image and its content, as arrays: pandas takes longer to look up a few rows than to read an image."""
    return tuple(manifest.images[column].to_numpy(dtype=object) for column in ("id", "sha256", "wnid"))


def unit_size(spec: ModelSpec) -> int:
    """Images per unit where the suite does not set it: enough to fill a chunk, few enough to lose little when interrupted.

    >>> unit_size(ModelSpec("small", (64, 64), 64)), unit_size(ModelSpec("large"))
    (64, 16)
    """
    height, width = spec.input_size
    return max(1, min(UNIT_IMAGES, UNIT_PIXELS // (height * width)))
