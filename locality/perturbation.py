"""Arithmetic of perturbations, once for every search, attack and certificate: margin, length, projection, directions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locality.types import Norm


def per_image(values: Tensor) -> Tensor:
    """N numbers as N×1×1×1, to multiply images with."""
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
    """The nearest points within `epsilon` of the images, then within [0, 1], which brings none of them further away."""
    offset = points - images
    if norm == "linf":
        offset = offset.clamp(-epsilon, epsilon)
    else:
        offset = offset * per_image((epsilon / offset.flatten(1).norm(dim=1).clamp_min(1e-12)).clamp(max=1))
    return (images + offset).clamp(0, 1)


def random_in_ball(images: Tensor, seeds: Sequence[int], epsilon: float, norm: Norm) -> Tensor:
    """One point per image, uniform within the ball (and then within [0, 1]), from the image's own seed."""
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        if norm == "linf":
            drawn.append(2 * torch.rand(images.shape[1:], generator=generator) - 1)
        else:
            toward = torch.randn(images.shape[1:], generator=generator)
            # Most of a ball's volume lies near its surface: the radius is the d-th root of a uniform number.
            radius = torch.rand((), generator=generator) ** (1 / toward.numel())
            drawn.append(toward / toward.norm() * radius)
    return project(images + epsilon * torch.stack(drawn).to(images), images, epsilon, norm)


def steepest_direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Where the loss rises fastest for a step of length 1; zero where the gradient is."""
    if norm == "linf":
        return gradient.sign()
    # Scaled first: the squares of a saturated loss's gradient underflow.
    scaled = gradient / per_image(gradient.flatten(1).abs().amax(dim=1).clamp_min(torch.finfo(gradient.dtype).tiny))
    return scaled / per_image(scaled.flatten(1).norm(dim=1).clamp_min(1e-12))
