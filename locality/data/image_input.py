"""An image as the caller has it: a file, a tensor, a Pillow image or a numpy array."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from locality.data.decode import decode_image
from locality.data.roots import MAX_FILE_BYTES
from locality.errors import ArgumentError, ArgumentTypeError, DataError
from locality.toml_settings import read_limited

ImageInput: TypeAlias = str | Path | Tensor | Image.Image | NDArray[np.generic]
EXPECTED = "a file, a Pillow image, an array H×W×3 or a tensor 3×H×W"


def pixels_of(image: ImageInput) -> tuple[Tensor, str]:
    """3×H×W float32 in [0, 1], and the name of the image.

    Arrays are H×W×3 or H×W, of whole numbers to 255 or floats in [0, 1]. A Pillow image is turned as its camera says.

    >>> pixels, name = pixels_of(np.full((2, 4, 3), 255, np.uint8))
    >>> tuple(pixels.shape), float(pixels.min()), name
    ((3, 2, 4), 1.0, 'image')
    """
    if isinstance(image, Tensor):
        if image.dim() != 3 or image.shape[0] != 3:
            raise ArgumentError("image", EXPECTED, tuple(image.shape))
        return image.detach().float().div(255 if image.dtype == torch.uint8 else 1), "image"
    if isinstance(image, Image.Image):
        name = Path(str(getattr(image, "filename", "") or "image")).name
        turned = ImageOps.exif_transpose(image).convert("RGB")
        return _of_array(np.asarray(turned)), name
    if isinstance(image, np.ndarray):
        return _of_array(image), "image"
    if not isinstance(image, str | Path):
        raise ArgumentTypeError("image", EXPECTED, type(image).__name__)
    path = Path(image)
    try:
        return decode_image(read_limited(path, MAX_FILE_BYTES)).float().div(255), path.name
    except ValueError as error:
        raise DataError(f"`{path}`: {error}") from None


def _of_array(array: NDArray[np.generic]) -> Tensor:
    planes = np.repeat(array[..., None], 3, axis=2) if array.ndim == 2 else array
    if planes.ndim != 3 or planes.shape[2] != 3 or 0 in planes.shape:
        raise ArgumentError("image", EXPECTED, tuple(array.shape))
    if planes.dtype == np.uint8:
        values = planes.astype(np.float32) / 255
    elif np.issubdtype(planes.dtype, np.floating):
        values = planes.astype(np.float32)
    else:
        raise ArgumentError("image", "an array of uint8, or of floats in [0, 1]", str(array.dtype))
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))
