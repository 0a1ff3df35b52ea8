"""Decode image files of any kind that data sets contain to RGB pixels."""

from __future__ import annotations

import io
from typing import IO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from locality.errors import DataError

# Formats of photographs only: Pillow's other decoders (EPS runs a program) are a risk with untrusted data.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 80_000_000
MAX_ASPECT = 100  # long side over short side: resizing the short side scales the long one, too


def decode_image(data: bytes) -> Tensor:
    """3×H×W uint8 RGB of an image file's bytes.

    Greyscale, palette and CMYK are converted, alpha is dropped, 16 bits become 8, and the first frame of an animation is
    used. EXIF orientation is ignored, since published accuracies and human boxes refer to stored pixels.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            _check_size(picture.size)
            picture.load()
            return torch.from_numpy(np.array(_rgb(picture))).permute(2, 0, 1)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"not an image of a supported format ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError as error:
        raise DataError(f"too large to be a photograph ({error})") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, KeyError) as error:
        # Pillow's decoders raise all of these on damaged files.
        raise DataError(f"truncated or damaged image ({error})") from error


def image_size(file: IO[bytes]) -> tuple[int, int]:
    """Width and height from the file's header; the pixels are not read."""
    try:
        with Image.open(file, formats=FORMATS) as picture:
            _check_size(picture.size)
            return picture.size
    except DataError:
        raise
    except (OSError, ValueError, SyntaxError, TypeError, KeyError, Image.DecompressionBombError) as error:
        raise DataError(f"not an image that can be read ({error})") from error


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(f"claims {size[0]:,} × {size[1]:,} pixels: too large to be a photograph")
    if max(size) > MAX_ASPECT * min(size):
        raise DataError(f"claims {size[0]:,} × {size[1]:,} pixels: too thin to be a photograph")


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):
        # 16-bit greyscale: keep the upper eight bits. Pillow's own conversion would clip everything above 255 to white.
        levels = np.asarray(picture).astype(np.int64)
        return Image.fromarray((levels.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if picture.mode == "P" and "transparency" in picture.info:
        return picture.convert("RGBA").convert("RGB")
    return picture.convert("RGB")
