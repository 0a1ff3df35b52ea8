"""`fast`, the default search: some dozen gradients an image.

The nearest point across the boundary solves: minimise ‖δ‖ subject to margin(x + δ) = 0 and x + δ in [0, 1]. Each step takes
the margin's gradient g at the current point, replaces the margin by its tangent there, and solves that simpler problem
exactly, pixel limits included: u = clip(x − λg) with the one λ that puts u on the tangent (sequential quadratic programming
with the identity for a Hessian). The iterate moves towards u by a step that falls as a cosine. Four things make it work on
networks:

- The tangent is aimed a little beyond the boundary, by a share of the first margin that grows while the iterate stays inside
  and shrinks once it is across. Robust models bend away from the tangent, and only points across count.
- g is the gradient of f_y − logsumexp(β·others)/β: at first, with β = 1, no rival class hides another; β grows until only
  the nearest counts, which is the true margin.
- At a nearest point δ and u agree. Images for which they do are finished; the others get further rounds from their best
  point, for as long as a round gains something.
- Where the gradient turns on the way, as in transformers, the first tangent promises a distance several times too long. A
  leap that lands far across comes back along its line, and such images are searched once more at the distance known then.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from locality.boundary.bisect import margin, rows
from locality.boundary.tangent import offset_length, tangent_point
from locality.model_calls import Calls, Limits

FIRST_OVERSHOOT = 1.5  # of the linearised distance: beyond the boundary the tangent is the boundary's
AIM, AIM_GROWS, AIM_SHRINKS, AIM_RANGE = 0.15, 1.6, 0.6, (0.01, 1.0)  # shares of the first margin
SHARPEST = 50.0  # the last β, in units of 1/first margin
WORTH_COMPARING = 1.5  # a rival whose margin is that much larger than the first one's is hardly ever nearer
JUST_BEYOND = 1.001  # of a tangent's length
CLEARLY_NEARER = 0.9  # a tangent that much shorter is worth a round
LATER_STEP = 0.5  # the first step of a further round, which starts near a solution
SHORTENED, MOST_SHORTENED = 0.6, 6  # of an offset that leapt too far
# The first tangent was misleading where the gradient has turned by this cosine and the way was this share of what it said.
TURNED, MUCH_SHORTER = 0.8, 0.6
STUCK = 0.8  # an agreement that no round could raise
STEPS_AGAIN = 16
LOOKING_ELSEWHERE = 40  # gradients at most: once more, with rounds after it, or rivals


def fast_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: str,
    seeds: list[int],
    progress: Any,
    *,
    steps: int = 8,
    max_gradients: int = 100,
    aligned: float = 0.95,
    settled: float = 0.98,
    gain: float = 0.005,
    compared: int = 4,
    rivals: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Candidates after rounds of `steps` gradients; a hard image may take `max_gradients`, all in all.

    An image is finished when, after a round, the cosine between δ and u exceeds `aligned`, or when a round shortens δ by
    less than the share `gain`; a cosine above `settled` ends the round itself for this image. Of the strongest `compared`
    rival classes one may lie nearer, by the tangents at the image, than the class reached: where it does clearly, it gets a
    round of its own. `rivals` names the class to reach for each image, where only one is wanted; `start` a first
    displacement.
    """
    _check_steps(steps, max_gradients)
    state = _State(images, labels, seeds, start, calls.limits, settled)
    free = rivals is None and start is None
    everyone = torch.arange(len(images), device=images.device)

    def rounds(active: Tensor, allowed: int, from_image: bool) -> None:
        """Rounds from the best point so far, for as long as they gain something."""
        while len(active) and allowed >= steps:
            rival = None if rivals is None else rivals[active]
            _round(calls, state, active, rival, norm, steps, from_image)
            allowed, from_image = allowed - steps, False
            gained = (state.before[active] - state.best[active]) / state.best[active]
            state.before[active] = state.best[active]
            found = torch.isfinite(state.best[active])
            finished = found & ((state.agreement[active] > aligned) | (gained < gain))
            # Those found go on from their best point, the others from beyond where they are.
            again = torch.where(rows(found), state.best_offset[active], 1.3 * state.offset[active])
            state.offset[active] = (images[active] + again).clamp(*calls.limits) - images[active]
            active = active[~finished]
            progress(len(images) - len(active), len(images))

    # Where enough is allowed, some of it is kept for looking elsewhere.
    first = max_gradients if not free or max_gradients < 2 * LOOKING_ELSEWHERE else max_gradients - LOOKING_ELSEWHERE
    rounds(everyone, first, from_image=start is None)
    if free and first < max_gradients:
        misled = (state.turn < TURNED) & (state.best < MUCH_SHORTER * state.leap) | (state.agreement < STUCK)
        misled &= torch.isfinite(state.best)
        chosen = everyone[misled]
        _try_again(calls, state, chosen, norm)
        left = chosen[state.agreement[chosen] <= aligned]
        state.offset[left] = state.best_offset[left]
        rounds(left, LOOKING_ELSEWHERE - STEPS_AGAIN, from_image=False)
        if compared > 0:
            _try_nearer_rivals(calls, state, everyone[~misled], norm, steps, compared)
    found = torch.isfinite(state.best)
    return images + torch.where(rows(found), state.best_offset, state.offset)


def _check_steps(steps: int, max_gradients: int) -> None:
    if not 2 <= steps <= max_gradients:
        raise ValueError(f"`steps` must lie between 2 and `max_gradients`, got {steps} and {max_gradients}")


class _State:
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
        self.image_logits: Tensor | None = None  # N×K
        self.best_offset = torch.zeros_like(images)
        self.reached = labels.clone()  # the class at the best offset
        self.best = images.new_full((len(images),), torch.inf)  # length of the shortest offset that is across
        self.before = self.best.clone()  # the same, a round ago
        self.agreement = images.new_full((len(images),), -1.0)
        self.first_gradient = torch.zeros_like(images)
        self.leap = images.new_zeros(len(images))  # distance by the tangent at the image
        self.turn = images.new_ones(len(images))  # cosine between the gradients at the image and at the best point
        self.first_margin = images.new_full((len(images),), torch.nan)
        self.aim = images.new_full((len(images),), AIM)

    def keep_shorter(self, chosen: Tensor, offset: Tensor, logits: Tensor, norm: str) -> Tensor:
        """Take the offsets of the chosen images that are across and shorter than the best; says which."""
        length = offset_length(offset, norm)
        better = (margin(logits, self.labels[chosen]) < 0) & (length < self.best[chosen])
        self.best[chosen] = torch.where(better, length, self.best[chosen])
        self.best_offset[chosen] = torch.where(rows(better), offset, self.best_offset[chosen])
        self.reached[chosen] = torch.where(better, logits.argmax(1), self.reached[chosen])
        return better


def _try_again(calls: Calls, state: _State, active: Tensor, norm: str) -> None:
    """A longer round from where the first gradient points, at the distance that is known by now.

    Where gradients turn on the way to the boundary, the first leap, which trusts their length, misses by far, and whatever
    lies around the place where it lands is found, not what is nearest.
    """
    if len(active) == 0:
        return
    direction = state.first_gradient[active]
    length = state.best[active] / offset_length(direction, norm).clamp_min(1e-30)
    state.offset[active] = -rows(length) * direction
    state.aim[active] = AIM
    _round(calls, state, active, None, norm, STEPS_AGAIN, from_image=False)


def _try_nearer_rivals(calls: Calls, state: _State, these: Tensor, norm: str, steps: int, compared: int) -> None:
    """A round towards the rival whose tangent at the image is clearly the nearest, where another class was reached."""
    assert state.image_logits is not None  # the first round began at the images
    if len(these) == 0:
        return
    images, labels, logits = state.images[these], state.labels[these], state.image_logits[these]
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    ranked = others.topk(min(compared, logits.shape[1] - 1), dim=1)
    worth = own - ranked.values <= WORTH_COMPARING * (own - ranked.values[:, :1])
    length = torch.full_like(ranked.values, torch.inf)
    nearest = torch.zeros_like(images)
    for place in range(ranked.indices.shape[1]):
        chosen = torch.nonzero(worth[:, place])[:, 0]
        if len(chosen) == 0:
            break  # the margins rise from place to place
        rival, pixels = ranked.indices[chosen, place], images[chosen]
        logits, gradient = calls.gradient(pixels, _rival_margin, labels[chosen], rival)
        value = _rival_margin(logits, labels[chosen], rival)
        offset = tangent_point(pixels, torch.zeros_like(pixels), value, gradient, norm, calls.limits)
        length[chosen, place] = offset_length(offset, norm)
        closest = length[chosen, place] <= length[chosen].amin(1)
        nearest[chosen[closest]] = offset[closest]
        _keep_if_across(calls, state, these[chosen], JUST_BEYOND * offset, norm)
    compared_to = torch.where(ranked.indices == state.reached[these][:, None], length, -torch.inf).amax(1)
    its_own = torch.where(torch.isfinite(compared_to), compared_to, state.best[these])
    nearest_length, place_of = length.min(dim=1)
    clearly = torch.nonzero(nearest_length < CLEARLY_NEARER * its_own)[:, 0]
    if len(clearly):
        state.offset[these[clearly]] = nearest[clearly]
        state.aim[these[clearly]] = AIM
        rival = ranked.indices[clearly, place_of[clearly]]
        _round(calls, state, these[clearly], rival, norm, steps, from_image=False)


def _keep_if_across(calls: Calls, state: _State, chosen: Tensor, offset: Tensor, norm: str) -> None:
    """Take these offsets where they are across and shorter; costs a forward pass, and is all a linear model needs."""
    offset = (state.images[chosen] + offset).clamp(*calls.limits) - state.images[chosen]
    shorter = offset_length(offset, norm) < state.best[chosen]  # the others need not be asked about
    if shorter.any():
        chosen, offset = chosen[shorter], offset[shorter]
        state.keep_shorter(chosen, offset, calls.logits(state.images[chosen] + offset), norm)


def _round(
    calls: Calls, state: _State, active: Tensor, rival: Tensor | None, norm: str, steps: int, from_image: bool
) -> None:
    """`steps` gradients for the active images."""
    images, labels = state.images[active], state.labels[active]
    offset = state.offset[active]
    for step in range(steps):
        if rival is None:
            sharpness = _sharpness(state.first_margin[active], step / (steps - 1) if from_image else 1.0)
            logits, gradient = calls.gradient(images + offset, _smooth_margin, labels, sharpness)
        else:
            logits, gradient = calls.gradient(images + offset, _rival_margin, labels, rival)
        value = margin(logits, labels) if rival is None else _rival_margin(logits, labels, rival)
        if from_image and step == 0:
            state.image_logits, state.first_gradient[active] = logits, gradient
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
        better = state.keep_shorter(active, offset, logits, norm)
        state.agreement[active] = torch.where(better, agreement, state.agreement[active])
        turn = torch.nn.functional.cosine_similarity(gradient.flatten(1), state.first_gradient[active].flatten(1))
        state.turn[active] = torch.where(better, turn, state.turn[active])
        if from_image and step == 0:
            offset = FIRST_OVERSHOOT * wanted
            state.leap[active] = offset_length(wanted, norm)
        else:
            size = (1.0 if from_image else LATER_STEP) * 0.5 * (1 + math.cos(math.pi * step / steps))
            lost = behind & across
            moved = offset + size * (wanted - offset)
            if lost.any():
                moved[lost] = _back_along_the_line(calls, images[lost], offset[lost], labels[lost])
            offset = moved
        offset = (images + offset).clamp(*calls.limits) - images
        state.offset[active] = offset
        left = ~(better & (agreement > state.settled))
        if not left.any():
            break
        active, images, labels, offset = active[left], images[left], labels[left], offset[left]
        rival = None if rival is None else rival[left]


def _back_along_the_line(calls: Calls, images: Tensor, offset: Tensor, labels: Tensor) -> Tensor:
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


def _sharpness(first_margin: Tensor, share: float) -> Tensor:
    """N: β at a share of the way from 1 to its last value."""
    last = (SHARPEST / first_margin.nan_to_num(1.0)).clamp_min(1.0)
    return last**share


def _smooth_margin(logits: Tensor, labels: Tensor, sharpness: Tensor) -> Tensor:
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - (others * sharpness[:, None]).logsumexp(1) / sharpness


def _rival_margin(logits: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None])[:, 0] - logits.gather(1, rival[:, None])[:, 0]


def _random_offset(images: Tensor, seeds: list[int]) -> Tensor:
    """A direction for each image, a tenth of the pixel range long in each pixel."""
    drawn = [
        torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed % 2**63)).to(images.device)
        for seed in seeds
    ]
    return 0.1 * torch.stack(drawn).to(images.dtype)
