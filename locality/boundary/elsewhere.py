"""Where `fast` looks besides the way its rounds went: nearer the image, along the first gradient, towards other classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.boundary.bisect import margin, rows
from locality.boundary.rounds import AIM, State, one_round, rival_margin, smooth_margin
from locality.boundary.tangent import offset_length, steepest, tangent_point
from locality.model_calls import Calls

WITHIN, AT_MOST, WIDENED = 0.85, 0.98, 1.03  # a ball, in units of the best distance: at first, at last, from step to step
FIRST_STRIDE, LAST_STRIDE = 1.0, 0.1  # in units of its radius
STEPS_CLOSER, PATIENCE = 16, 3
PROMISING, STALLED = 0.2, 0.8  # a margin, as a share of the first one and of the one before, that is worth a further step
STEPS_AGAIN = 12
MIDWAY = 0.7  # of the way to the best point, where other rivals are compared
WORTH_A_ROUND = 3.0  # like WORTH_COMPARING, where the margins at the image say less
WORTH_COMPARING = 1.5  # a rival whose margin is that much larger than the first one's is hardly ever nearer
JUST_BEYOND = 1.001  # of a tangent's length
UNREACHED = 0.01  # share of a rival's margin that is left at its tangent's nearest point
CLEARLY_NEARER = 0.9  # a tangent that much shorter is worth a round


def look_closer(calls: Calls, state: State, active: Tensor, norm: str) -> Tensor:
    """Walk inside a ball that ends before the best point; says which of the images found something there.

    Rounds follow one tangent to its end. Where the gradient turns on the way, another class may lie nearer, and strides in
    whatever direction the smoothed margin falls come past it. An image leaves when it is across, or when its margin has
    stopped falling.
    """
    best = state.best[active].clone()
    everyone = active
    images, labels = state.images[active], state.labels[active]
    radius = WITHIN * state.best[active]
    offset = -rows(0.5 * radius) * steepest(state.first_gradient[active], norm)
    before = state.first_margin[active]
    for step in range(STEPS_CLOSER if len(active) else 0):
        offset = (images + offset).clamp(*calls.limits) - images
        logits, gradient = calls.gradient(images + offset, smooth_margin, labels, torch.ones_like(radius))
        state.spent[active] += 1
        value = margin(logits, labels)
        state.keep_shorter(active, offset, logits, norm)
        left = value >= 0
        if step >= PATIENCE:
            left &= (value < PROMISING * state.first_margin[active]) & (value < STALLED * before)
        if not left.any():
            break
        active, images, labels, offset = active[left], images[left], labels[left], offset[left]
        gradient, before, radius = gradient[left], value[left], radius[left]
        radius = torch.minimum(WIDENED * radius, AT_MOST * state.best[active])
        stride = LAST_STRIDE + (FIRST_STRIDE - LAST_STRIDE) * 0.5 * (1 + math.cos(math.pi * step / STEPS_CLOSER))
        moved = offset - rows(stride * radius) * steepest(gradient, norm)
        offset = moved * rows(radius / offset_length(moved, norm).clamp_min(1e-30))
    found = everyone[state.best[everyone] < best]
    state.offset[found] = state.best_offset[found]
    state.aim[found] = AIM
    return found


def try_again(calls: Calls, state: State, active: Tensor, norm: str) -> None:
    """A longer round from where the first gradient points, at the distance that is known by now.

    Where gradients turn on the way to the boundary, the first leap, which trusts their length, misses by far, and whatever
    lies around the place where it lands is found, not what is nearest.
    """
    if len(active) == 0:
        return
    images = state.images[active]
    start = images - rows(state.best[active]) * steepest(state.first_gradient[active], norm)
    state.offset[active] = start.clamp(*calls.limits) - images
    state.aim[active] = AIM
    one_round(calls, state, active, None, norm, STEPS_AGAIN, from_image=False)


def try_nearer_rivals(calls: Calls, state: State, these: Tensor, norm: str, steps: int, compared: int) -> None:
    """A round towards the rival whose tangent at the image is clearly the nearest, where another class was reached."""
    if len(these) == 0:
        return
    images, labels = state.images[these], state.labels[these]
    ranked, worth = _strongest(state, these, compared, WORTH_COMPARING)
    length = images.new_full(ranked.shape, torch.inf)
    nearest = torch.zeros_like(images)
    for place in range(ranked.shape[1]):
        chosen = torch.nonzero(worth[:, place])[:, 0]
        if len(chosen) == 0:
            break  # the margins rise from place to place
        rival, pixels = ranked[chosen, place], images[chosen]
        logits, gradient = calls.gradient(pixels, rival_margin, labels[chosen], rival)
        state.spent[these[chosen]] += 1
        value = rival_margin(logits, labels[chosen], rival)
        offset = tangent_point(pixels, torch.zeros_like(pixels), value, gradient, norm, calls.limits)
        reaches = (
            value + (gradient * offset).flatten(1).sum(1) <= UNREACHED * value
        )  # not where all pixels are at their limits
        closest = reaches & (offset_length(offset, norm) < length[chosen].amin(1))
        length[chosen, place] = torch.where(reaches, offset_length(offset, norm), torch.inf)
        nearest[chosen[closest]] = offset[closest]
        _keep_if_across(calls, state, these[chosen], JUST_BEYOND * offset, norm)
    compared_to = torch.where(ranked == state.reached[these][:, None], length, -torch.inf).amax(1)
    its_own = torch.where(torch.isfinite(compared_to), compared_to, state.best[these])
    nearest_length, place_of = length.min(dim=1)
    clearly = torch.nonzero(nearest_length < CLEARLY_NEARER * its_own)[:, 0]
    if len(clearly):
        state.offset[these[clearly]] = nearest[clearly]
        state.aim[these[clearly]] = AIM
        rival = ranked[clearly, place_of[clearly]]
        one_round(calls, state, these[clearly], rival, norm, steps, from_image=False)


def try_each_rival(
    calls: Calls, state: State, these: Tensor, norm: str, steps: int, compared: int, max_gradients: int
) -> None:
    """Rounds towards the strongest rivals, from midway to the best point.

    Where the way is far shorter than the tangent at the image said, those of its rivals there say as little. From midway one
    gradient mostly tells: a rival whose tangent promises nothing shorter is left.
    """
    if len(these) == 0:
        return
    ranked, worth = _strongest(state, these, compared, WORTH_A_ROUND)
    for place in range(ranked.shape[1]):
        chosen = worth[:, place] & (ranked[:, place] != state.reached[these]) & (state.spent[these] + steps <= max_gradients)
        if chosen.any():
            active = these[chosen]
            state.offset[active] = MIDWAY * state.best_offset[active]
            state.aim[active] = AIM
            one_round(calls, state, active, ranked[chosen, place], norm, steps, from_image=False, hopeful=True)


def _strongest(state: State, these: Tensor, compared: int, worth: float) -> tuple[Tensor, Tensor]:
    """N×`compared` classes with the largest other logits at the images, and whether their margins are near the first's."""
    assert state.image_logits is not None  # the first round began at the images
    logits, labels = state.image_logits[these], state.labels[these][:, None]
    others = logits.scatter(1, labels, -torch.inf)
    ranked = others.topk(min(compared, logits.shape[1] - 1), dim=1)
    margins = logits.gather(1, labels) - ranked.values
    return ranked.indices, margins <= worth * margins[:, :1]


def _keep_if_across(calls: Calls, state: State, chosen: Tensor, offset: Tensor, norm: str) -> None:
    """Take these offsets where they are across and shorter; costs a forward pass, and is all a linear model needs."""
    offset = (state.images[chosen] + offset).clamp(*calls.limits) - state.images[chosen]
    shorter = offset_length(offset, norm) < state.best[chosen]  # the others need not be asked about
    if shorter.any():
        chosen, offset = chosen[shorter], offset[shorter]
        state.keep_shorter(chosen, offset, calls.logits(state.images[chosen] + offset), norm)
