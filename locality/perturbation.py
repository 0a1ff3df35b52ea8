"""Norm arithmetic for every search, attack and certificate: margin, length, projection, directions, ascent in a ball."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from locality.types import Norm, Threat

# Step over epsilon, as robust accuracies are published: 2/255 at 8/255 and 15/255 at 128/255 (Rice et al. 2020).
RELATIVE_STEP_SIZE: dict[Norm, float] = {"linf": 1 / 4, "l2": 15 / 128}


def per_image(values: Tensor) -> Tensor:
    """N numbers as N×1×1×1, to be multiplied with images."""
    return values.view(-1, 1, 1, 1)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """N: logit of the label minus the largest other logit; negative on the other side, 0 on the boundary."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - others.max(dim=1).values


def length(offset: Tensor, norm: Norm) -> Tensor:
    """N: ℓ2 or ℓ∞ length."""
    return offset.flatten(1).norm(dim=1) if norm == "l2" else offset.flatten(1).abs().amax(dim=1)


def project(points: Tensor, images: Tensor, epsilon: float, norm: Norm) -> Tensor:
    """The nearest points within `epsilon` of the images, then clipped to [0, 1], which moves none of them farther away."""
    offset = points - images
    if norm == "linf":
        offset = offset.clamp(-epsilon, epsilon)
    else:
        offset = offset * per_image((epsilon / offset.flatten(1).norm(dim=1).clamp_min(1e-12)).clamp(max=1))
    return (images + offset).clamp(0, 1)


def random_in_ball(images: Tensor, seeds: Sequence[int], epsilon: float, norm: Norm) -> Tensor:
    """One point per image, uniform within the ball (and then within [0, 1]), from the image's own seed."""
    offsets = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        if norm == "linf":
            offsets.append(2 * torch.rand(images.shape[1:], generator=generator) - 1)
        else:
            direction = torch.randn(images.shape[1:], generator=generator)
            # Most of a ball's volume lies near its surface: the radius is the d-th root of a uniform number.
            radius = torch.rand((), generator=generator) ** (1 / direction.numel())
            offsets.append(direction / direction.norm() * radius)
    return project(images + epsilon * torch.stack(offsets).to(images), images, epsilon, norm)


def steepest_direction(gradient: Tensor, norm: Norm) -> Tensor:
    """The direction of length 1 in which the loss increases fastest; zero where the gradient is zero."""
    if norm == "linf":
        return gradient.sign()
    # Scaled first: the squares of a saturated loss's gradient underflow.
    scaled = gradient / per_image(gradient.flatten(1).abs().amax(dim=1).clamp_min(torch.finfo(gradient.dtype).tiny))
    return scaled / per_image(scaled.flatten(1).norm(dim=1).clamp_min(1e-12))


def ascend(
    gradient: Callable[[Tensor], Tensor], images: Tensor, start: Tensor, threat: Threat, steps: int, step_size: float
) -> Tensor:
    """Points within the threat of the images, and within [0, 1], after some steps along a gradient of N images at once.

    `start` holds the points to begin at, and `step_size` is the length of a step in pixels. No image stops early: the last
    point has a large loss, not only another class.

    >>> images = torch.full((1, 1, 1, 2), 0.5)
    >>> ascend(torch.ones_like, images, images, Threat("linf", 0.25), 3, 0.125).flatten().tolist()
    [0.75, 0.75]
    """
    points = project(start, images, threat.radius, threat.norm)
    for _ in range(steps):
        moved = points + step_size * steepest_direction(gradient(points), threat.norm)
        points = project(moved, images, threat.radius, threat.norm)
    return points.detach()
