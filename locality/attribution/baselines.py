"""Where the path of Integrated Gradients starts: black, white, mean, blur, a number, or a tensor."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.errors import ArgumentError, ArgumentTypeError, unknown_choice
from locality.model_calls.checks import Bounds

Baseline = str | float | Tensor
NAMES = ("black", "white", "mean", "blur")
EXPECTED = f"one of {', '.join(NAMES)}, a number or a tensor"
# Standard deviation of the blur as a share of the shorter side: 11 pixels at 224, enough to hide an object's shape.
BLUR_SHARE = 1 / 20


def baseline_images(baseline: Baseline, images: Tensor, bounds: Bounds) -> Tensor:
    """N×C×H×W baselines; "mean" is the mean of each channel of the image, "blur" the image under a wide Gaussian."""
    if isinstance(baseline, str):
        return _named(baseline, images)
    if isinstance(baseline, bool) or not isinstance(baseline, int | float | Tensor):
        raise ArgumentTypeError("baseline", EXPECTED, type(baseline).__name__)
    values = torch.as_tensor(baseline).detach().to(images)
    try:
        values = values.broadcast_to(images.shape)
    except RuntimeError:
        shape = tuple(images.shape)
        raise ArgumentError("baseline", f"of the images' shape {shape} or of one image's", tuple(values.shape)) from None
    low, high = (float(value) for value in torch.aminmax(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ArgumentError("baseline", "finite", [low, high])
    if bounds is not None and (low < bounds[0] - 1e-6 or high > bounds[1] + 1e-6):
        extremes = [float(f"{low:.3g}"), float(f"{high:.3g}")]
        raise ArgumentError("baseline", f"in [{bounds[0]:g}, {bounds[1]:g}], as the images", extremes)
    return values.clone()


def _named(name: str, images: Tensor) -> Tensor:
    if name == "black":
        return torch.zeros_like(images)
    if name == "white":
        return torch.ones_like(images)
    if name == "mean":
        return images.mean((2, 3), keepdim=True).expand_as(images).clone()
    if name == "blur":
        return blurred(images)
    raise unknown_choice("baseline", name, NAMES, also="a number or a tensor")


def blurred(images: Tensor, share: float = BLUR_SHARE) -> Tensor:
    """The images under a Gaussian whose σ is this share of their shorter side, with reflection padding.

    As products with matrices: a wide convolution of planes takes ten times as long on CPUs.
    """
    sigma = max(share * min(images.shape[-2:]), 0.5)
    rows, columns = (_blur_matrix(side, sigma, images) for side in images.shape[-2:])
    planes = images.flatten(0, 1)
    planes = torch.bmm(rows.expand(len(planes), -1, -1), planes)
    return torch.bmm(planes, columns.T.expand(len(planes), -1, -1)).view_as(images)


def _blur_matrix(side: int, sigma: float, like: Tensor) -> Tensor:
    """side×side: the weights of all pixels of a line in each blurred pixel."""
    radius = min(math.ceil(3 * sigma), side - 1)  # reflection padding is limited to the image
    offsets = torch.arange(-radius, radius + 1, device=like.device)
    weights = torch.exp(-(offsets.to(like.dtype) ** 2) / (2 * sigma**2))
    places = torch.arange(side, device=like.device)
    sources = (places[:, None] + offsets).abs()
    sources = side - 1 - (side - 1 - sources).abs()
    matrix = torch.zeros(side, side, dtype=like.dtype, device=like.device)
    return matrix.scatter_add_(1, sources, (weights / weights.sum()).expand(side, -1))
