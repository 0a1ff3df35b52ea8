"""A second way to the boundary, for images at which the first one may have met the wrong part of it.

Either of two signs tells which. The way to the best point has nothing to do with the boundary's normal there. Or the
boundary is much nearer than the tangent at the image promises, and the gradient there has little in common with that at the
best point: on such landscapes, those of transformers above all, tangents lead to a boundary, but often not to the nearest
one, and the cosine `δ` has with its tangent does not show it. A walk on a sphere that shrinks while it stays across
decouples direction from radius, as DDN does, and averages gradients of many places. It begins well outside: coming from
there it more often finds a nearer part than from inside.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.boundary.fast.tangent_steps import State, share_alone, smooth_margin
from locality.boundary.tangent import POOR, cosine_to_normal
from locality.model_calls import Calls
from locality.perturbation import length, margin, per_image
from locality.types import Norm

TURNED = 0.5  # cosine of the gradients at the image and at the best point, below which they have little in common
NEARER = 0.6  # of what the first tangent promised
WALK_STEPS = 24
FIRST_RADIUS = 1.5  # of the best distance
RADIUS_STEP = 0.1  # of the radius, inwards when across and outwards when not
FIRST_STEP, LAST_STEP = 1.5, 0.01  # of the first radius, along the gradient
LOOK_FROM, LOOK_UNTIL = 3, 5  # steps at which tangents are looked at
HOPE = 0.7  # of the best distance: what one of these tangents must promise for the walk to go on


def walk(calls: Calls, state: State, norm: Norm, max_gradients: int) -> Tensor:
    """Walks around the images that may have a nearer boundary; says for which one was found."""
    everyone = torch.nonzero(_doubtful(state, norm) & (state.spent + WALK_STEPS <= max_gradients))[:, 0]
    active, before = everyone, state.best.clone()
    images, offset, radius = state.images[active], torch.zeros_like(state.images[active]), FIRST_RADIUS * before[active]
    tangent = torch.full_like(radius, torch.inf)
    for step in range(WALK_STEPS):
        if len(active) == 0:
            break
        labels, sharpness = state.labels[active], torch.ones_like(radius)
        logits, gradient = calls.gradient(images + offset, smooth_margin, labels, sharpness)
        state.spent[active] += 1
        value, alone = margin(logits, labels), share_alone(logits, labels, sharpness)
        state.keep_shorter(active, offset, logits, norm, gradient, alone)
        if step > 0:
            radius = radius * torch.where(value < 0, 1 - RADIUS_STEP, 1 + RADIUS_STEP)
        size = LAST_STEP + (FIRST_STEP - LAST_STEP) * 0.5 * (1 + math.cos(math.pi * step / WALK_STEPS))
        moved = offset - per_image(size * FIRST_RADIUS * before[active]) * _unit(gradient, norm)
        if LOOK_FROM <= step <= LOOK_UNTIL:
            tangent = torch.minimum(tangent, _tangent_distance(value, gradient, offset, norm))
        offset = (images + _on_sphere(moved, radius, norm)).clamp(*calls.limits) - images
        if step == LOOK_UNTIL:
            left = tangent < HOPE * before[active]
            active, images, offset, radius = active[left], images[left], offset[left], radius[left]
    nearer = everyone[state.best[everyone] < before[everyone]]
    state.offset[nearer], state.before[nearer] = state.best_offset[nearer], state.best[nearer]
    state.agreement[nearer] = -1.0  # that of the point before
    return nearer


def _doubtful(state: State, norm: Norm) -> Tensor:
    """N: whether an image's best point may not be on the nearest boundary."""
    first, last = state.first_gradient.flatten(1), state.best_gradient.flatten(1)
    turned = (torch.nn.functional.cosine_similarity(first, last) < TURNED) & (first.abs().amax(dim=1) > 0)
    astray = cosine_to_normal(state.best_offset, state.best_gradient, norm) < POOR  # nan, so not, where none was found
    return astray | (turned & (state.best < NEARER * state.promised))


def _tangent_distance(value: Tensor, gradient: Tensor, offset: Tensor, norm: Norm) -> Tensor:
    """N: how far from the image the tangent at an offset puts the boundary, the pixels' limits aside."""
    steepness = gradient.flatten(1).norm(dim=1) if norm == "l2" else gradient.flatten(1).abs().sum(1)
    return (value - (gradient * offset).flatten(1).sum(1)) / steepness.clamp_min(1e-30)


def _unit(gradient: Tensor, norm: Norm) -> Tensor:
    """The gradients, at length 1; their signs in ℓ∞."""
    return gradient / per_image(length(gradient, norm).clamp_min(1e-30)) if norm == "l2" else gradient.sign()


def _on_sphere(offset: Tensor, radius: Tensor, norm: Norm) -> Tensor:
    """The nearest offsets of the given lengths; in ℓ∞, where those inside are as good, of these lengths at most."""
    if norm == "l2":
        return offset * per_image(radius / length(offset, norm).clamp_min(1e-30))
    return torch.minimum(torch.maximum(offset, -per_image(radius)), per_image(radius))
