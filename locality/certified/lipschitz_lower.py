"""Lower bounds on Lipschitz constants: how steep a margin f_j − f_i is known to be, everywhere or near an image.

Every value is a secant |m(a) − m(b)|/‖a − b‖ of a margin m, between two points that are given with it, so it is at most the
margin's Lipschitz constant, up to the rounding of float64. The search is in the precision of the images. The value shows how
loose an upper bound may be; it certifies nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.certified.lipschitz_bound import float64_copy
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls.checks import working_copy
from locality.perturbation import length, per_image, steepest_direction

SHORTEST = 0.01  # of a secant, in pixels: over shorter ones, rounding errors of float32 logits would mislead the search
FIRST_LENGTH = 0.1  # of a secant along a gradient
CHUNK = 16  # images at once

Ends = list[Tensor]  # two points per image
Margins = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]  # logits at the ends ↦ change, class j, class i


@dataclass(frozen=True, eq=False)
class LipschitzLower:
    """The steepest secant found from each image."""

    slopes: Tensor  # N float64
    first: Tensor  # N int64, class j of the margin f_j − f_i
    second: Tensor  # N int64, class i
    ends: Tensor  # N×2×C×H×W float64, the two points
    gradients: int  # gradients of one image that were computed

    @property
    def largest(self) -> float:
        """A lower bound on the largest Lipschitz constant of a margin."""
        return float(self.slopes.max())

    @property
    def mean(self) -> float:
        """The mean over the images of the largest slope over all rivals."""
        return float(self.slopes.mean())


def global_lower(model: nn.Module, images: Tensor, method: str = "gradients", *, steps: int = 100) -> LipschitzLower:
    """Steep secants anywhere in ℝ^d, also outside [0, 1], searched from the images; `largest` bounds max K_ji from below.

    Both methods move the two ends of a secant by Adam until it is steep. `pairs` (thesis, C.3) begins with each image and
    the next one, class j being that of the first; the thesis makes 7,500 steps of 1e-4. `gradients` begins with a short
    secant along the gradient of the steepest margin at each image, and needs far fewer steps.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    >>> round(global_lower(model, torch.rand(3, 1, 1, 2), steps=1).largest, 5)  # ‖(3, 4)‖
    5.0
    """
    return _lower(model, images, method, math.inf, steps)


def local_lower(
    model: nn.Module, images: Tensor, radius: float, method: str = "gradients", *, steps: int = 100
) -> LipschitzLower:
    """Steep secants within `radius` of each image, j being its class; `mean` is the number of the thesis's Table 5.3.

    The published code averages over classes, too, with 0 for class j itself; here the mean is over images only.
    """
    if not 0 < radius < math.inf:
        raise ArgumentError("radius", "a distance above 0", radius, "global_lower has no limit")
    return _lower(model, images, method, radius, steps)


def _lower(model: nn.Module, images: Tensor, method: str, radius: float, steps: int) -> LipschitzLower:
    if method not in STARTS:
        raise unknown_choice("method", method, STARTS)
    if steps < 1:
        raise ArgumentError("steps", "a whole number of at least 1", steps)
    pixels = working_copy(images, bounds=None).cpu()
    if method == "pairs" and len(pixels) < 2:
        raise ArgumentError("images", "two images or more for the method `pairs`", len(pixels))
    exact = float64_copy(model).eval().requires_grad_(False)
    net, partners, parts = copy.deepcopy(exact).to(pixels.dtype), pixels.roll(-1, 0), []
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        for some, others in zip(pixels.split(CHUNK), partners.split(CHUNK), strict=True):
            ends, learning_rate, gradients = STARTS[method](net, some, others, radius)
            margins = _margins(net, some, radius, method)
            found = _ascended(net, some, ends, margins, radius, steps, learning_rate).double()
            with torch.no_grad():
                change, first, second = margins(exact(found[:, 0]), exact(found[:, 1]))
            slopes = change / length(found[:, 0] - found[:, 1], "l2").clamp_min(SHORTEST / 2)
            parts.append((slopes, first, second, found, gradients + 2 * steps * len(some)))
    slopes, first, second, found = (torch.cat(column) for column in list(zip(*parts, strict=True))[:4])
    return LipschitzLower(slopes, first, second, found, gradients=sum(part[4] for part in parts))


def _along_gradients(net: nn.Module, images: Tensor, partners: Tensor, radius: float) -> tuple[Ends, float, int]:
    """Short secants along the gradient of the steepest margin, j being any class or, near an image, its own."""
    leaf = images.clone().requires_grad_()
    logits = net(leaf)
    classes = logits.shape[1]
    rows = [torch.autograd.grad(logits[:, k].sum(), leaf, retain_graph=k + 1 < classes)[0] for k in range(classes)]
    jacobian = torch.stack(rows, 1)  # N×K×C×H×W
    slopes = torch.cdist(jacobian.flatten(2), jacobian.flatten(2))
    images_of = torch.arange(len(images))
    if math.isinf(radius):
        place = slopes.flatten(1).argmax(1)
        first, second = place // classes, place % classes
    else:
        first = logits.argmax(1)
        second = slopes[images_of, first].argmax(1)
    direction = steepest_direction(jacobian[images_of, first] - jacobian[images_of, second], "l2")
    half = min(FIRST_LENGTH, radius) / 2
    learning_rate = min(0.01, radius / math.sqrt(images[0].numel()))
    return [images - half * direction, images + half * direction], learning_rate, classes * len(images)


def _between_images(net: nn.Module, images: Tensor, partners: Tensor, radius: float) -> tuple[Ends, float, int]:
    """Secants to other images, moved into the ball; steps of 1e-4 as published."""
    return [images.clone(), _nearer(partners, images, radius)], 1e-4, 0


STARTS: dict[str, Callable[[nn.Module, Tensor, Tensor, float], tuple[Ends, float, int]]] = {
    "gradients": _along_gradients,
    "pairs": _between_images,
}


def _margins(net: nn.Module, images: Tensor, radius: float, method: str) -> Margins:
    """The margin that changes most between two points, as the method chooses class j."""
    with torch.no_grad():
        own = net(images).argmax(1)

    def change(here: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rises = here - there
        if math.isinf(radius) and method == "gradients":  # over all pairs of classes
            (highest, first), (lowest, second) = rises.max(1), rises.min(1)
            return highest - lowest, first, second
        first = here.argmax(1) if math.isinf(radius) else own
        most, second = (rises.gather(1, first[:, None]) - rises).abs().max(1)  # 0 for class j itself
        return most, first, second

    return change


def _ascended(
    net: nn.Module, images: Tensor, ends: Ends, margins: Margins, radius: float, steps: int, learning_rate: float
) -> Tensor:
    """N×2×C×H×W: the ends of the steepest secant of all steps, none shorter than SHORTEST if there was any such."""
    ends = [end.detach().clone().requires_grad_() for end in ends]
    optimizer = torch.optim.Adam(ends, learning_rate)
    best, steepest = torch.stack([end.detach() for end in ends], 1), images.new_zeros(len(images))
    for _ in range(steps):
        change, _, _ = margins(*net(torch.cat(ends)).chunk(2))
        apart = length(ends[0] - ends[1], "l2")
        slopes = change / apart.clamp_min(SHORTEST)
        wins = (slopes > steepest) & (apart >= SHORTEST)
        steepest = torch.where(wins, slopes, steepest).detach()
        best = torch.where(wins.view(-1, 1, 1, 1, 1), torch.stack(ends, 1), best).detach()
        optimizer.zero_grad()
        torch.autograd.backward(-slopes.sum(), inputs=ends)
        optimizer.step()
        with torch.no_grad():
            for end in ends:
                end.copy_(_nearer(end, images, radius))
    return best


def _nearer(points: Tensor, images: Tensor, radius: float) -> Tensor:
    """The points, moved towards the images as far as `radius` demands."""
    offset = points - images
    return points if math.isinf(radius) else images + offset * per_image((radius / length(offset, "l2")).clamp(max=1))
