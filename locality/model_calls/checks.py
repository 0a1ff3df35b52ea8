"""Checks of arguments: images, labels, targets, chunk sizes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.errors import ArgumentError, ArgumentTypeError

Bounds = tuple[float, float] | None
UNIT: Bounds = (0.0, 1.0)


def working_copy(images: Tensor, bounds: Bounds = UNIT) -> Tensor:
    """A copy of the checked images, detached and in float32 or a higher precision: sums of half floats lose digits."""
    check_images(images, bounds)
    with torch.inference_mode(False):  # a tensor made in inference mode cannot be differentiated
        return images.detach().to(torch.promote_types(images.dtype, torch.float32), copy=True)


def check_images(images: Tensor, bounds: Bounds = UNIT) -> None:
    """Raise unless `images` is a batch of pixels: float, N×C×H×W, finite, within `bounds` (None: any range)."""
    if not isinstance(images, Tensor):
        raise ArgumentTypeError("images", "a tensor", type(images).__name__, "stack them with torch.stack")
    if images.dim() != 4:
        raise ArgumentError("images", "of shape N×C×H×W", tuple(images.shape), "pass a single image as image[None]")
    if not images.is_floating_point():
        raise ArgumentTypeError("images", "float32 in [0, 1]", images.dtype, "divide 8-bit pixels by 255")
    if images.numel() == 0:
        raise ArgumentError("images", "a batch of at least one image", tuple(images.shape))
    low, high = (float(value) for value in torch.aminmax(images.detach()))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ArgumentError("images", "finite", [low, high])
    if bounds is not None and (low < bounds[0] - 1e-6 or high > bounds[1] + 1e-6):
        hint = "pass pixels, the model normalises them; bounds=None allows any range, for images with added noise"
        got = [float(f"{low:.3g}"), float(f"{high:.3g}")]
        raise ArgumentError("images", f"in [{bounds[0]:g}, {bounds[1]:g}]", got, hint)


def check_chunk(chunk: object) -> None:
    """Raise unless `chunk`, the number of images in one pass, is None (chosen for speed) or at least 1."""
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise ArgumentError("chunk", "a whole number of images of at least 1, or None", chunk)


def check_target(target: Tensor, classes: int, name: str = "target") -> None:
    """Raise unless every class index is one of the model's logits."""
    if target.numel() == 0:
        return
    lowest, highest = int(target.min()), int(target.max())
    if lowest < 0 or highest >= classes:
        wrong = lowest if lowest < 0 else highest
        raise ArgumentError(name, f"a class from 0 to {classes - 1}", wrong, "it must index the model's logits")


def check_labels(labels: object, images: int) -> Tensor:
    """The labels as int64; raises unless they are whole numbers, one per image."""
    if isinstance(labels, Tensor) and labels.shape == (images,) and not labels.is_floating_point():
        return labels.long()
    got = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
    raise ArgumentError("labels", f"a tensor of {images} whole class numbers, one per image", got)
