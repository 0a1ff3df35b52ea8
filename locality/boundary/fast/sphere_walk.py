"""A second way to the boundary, for images whose best point may lie on the wrong part of it.

Either of two signs marks such an image. The offset of the best point is unrelated to the boundary's normal there. Or the
boundary is much nearer than the tangent at the image predicts, and the gradient at the image has little in common with the
one at the best point: on such landscapes, those of transformers above all, tangents lead to a boundary but often not to the
nearest one, and the cosine to the tangent does not show it. A walk on a sphere that shrinks while it is across decouples
direction and radius, as DDN does, and averages gradients of many points. It starts well outside: from there it finds a
nearer part more often than from inside.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.boundary.fast.state import State
from locality.boundary.fast.tangent_steps import rival_share, smooth_margin
from locality.boundary.tangent import LOW_OPTIMALITY, cosine_to_normal
from locality.perturbation import length, margin, per_image
from locality.types import Norm

MAX_GRADIENT_COSINE = 0.5  # between the gradients at the image and at the best point, for the second sign
MAX_DISTANCE_RATIO = 0.6  # best distance / distance by the tangent at the image, for the second sign
WALK_STEPS = 24
FIRST_RADIUS = 1.5  # of the best distance
RADIUS_STEP = 0.1  # of the radius: inwards if across, outwards if not
FIRST_STEP_SIZE, LAST_STEP_SIZE = 1.5, 0.01  # of the first radius, along the gradient
FIRST_CHECK, LAST_CHECK = 3, 5  # steps whose tangents decide whether an image continues
LENGTH_LIMIT = 0.7  # of the best distance: an image continues if one of these tangents is nearer


def sphere_walk(state: State, max_gradients: int) -> Tensor:
    """Walk around the images that may have a nearer boundary; returns the indices of those where a nearer one was found."""
    calls, norm = state.context.calls, state.context.norm
    walked = torch.nonzero(_may_be_nearer(state) & (state.gradients + WALK_STEPS <= max_gradients))[:, 0]
    active, before = walked, state.best_distance.clone()
    images, radius = state.images[active], FIRST_RADIUS * before[active]
    offset, nearest_tangent = torch.zeros_like(images), torch.full_like(radius, torch.inf)
    for step in range(WALK_STEPS):
        if len(active) == 0:
            break
        labels, sharpness = state.labels[active], torch.ones_like(radius)
        logits, gradient = calls.gradient(images + offset, smooth_margin, labels, sharpness)
        state.gradients[active] += 1
        value = margin(logits, labels)
        state.keep_shorter(active, offset, logits, gradient, rival_share(logits, labels, sharpness))
        if step > 0:
            radius = radius * torch.where(value < 0, 1 - RADIUS_STEP, 1 + RADIUS_STEP)
        decay = 0.5 * (1 + math.cos(math.pi * step / WALK_STEPS))
        step_size = LAST_STEP_SIZE + (FIRST_STEP_SIZE - LAST_STEP_SIZE) * decay
        moved = offset - per_image(step_size * FIRST_RADIUS * before[active]) * _unit(gradient, norm)
        if FIRST_CHECK <= step <= LAST_CHECK:
            nearest_tangent = torch.minimum(nearest_tangent, _tangent_distance(value, gradient, offset, norm))
        offset = (images + _on_sphere(moved, radius, norm)).clamp(*calls.limits) - images
        if step == LAST_CHECK:
            continues = nearest_tangent < LENGTH_LIMIT * before[active]
            active, images, offset, radius = active[continues], images[continues], offset[continues], radius[continues]
    nearer = walked[state.best_distance[walked] < before[walked]]
    state.offset[nearer], state.previous_distance[nearer] = state.best_offset[nearer], state.best_distance[nearer]
    state.cosine_to_tangent[nearer] = -1.0  # the known cosine is that of the point before
    return nearer


def _may_be_nearer(state: State) -> Tensor:
    """N: whether the best point of an image may not be on the nearest part of the boundary."""
    first, last = state.image_gradient.flatten(1), state.best_gradient.flatten(1)
    gradient_cosine = torch.nn.functional.cosine_similarity(first, last)
    unrelated = (gradient_cosine < MAX_GRADIENT_COSINE) & (first.abs().amax(dim=1) > 0)
    optimality = cosine_to_normal(state.best_offset, state.best_gradient, state.context.norm)  # nan where none was found
    return (optimality < LOW_OPTIMALITY) | (unrelated & (state.best_distance < MAX_DISTANCE_RATIO * state.tangent_distance))


def _tangent_distance(value: Tensor, gradient: Tensor, offset: Tensor, norm: Norm) -> Tensor:
    """N: the distance from the image to the tangent at an offset, without pixel limits."""
    steepness = gradient.flatten(1).norm(dim=1) if norm == "l2" else gradient.flatten(1).abs().sum(1)
    return (value - (gradient * offset).flatten(1).sum(1)) / steepness.clamp_min(1e-30)


def _unit(gradient: Tensor, norm: Norm) -> Tensor:
    """The gradients at length 1; their signs in ℓ∞."""
    return gradient / per_image(length(gradient, norm).clamp_min(1e-30)) if norm == "l2" else gradient.sign()


def _on_sphere(offset: Tensor, radius: Tensor, norm: Norm) -> Tensor:
    """The nearest offsets of length `radius`; in ℓ∞, of at most this length."""
    if norm == "l2":
        return offset * per_image(radius / length(offset, norm).clamp_min(1e-30))
    return torch.minimum(torch.maximum(offset, -per_image(radius)), per_image(radius))
