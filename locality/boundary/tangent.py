"""The shortest way to a tangent plane inside the pixels' limits: what a nearest point would be if the margin were linear."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Limits
from locality.perturbation import length, per_image
from locality.types import Norm

ROUNDS_OF_NEWTON = 12
POOR = 0.1  # a cosine to the normal below which the way to a point has hardly anything to do with the boundary


def tangent_point(
    images: Tensor,
    offset: Tensor,
    value: Tensor,
    gradient: Tensor,
    norm: Norm = "l2",
    limits: Limits = (0.0, 1.0),
) -> Tensor:
    """The shortest offset u with value + g·(u − offset) = 0 and images + u within the pixels' limits.

    In ℓ2 u = clip(x − λg) − x, in ℓ∞ u = clip(x − λ sign g) − x. The tangent's value falls with λ and is convex in it, so
    Newton's method approaches the right λ from one side.
    """
    direction = gradient if norm == "l2" else gradient.sign()
    slope = (gradient * direction).flatten(1).sum(1).clamp_min(1e-30)
    at_image = value - (gradient * offset).flatten(1).sum(1)  # the tangent's value at the image itself
    amount = at_image / slope
    for _ in range(ROUNDS_OF_NEWTON):
        moved = images - per_image(amount) * direction
        found = moved.clamp(*limits)
        rest = at_image + (gradient * (found - images)).flatten(1).sum(1)
        missed = rest.abs() > 1e-4 * at_image.abs()
        if not missed.any():
            break
        free = (gradient * direction * (moved == found)).flatten(1).sum(1)
        # Images that are done stay as they are, whatever their company needs.
        amount = torch.where(missed, amount + rest / torch.maximum(free, 0.02 * slope), amount)
    found = (images - per_image(amount) * direction).clamp(*limits) - images
    # Where the tangent puts the image itself across, it knows nothing of this place: come closer and look again.
    return torch.where(per_image(at_image > 0), found, 0.7 * offset)


def cosine_to_normal(offset: Tensor, gradient: Tensor, norm: Norm) -> Tensor:
    """N: how well an offset follows the boundary's normal, −∇margin; 1 at a nearest point away from pixel limits."""
    along = -(offset * gradient).flatten(1).sum(1)
    dual = gradient.flatten(1).norm(dim=1) if norm == "l2" else gradient.flatten(1).abs().sum(1)
    return along / (dual * length(offset, norm))
