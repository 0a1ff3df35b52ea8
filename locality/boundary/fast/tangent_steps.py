"""Rounds of tangent steps, and what is known of each image between them: the inside of `fast`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from locality.boundary.bisect import SLACK
from locality.boundary.tangent import tangent_point
from locality.model_calls import Calls, Limits
from locality.perturbation import length, margin
from locality.types import Norm

FIRST_OVERSHOOT = 1.5  # of the linearised distance: beyond the boundary the tangent is the boundary's
AIM, AIM_GROWS, AIM_SHRINKS, AIM_RANGE = 0.15, 1.6, 0.6, (0.01, 1.0)  # shares of the first margin
SHARPEST = 50.0  # the last β, in units of 1/first margin
LATER_STEP = 0.5  # the first step of a further round, which starts near a solution; a bold one does not
ALONE = 0.9  # share of the gradient that is one rival's: a mixture of several agrees with itself far from any boundary
LEAST_SHARE = 0.85  # of an offset: tangents are not trusted farther
PURE = 0.999  # the same share, to sharpen by
JUST_BEYOND = 1.001  # of a tangent's length
SHORTENED, MOST_SHORTENED = 0.6, 6  # of an offset that leapt too far


class State:
    """What is known of each image."""

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        seeds: list[int],
        start: Tensor | None,
        limits: Limits,
        settled: float,
    ) -> None:
        self.images, self.labels, self.seeds, self.settled = images, labels, seeds, settled
        self.offset = torch.zeros_like(images) if start is None else (images + start).clamp(*limits) - images
        self.first_gradient = torch.zeros_like(images)  # at the images
        self.best_offset = torch.zeros_like(images)
        self.best_value = images.new_zeros(len(images))  # the margin there
        self.best_noise = images.new_zeros(len(images))  # what of it may be rounding
        self.best_gradient = torch.zeros_like(images)  # its gradient
        self.best_alone = images.new_ones(len(images))  # share of that gradient that is the reached class's
        self.reached = labels.clone()  # the class at the best offset
        self.best = images.new_full((len(images),), torch.inf)  # length of the shortest offset that is across
        self.before = self.best.clone()  # the same, a round ago
        self.promised = images.new_zeros(len(images))  # the length of the first tangent
        self.agreement = images.new_full((len(images),), -1.0)
        self.first_margin = images.new_full((len(images),), torch.nan)
        self.aim = images.new_full((len(images),), AIM)
        self.spent = torch.zeros_like(labels)  # gradients
        self.finished = 0  # images, as far as progress was told

    def keep_shorter(
        self, chosen: Tensor, offset: Tensor, logits: Tensor, norm: Norm, gradient: Tensor, alone: Tensor
    ) -> Tensor:
        """Take the offsets of the chosen images that are across and shorter than the best; says which.

        What counts is where their line meets the boundary, as the tangent there says: `gradient` is the margin's, `alone`
        the share of it that is the reached class's; a mixture of several says nothing of any.
        """
        value = margin(logits, self.labels[chosen])
        share = torch.where(alone > ALONE, share_to_boundary(value, gradient, offset), 1.0)
        distance = length(offset, norm) * share
        noise = 2 * SLACK * logits.abs().amax(dim=1)  # one that is across by less may not be the next time
        better = (value < -noise) & (distance < self.best[chosen])
        kept = chosen[better]
        self.best[kept] = distance[better]
        self.best_offset[kept] = offset[better]
        self.best_value[kept] = value[better]
        self.best_noise[kept] = noise[better]
        self.best_gradient[kept] = gradient[better]
        self.best_alone[kept] = alone[better]
        self.reached[kept] = logits[better].argmax(1)
        return better


def one_round(
    calls: Calls,
    state: State,
    active: Tensor,
    rival: Tensor | None,
    norm: Norm,
    steps: int,
    from_image: bool,
    hope: Sequence[float] = (),
    bold: bool = False,
) -> None:
    """At most `steps` gradients for each of the active images.

    An image leaves when the tangent of its first steps is longer than `hope` times its best distance, a number a step.
    """
    images, labels, offset = state.images[active], state.labels[active], state.offset[active]
    for step in range(steps):
        if rival is None:
            sharpness = sharpness_at(state.first_margin[active], step / (steps - 1) if from_image else 1.0)
            logits, gradient = calls.gradient(images + offset, smooth_margin, labels, sharpness)
        else:
            logits, gradient = calls.gradient(images + offset, rival_margin, labels, rival)
        state.spent[active] += 1
        value = margin(logits, labels) if rival is None else rival_margin(logits, labels, rival)
        if from_image and step == 0:
            state.first_gradient = gradient
        across = margin(logits, labels) < 0
        fresh = torch.isnan(state.first_margin[active])
        state.first_margin[active] = torch.where(fresh, value.abs().clamp_min(1e-6), state.first_margin[active])
        aim = state.aim[active]
        if not (from_image and step == 0):
            aim = torch.where(across, aim * AIM_SHRINKS, aim * AIM_GROWS).clamp(*AIM_RANGE)
            state.aim[active] = aim
        aimed_at = value + aim * state.first_margin[active]
        wanted = tangent_point(images, offset, aimed_at, gradient, norm, calls.limits)
        flat = gradient.flatten(1).abs().amax(dim=1) == 0
        if flat.any():  # no direction is better than another: try one, the same for this image in any company
            wanted[flat] = offset[flat] + _random_offset(images[flat], [state.seeds[i] for i in active[flat].tolist()])
        behind = aimed_at - (gradient * offset).flatten(1).sum(1) <= 0
        agreement = torch.nn.functional.cosine_similarity(offset.flatten(1), wanted.flatten(1))
        agreement[behind] = -1.0  # such a tangent says nothing, and `wanted` lies along `offset` by definition
        alone = share_alone(logits, labels, sharpness) if rival is None else (logits.argmax(1) == rival).to(value)
        better = state.keep_shorter(active, offset, logits, norm, gradient, alone)
        state.agreement[active] = torch.where(better, agreement, state.agreement[active])
        if from_image and step == 0:
            offset = FIRST_OVERSHOOT * wanted
            state.promised[active] = length(wanted, norm)
        else:
            size = (1.0 if from_image or bold else LATER_STEP) * 0.5 * (1 + math.cos(math.pi * step / steps))
            lost = behind & across
            moved = offset + size * (wanted - offset)
            if lost.any():
                moved[lost] = back_along_the_line(calls, images[lost], offset[lost], labels[lost])
            offset = moved
        offset = (images + offset).clamp(*calls.limits) - images
        state.offset[active] = offset
        settled = better & (agreement > state.settled) & (alone > ALONE)
        left = ~settled
        if step < len(hope):
            left &= length(wanted, norm) < hope[step] * state.best[active]
        if not left.any():
            break
        active, images, labels, offset = active[left], images[left], labels[left], offset[left]
        rival = None if rival is None else rival[left]


def sharpen(calls: Calls, state: State, norm: Norm, max_gradients: int) -> None:
    """Where the tangent at the best point puts the nearest one: all that a linear model needs.

    Costs a forward pass, and a gradient where the one known is a mixture of several rivals'.
    """
    mixed = torch.nonzero(torch.isfinite(state.best) & (state.best_alone < PURE) & (state.spent < max_gradients))[:, 0]
    if len(mixed):
        labels, reached = state.labels[mixed], state.reached[mixed]
        points = state.images[mixed] + state.best_offset[mixed]
        logits, state.best_gradient[mixed] = calls.gradient(points, rival_margin, labels, reached)
        state.best_value[mixed] = rival_margin(logits, labels, reached)
        state.best_alone[mixed] = 1.0
        share = share_to_boundary(state.best_value[mixed], state.best_gradient[mixed], state.best_offset[mixed])
        state.best[mixed] = length(state.best_offset[mixed], norm) * share  # the mixture may have said too little
        state.spent[mixed] += 1
    these = torch.nonzero(torch.isfinite(state.best))[:, 0]
    images, gradient = state.images[these], state.best_gradient[these]
    aimed_at = state.best_value[these] + 2 * state.best_noise[these]
    tangent = state.best_offset[these], aimed_at, gradient
    offset = JUST_BEYOND * tangent_point(images, *tangent, norm, calls.limits)
    offset = (images + offset).clamp(*calls.limits) - images
    shorter = length(offset, norm) < JUST_BEYOND * state.best[these]  # the others need not be asked about
    if shorter.any():
        logits = calls.logits(images[shorter] + offset[shorter])
        alone = state.best_alone[these[shorter]]
        state.keep_shorter(these[shorter], offset[shorter], logits, norm, gradient[shorter], alone)


def back_along_the_line(calls: Calls, images: Tensor, offset: Tensor, labels: Tensor) -> Tensor:
    """The offset, shortened for as long as it stays across: a leap much too far lands where gradients say nothing."""
    offset = offset.clone()
    left = torch.arange(len(images), device=images.device)
    for _ in range(MOST_SHORTENED):
        shorter = SHORTENED * offset[left]
        across = margin(calls.logits(images[left] + shorter), labels[left]) < 0
        left = left[across]
        offset[left] = shorter[across]
        if len(left) == 0:
            break
    return offset


def share_to_boundary(value: Tensor, gradient: Tensor, offset: Tensor) -> Tensor:
    """N: at which share of an offset that is across its tangent puts the boundary; 1 where it says nothing sensible."""
    share = 1 - value / (gradient * offset).flatten(1).sum(1)
    return torch.where((share > LEAST_SHARE) & (share < 1), share, 1.0)


def sharpness_at(first_margin: Tensor, share: float) -> Tensor:
    """N: β at a share of the way from 1 to its last value."""
    last = (SHARPEST / first_margin.nan_to_num(1.0)).clamp_min(1.0)
    return last**share


def smooth_margin(logits: Tensor, labels: Tensor, sharpness: Tensor) -> Tensor:
    """N: f_y − logsumexp(β·others)/β."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - (others * sharpness[:, None]).logsumexp(1) / sharpness


def share_alone(logits: Tensor, labels: Tensor, sharpness: Tensor) -> Tensor:
    """N: the largest share that one rival has in the smoothed margin's gradient."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return (others * sharpness[:, None]).softmax(1).amax(1)


def rival_margin(logits: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
    """N: f_y − f_rival."""
    return logits.gather(1, labels[:, None])[:, 0] - logits.gather(1, rival[:, None])[:, 0]


def _random_offset(images: Tensor, seeds: list[int]) -> Tensor:
    """A direction for each image, some 0.1 in each pixel."""
    drawn = [
        torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed % 2**63)).to(images.device)
        for seed in seeds
    ]
    return 0.1 * torch.stack(drawn).to(images.dtype)
