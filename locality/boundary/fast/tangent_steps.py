"""Rounds of tangent steps, the final tangent step, and the smooth margin that they follow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from locality.boundary.fast.state import MIN_RIVAL_SHARE, State, crossing_share
from locality.boundary.tangent import tangent_point
from locality.model_calls import Calls
from locality.perturbation import length, margin

FIRST_STEP_SIZE = 1.5  # of the first tangent's offset: past the boundary the tangent is the boundary's own
OVERSHOOT_GROWTH, OVERSHOOT_DECAY, OVERSHOOT_RANGE = 1.6, 0.6, (0.01, 1.0)  # overshoot: a share of the first margin
LAST_SHARPNESS = 50.0  # the last β, in units of 1/first margin
LATER_STEP_SIZE = 0.5  # the first step of a later round, which starts near a solution
SINGLE_RIVAL_SHARE = 0.999  # of the gradient: from here on it is that of one rival
FINAL_OVERSHOOT = 1.001  # of the final tangent's length
BACKTRACK_FACTOR, MAX_BACKTRACKS = 0.6, 6
RANDOM_STEP = 0.1  # per pixel, where the gradient is zero


def tangent_round(
    state: State,
    active: Tensor,
    rival: Tensor | None,
    steps: int,
    *,
    from_image: bool,
    length_limits: Sequence[float] = (),
    full_steps: bool = False,
) -> None:
    """At most `steps` gradients for each of the active images.

    `length_limits[k]`: an image stops after step k if its tangent's offset is longer than this multiple of its best
    distance. `full_steps` starts with a step size of 1 although the round does not start at the image.
    """
    context = state.context
    calls, norm = context.calls, context.norm
    images, labels, offset = state.images[active], state.labels[active], state.offset[active]
    for step in range(steps):
        first_step = from_image and step == 0
        if rival is None:
            sharpness = sharpness_at(state.first_margin[active], step / (steps - 1) if from_image else 1.0)
            logits, gradient = calls.gradient(images + offset, smooth_margin, labels, sharpness)
            value, share = margin(logits, labels), rival_share(logits, labels, sharpness)
        else:
            logits, gradient = calls.gradient(images + offset, rival_margin, labels, rival)
            value, share = rival_margin(logits, labels, rival), (logits.argmax(1) == rival).to(offset)
        state.gradients[active] += 1
        if first_step:
            state.image_gradient = gradient
        across = margin(logits, labels) < 0
        unknown = torch.isnan(state.first_margin[active])
        state.first_margin[active] = torch.where(unknown, value.abs().clamp_min(1e-6), state.first_margin[active])
        if not first_step:
            overshoot = state.overshoot[active]
            overshoot = torch.where(across, overshoot * OVERSHOOT_DECAY, overshoot * OVERSHOOT_GROWTH)
            state.overshoot[active] = overshoot.clamp(*OVERSHOOT_RANGE)
        aimed_value = value + state.overshoot[active] * state.first_margin[active]
        tangent = tangent_point(images, offset, aimed_value, gradient, norm, calls.limits)
        flat = gradient.flatten(1).abs().amax(dim=1) == 0
        if flat.any():  # no direction is better than another: a random one, which depends on the image alone
            seeds = [context.seeds[index] for index in active[flat].tolist()]
            tangent[flat] = offset[flat] + _random_offset(images[flat], seeds)
        # Where the tangent puts the image itself across it is useless, and `tangent` is parallel to `offset` by definition.
        behind = aimed_value - (gradient * offset).flatten(1).sum(1) <= 0
        cosine = torch.nn.functional.cosine_similarity(offset.flatten(1), tangent.flatten(1))
        cosine[behind] = -1.0
        better = state.keep_shorter(active, offset, logits, gradient, share)
        state.cosine_to_tangent[active] = torch.where(better, cosine, state.cosine_to_tangent[active])
        if first_step:
            offset = FIRST_STEP_SIZE * tangent
            state.tangent_distance[active] = length(tangent, norm)
        else:
            first_size = 1.0 if from_image or full_steps else LATER_STEP_SIZE
            step_size = first_size * 0.5 * (1 + math.cos(math.pi * step / steps))
            too_far = behind & across
            moved = offset + step_size * (tangent - offset)
            if too_far.any():
                moved[too_far] = backtrack(calls, images[too_far], offset[too_far], labels[too_far])
            offset = moved
        offset = (images + offset).clamp(*calls.limits) - images
        state.offset[active] = offset
        continues = ~(better & (cosine > state.stop_cosine) & (share > MIN_RIVAL_SHARE))
        if step < len(length_limits):
            continues &= length(tangent, norm) < length_limits[step] * state.best_distance[active]
        if not continues.any():
            break
        active, images, labels, offset = active[continues], images[continues], labels[continues], offset[continues]
        rival = None if rival is None else rival[continues]


def final_tangent_step(state: State, max_gradients: int) -> None:
    """One more tangent step from the best point, which is exact for a linear model.

    Costs a forward pass, and a gradient where the known one is a mixture of several rivals.
    """
    calls, norm = state.context.calls, state.context.norm
    found = torch.isfinite(state.best_distance)
    mixed = found & (state.best_rival_share < SINGLE_RIVAL_SHARE) & (state.gradients < max_gradients)
    if mixed.any():
        labels, reached = state.labels[mixed], state.best_class[mixed]
        points = state.images[mixed] + state.best_offset[mixed]
        logits, state.best_gradient[mixed] = calls.gradient(points, rival_margin, labels, reached)
        state.best_margin[mixed] = rival_margin(logits, labels, reached)
        state.best_rival_share[mixed] = 1.0
        share = crossing_share(state.best_margin[mixed], state.best_gradient[mixed], state.best_offset[mixed])
        # The tangent of the mixture may have put the boundary too near.
        state.best_distance[mixed] = length(state.best_offset[mixed], norm) * share
        state.gradients[mixed] += 1
    chosen = torch.nonzero(torch.isfinite(state.best_distance))[:, 0]
    images, gradient = state.images[chosen], state.best_gradient[chosen]
    aimed_value = state.best_margin[chosen] + 2 * state.best_rounding[chosen]
    tangent = tangent_point(images, state.best_offset[chosen], aimed_value, gradient, norm, calls.limits)
    offset = (images + FINAL_OVERSHOOT * tangent).clamp(*calls.limits) - images
    shorter = length(offset, norm) < FINAL_OVERSHOOT * state.best_distance[chosen]  # the others save their forward pass
    if shorter.any():
        logits = calls.logits(images[shorter] + offset[shorter])
        share = state.best_rival_share[chosen[shorter]]
        state.keep_shorter(chosen[shorter], offset[shorter], logits, gradient[shorter], share)


def backtrack(calls: Calls, images: Tensor, offset: Tensor, labels: Tensor) -> Tensor:
    """The offset, shortened as long as it stays across: a step much too far lands where gradients carry no information."""
    offset = offset.clone()
    active = torch.arange(len(images), device=images.device)
    for _ in range(MAX_BACKTRACKS):
        shorter = BACKTRACK_FACTOR * offset[active]
        across = margin(calls.logits(images[active] + shorter), labels[active]) < 0
        active = active[across]
        offset[active] = shorter[across]
        if len(active) == 0:
            break
    return offset


def sharpness_at(first_margin: Tensor, progress: float) -> Tensor:
    """N: β, which grows exponentially from 1 (progress 0) to its last value (progress 1)."""
    last = (LAST_SHARPNESS / first_margin.nan_to_num(1.0)).clamp_min(1.0)
    return last**progress


def smooth_margin(logits: Tensor, labels: Tensor, sharpness: Tensor) -> Tensor:
    """N: f_y − logsumexp(β·others)/β."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - (others * sharpness[:, None]).logsumexp(1) / sharpness


def rival_share(logits: Tensor, labels: Tensor, sharpness: Tensor) -> Tensor:
    """N: the largest share that one rival has in the gradient of the smooth margin."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return (others * sharpness[:, None]).softmax(1).amax(1)


def rival_margin(logits: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
    """N: f_y − f_rival."""
    return logits.gather(1, labels[:, None])[:, 0] - logits.gather(1, rival[:, None])[:, 0]


def _random_offset(images: Tensor, seeds: list[int]) -> Tensor:
    """A random direction for each image, from its seed."""
    drawn = [
        torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed % 2**63)).to(images.device)
        for seed in seeds
    ]
    return RANDOM_STEP * torch.stack(drawn).to(images.dtype)
