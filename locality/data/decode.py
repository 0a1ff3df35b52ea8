"""Decode image files of any kind that data sets contain to RGB pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from PIL.Image import Transpose
from torch import Tensor

from locality.errors import DataError

# Formats of photographs only: Pillow's other decoders (EPS runs a program) are a risk with untrusted data.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 80_000_000
MAX_ASPECT = 100  # long side over short side: resizing the short side scales the long one, too
# Whether pixels are as people see them, which the EXIF tag Orientation says, or as the file stores them.
Orientation = Literal["displayed", "stored"]
ORIENTATION_TAG = 0x0112
TURNS = {
    2: Transpose.FLIP_LEFT_RIGHT,
    3: Transpose.ROTATE_180,
    4: Transpose.FLIP_TOP_BOTTOM,
    5: Transpose.TRANSPOSE,
    6: Transpose.ROTATE_270,
    7: Transpose.TRANSVERSE,
    8: Transpose.ROTATE_90,
}
# Bits of greyscale files of 16 bits, by their largest value: cameras and scanners store 8 or 12 bits in them.
DEPTHS = {255: 8, 4095: 12, 65535: 16}


def decode_image(data: bytes, orientation: Orientation = "displayed") -> Tensor:
    """3×H×W uint8 RGB of an image file's bytes.

    The image is turned and mirrored as its EXIF orientation says, unless `orientation` is "stored". Greyscale, palette and
    CMYK are converted, alpha is dropped, and the first frame of an animation is used. Other depths than 8 bits:

    - 16-bit greyscale: the upper eight bits. Files with no value above 255 hold 8 bits, those with none above 4095 hold 12.
    - 16-bit colour: the upper eight bits; refused where no value is above 4095, since it would be read as black.
    - floats: in [0, 1]; others are refused.
    """
    with _damage_as_errors(), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
        _check_size(picture.size)
        sixteen_bits = ";16" in str(picture.tile)
        picture.load()
        turn = TURNS.get(_orientation(picture)) if orientation == "displayed" else None
        coloured = _rgb(picture)
        if sixteen_bits and picture.mode == "RGB":
            _check_not_black(coloured)
        turned = coloured if turn is None else coloured.transpose(turn)
        return torch.from_numpy(np.array(turned)).permute(2, 0, 1)


@contextmanager
def _damage_as_errors() -> Iterator[None]:
    """Inside the block, what Pillow raises about a file is a DataError."""
    try:
        yield
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"not an image of a supported format ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"too large to be a photograph ({error})") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, KeyError) as error:
        # Pillow's decoders raise all of these on damaged files.
        raise DataError(f"truncated or damaged image ({error})") from error


def decode_levels(data: bytes) -> NDArray[np.uint8]:
    """H×W uint8: the stored levels of a mask, of one channel of 8 bits; those of a palette are its indices."""
    with _damage_as_errors(), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
        _check_size(picture.size)
        if picture.mode not in ("L", "P", "1"):
            raise DataError(f"a mask has one channel of 8 bits, this image has the mode {picture.mode}")
        return np.array(picture).astype(np.uint8)


def image_size(file: IO[bytes], orientation: Orientation = "displayed") -> tuple[int, int]:
    """Width and height from the file's header; the pixels are not read."""
    try:
        with Image.open(file, formats=FORMATS) as picture:
            _check_size(picture.size)
            width, height = picture.size
            sideways = orientation == "displayed" and picture.format != "TIFF" and _orientation(picture) >= 5
            return (height, width) if sideways else (width, height)
    except DataError:
        raise
    except (OSError, ValueError, SyntaxError, TypeError, KeyError, Image.DecompressionBombError) as error:
        raise DataError(f"not an image that can be read ({error})") from error


def _orientation(picture: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1, upright, where there is none or it cannot be read."""
    try:
        # The method of the base class: that of PNG files would read the pixels.
        value = Image.Image.getexif(picture).get(ORIENTATION_TAG, 1)
    except Exception:  # Pillow's reader of EXIF raises many kinds of errors on damaged tags, which are not the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(f"claims {size[0]:,} × {size[1]:,} pixels: too large to be a photograph")
    if max(size) > MAX_ASPECT * min(size):
        raise DataError(f"claims {size[0]:,} × {size[1]:,} pixels: too thin to be a photograph")


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        # Pillow's own conversion would clip everything above 255 to white.
        levels = np.asarray(picture).astype(np.int64)
        bits = next((bits for largest, bits in DEPTHS.items() if levels.max() <= largest), None)
        if bits is None or levels.min() < 0:
            raise DataError(f"has levels from {levels.min()} to {levels.max()}, not of 8 to 16 bits: save it with 8 bits")
        return Image.fromarray((levels >> (bits - 8)).astype(np.uint8)).convert("RGB")
    if picture.mode == "F":
        values = np.asarray(picture)
        low, high = float(values.min()), float(values.max())
        if not 0 <= low <= high <= 1:  # also for nan
            raise DataError(f"has floats from {low:g} to {high:g}, but floats must be in [0, 1]: save it with 8 bits")
        return Image.fromarray(np.round(values * 255).astype(np.uint8)).convert("RGB")
    if picture.mode == "P" and "transparency" in picture.info:
        return picture.convert("RGBA").convert("RGB")
    return picture.convert("RGB")


def _check_not_black(picture: Image.Image) -> None:
    """Refuse colours of 16 bits whose upper eight, which are all that Pillow reads, are next to nothing."""
    if np.asarray(picture).max() < 16:
        raise DataError("has 16-bit colours, none of them above 4095: they would be read as black; save it with 8 bits")
