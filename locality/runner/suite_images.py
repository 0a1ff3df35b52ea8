"""The images of a suite as each model sees them, the same in every process that looks."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from locality.data.dataset import ImageDataset
from locality.data.roots import Folder
from locality.data.source import FileReader, Source
from locality.data.sources import open_source
from locality.errors import DataError
from locality.runner.suite_file import DataChoice
from locality.types import ModelSpec

UNIT_IMAGES = 64
UNIT_PIXELS = 16 * 224 * 224


@functools.lru_cache(maxsize=4)
def opened_source(name: str, seed: int, options: tuple[tuple[str, Any], ...]) -> Source:
    """The source behind a name; kept, because reading the boxes of 50,000 photographs takes a while."""
    return open_source(name, seed=seed, **dict(options))


@functools.lru_cache(maxsize=8)
def chosen_images(choice: DataChoice, name: str, spec: ModelSpec, limit: int | None) -> ImageDataset:
    """At most `limit` images of the suite's choice, as even over the classes as there are; a smaller choice is part of it.

    `name` is that of the data where the suite leaves it to the model.
    """
    most = min((number for number in (limit, choice.limit) if number is not None), default=None)
    source = opened_source(name, choice.seed, choice.options)
    return ImageDataset.select(
        source, most, choice.seed, spec, choice.max_box_share, choice.region, skip_bad=choice.skip_bad
    )


def forget_images() -> None:
    """Open everything anew next time: files may have changed."""
    opened_source.cache_clear()
    chosen_images.cache_clear()


def some_images(data: ImageDataset, places: Sequence[int]) -> ImageDataset:
    """The data set of the images at `places` alone."""
    indices = data.indices[np.asarray(places, dtype=np.int64)]
    with told_before():
        return ImageDataset(data.source, indices, data.spec, data.region)


@contextmanager
def told_before() -> Iterator[None]:
    """Without the warning of classes that a model does not know: it is told once for all images, not block by block."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* of classes that .* does not know", category=UserWarning)
        yield


def block_hash(data: ImageDataset, first: int, last: int) -> str:
    """A hash of the images from `first` to before `last`: names, labels, boxes, file hashes, the first one's pixels.

    The hash of a file is the manifest's, or that of its bytes where the manifest has none; entries of a zip stay as they
    are, because nobody replaces one by itself. The pixels are there because names do not say everything: `shapes` with
    another cue has the same ones. One image stands for the block, because drawing or decoding all of them would take as
    long as many a measurement.
    """
    block = some_images(data, range(first, last))
    manifest = block.manifest
    digest = hashlib.sha256()
    for column in ("id", "sha256", "wnid"):
        digest.update(repr(manifest.images[column].tolist()).encode())
    digest.update(repr((block.region, block.classes, block.spec)).encode())
    digest.update(np.ascontiguousarray(manifest.corners).tobytes() + manifest.first.tobytes())
    for content in _file_hashes(block):
        digest.update(content.encode())
    try:
        digest.update((block[0].image * 255).round().byte().numpy().tobytes())
    except DataError:
        digest.update(b"cannot be read")
    return digest.hexdigest()


def _file_hashes(data: ImageDataset) -> Iterator[str]:
    """The hash of each file in a folder that the manifest has none of."""
    reader = data.source.read
    if not isinstance(reader, FileReader) or not isinstance(reader.root, Folder):
        return
    images = data.manifest.images
    for name, known in zip(images["path"].tolist(), images["sha256"].tolist(), strict=True):
        if known:
            continue
        try:
            found = (reader.root.path / name).stat()
            yield _file_hash(reader.root, name, found.st_size, found.st_mtime_ns)
        except (DataError, OSError, ValueError):
            yield "cannot be read"


@functools.lru_cache(maxsize=200_000)
def _file_hash(folder: Folder, name: str, size: int, changed: int) -> str:
    """The sha256 of a file, kept until its size or the time of its last change differ: every model and part asks again."""
    return hashlib.sha256(folder.read(name)).hexdigest()


def unit_size(spec: ModelSpec) -> int:
    """Images of one unit where the suite does not say: enough to fill a chunk, few enough to lose little at a power cut.

    >>> unit_size(ModelSpec("small", (64, 64), 64)), unit_size(ModelSpec("large"))
    (64, 16)
    """
    height, width = spec.input_size
    return max(1, min(UNIT_IMAGES, UNIT_PIXELS // (height * width)))
