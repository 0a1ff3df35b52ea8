"""The shortest offset to a tangent plane within pixel limits: the nearest point, if the margin were linear."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Limits
from locality.perturbation import length, per_image
from locality.types import Norm

NEWTON_STEPS = 12
RETREAT = 0.7  # of the offset, where its tangent is useless
LOW_OPTIMALITY = 0.1  # a cosine to the normal below which an offset is unrelated to the boundary at its point


def tangent_point(
    images: Tensor,
    offset: Tensor,
    value: Tensor,
    gradient: Tensor,
    norm: Norm = "l2",
    limits: Limits = (0.0, 1.0),
) -> Tensor:
    """The shortest offset u with value + g·(u − offset) = 0 and images + u within the pixel limits.

    In ℓ2 u = clip(x − λg) − x, in ℓ∞ u = clip(x − λ sign g) − x. The tangent's value decreases with λ and is convex in it,
    so Newton's method approaches λ from one side.
    """
    direction = gradient if norm == "l2" else gradient.sign()
    slope = (gradient * direction).flatten(1).sum(1).clamp_min(1e-30)
    at_image = value - (gradient * offset).flatten(1).sum(1)  # the tangent's value at the image itself
    multiplier = at_image / slope  # λ
    for _ in range(NEWTON_STEPS):
        moved = images - per_image(multiplier) * direction
        clipped = moved.clamp(*limits)
        residual = at_image + (gradient * (clipped - images)).flatten(1).sum(1)
        unsolved = residual.abs() > 1e-4 * at_image.abs()
        if not unsolved.any():
            break
        free_slope = (gradient * direction * (moved == clipped)).flatten(1).sum(1)
        # Solved images stay as they are: results must not depend on the batch.
        step = residual / torch.maximum(free_slope, 0.02 * slope)
        multiplier = torch.where(unsolved, multiplier + step, multiplier)
    shortest = (images - per_image(multiplier) * direction).clamp(*limits) - images
    # Where the tangent puts the image itself across it is useless: come closer and linearise again.
    return torch.where(per_image(at_image > 0), shortest, RETREAT * offset)


def cosine_to_normal(offset: Tensor, gradient: Tensor, norm: Norm) -> Tensor:
    """N: cosine between an offset and the boundary's normal, −∇margin; 1 at a nearest point away from pixel limits."""
    along = -(offset * gradient).flatten(1).sum(1)
    dual = gradient.flatten(1).norm(dim=1) if norm == "l2" else gradient.flatten(1).abs().sum(1)
    return along / (dual * length(offset, norm))
