"""A source of images: a manifest, and a function that reads the pixels of one image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from locality.data.decode import Orientation, decode_image
from locality.data.manifest import Manifest
from locality.data.roots import Root
from locality.errors import DataError, Fault

if TYPE_CHECKING:
    from locality.data.cues import Sticker


@dataclass(frozen=True, eq=False)
class Pixels:
    """An image as people see it, or as its file stores it if its boxes are for that."""

    image: Tensor  # 3×H×W uint8
    outline: Tensor | None = None  # 1×H×W bool
    cue: Tensor | None = None  # 1×H×W bool, where a cue was planted


class Reader(Protocol):
    """Reads the pixels of image i; the outline only if `outline` is set or it costs nothing."""

    def __call__(self, index: int, outline: bool = ...) -> Pixels: ...


@runtime_checkable
class StoredReader(Reader, Protocol):
    """Reads images that are stored rather than generated."""

    def contents(self, indices: Sequence[int]) -> list[str]:
        """What identifies the bytes of images."""
        ...


@dataclass(frozen=True, eq=False)
class Source:
    """A data set to read from. `classes` are WordNet ids (or names) by label; `faults` lists images left out, and why.

    `has_regions` says whether people marked the object, with boxes or outlines; without them locality cannot be measured.
    """

    name: str
    manifest: Manifest
    classes: tuple[str, ...]
    read: Reader
    faults: tuple[Fault, ...] = ()
    has_regions: bool = True
    assumed_order: bool = False  # labels are in an order that the data do not state, such as that of the alphabet
    guess: str = ""  # why the data were taken to be of this kind, if nobody said it
    has_cue: bool = False  # a planted one, which has its own region
    cue: Sticker | None = None  # planted on what the reader reads


@dataclass(frozen=True, eq=False)
class FileReader:
    """Reads image i of a manifest from a folder or zip; `outline` gives its object's pixels if the source has them."""

    manifest: Manifest
    root: Root
    outline: Callable[[int], Tensor] | None = None

    def __call__(self, index: int, outline: bool = False) -> Pixels:
        data = self.data(index)
        pixels = self._pixels(index, data, outline)  # first, because its errors say more than another hash does
        self._check_hash(index, data)
        return pixels

    def data(self, index: int) -> bytes:
        """The file's bytes."""
        name = str(self.manifest.images["path"].iloc[index])
        try:
            return self.root.read(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            problem = f"file {name!r} is missing in {self.root.path}: pass the folder that contains it as `root`"
            raise DataError.of([self.manifest.fault(index, "missing file", problem)]) from None
        except (DataError, OSError) as error:
            raise DataError.of([self.manifest.fault(index, "bad image", f"file {name!r}: {error}")]) from error

    def verify(self, index: int) -> str:
        """The file's sha256; DataError if the file, its hash, its pixels or its size do not match the manifest."""
        data = self.data(index)
        self._pixels(index, data, outline=True)
        self._check_hash(index, data)
        return hashlib.sha256(data).hexdigest()

    def contents(self, indices: Sequence[int]) -> list[str]:
        """What identifies the bytes of files: the manifest's sha256, a zip's checksum, or else the file's own sha256."""
        images = self.manifest.images.iloc[list(indices)]
        pairs = zip(images["path"].tolist(), images["sha256"].tolist(), strict=True)
        return [known or self.root.checksum(path) for path, known in pairs]

    def _check_hash(self, index: int, data: bytes) -> None:
        """Raise if the manifest has another hash."""
        expected = str(self.manifest.images["sha256"].iloc[index])
        if not expected:
            return
        digest = hashlib.sha256(data).hexdigest()
        if digest != expected:
            name = self.manifest.images["path"].iloc[index]
            problem = f"file {name!r} has sha256 {digest[:12]}…, the manifest says {expected[:12]}…: download it again"
            raise DataError.of([self.manifest.fault(index, "wrong hash", problem)])

    def _pixels(self, index: int, data: bytes, outline: bool) -> Pixels:
        image = self.manifest.images.iloc[index]
        stated = (image["height"], image["width"])
        orientation: Orientation = "stored" if image["orientation"] == "stored" else "displayed"
        try:
            pixels = decode_image(data, orientation)
            if pixels.shape[1:] == stated[::-1] != stated:  # a size of boxes that were drawn on the pixels as stored
                pixels = decode_image(data, "stored")
        except DataError as error:
            raise DataError.of([self.manifest.fault(index, "bad image", f"file {image['path']!r}: {error}")]) from error
        height, width = pixels.shape[1:]
        if (width, height) != (image["width"], image["height"]):
            expected = "its boxes are for" if len(self.manifest.boxes(index)) else "not"
            problem = (
                f"file {image['path']!r} is {width} × {height} pixels, {expected} "
                f"{image['width']} × {image['height']}: use the original file"
            )
            raise DataError.of([self.manifest.fault(index, "wrong size", problem)])
        if self.outline is None or not outline:
            return Pixels(pixels)
        try:
            return Pixels(pixels, self.outline(index))
        except (DataError, ValueError, TypeError, OverflowError) as error:  # untrusted JSON
            raise DataError.of([self.manifest.fault(index, "bad outline", f"{image['path']!r}: {error}")]) from error


def readable(reader: FileReader, order: NDArray[np.int64], limit: int | None) -> tuple[NDArray[np.int64], list[Fault]]:
    """The first `limit` images of the order that can be read, and the faults of those that cannot."""
    chosen: list[int] = []
    faults: list[Fault] = []
    for index in order.tolist():
        if limit is not None and len(chosen) == limit:
            break
        try:
            reader.verify(index)
        except DataError as error:
            faults.extend(error.faults)
        else:
            chosen.append(index)
    return np.array(chosen, dtype=np.int64), faults
