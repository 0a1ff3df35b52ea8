"""Where `fast` looks besides the way its rounds went: towards other classes."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.rounds import AIM, State, one_round, rival_margin
from locality.boundary.tangent import offset_length, tangent_point
from locality.model_calls import Calls

STEPS_TO_A_RIVAL = 8
HOPE = (1.4, 1.15)  # of the best distance: what the tangents of a first step towards a rival, and a second, may promise
MIDWAY = 0.7  # of the way to the best point, where other rivals are compared
WORTH_A_ROUND = 4.0  # like WORTH_COMPARING, where the margins at the image say less
WORTH_COMPARING = 1.5  # a rival whose margin is that much larger than the first one's is hardly ever nearer
JUST_BEYOND = 1.001  # of a tangent's length
UNREACHED = 0.01  # share of a rival's margin that is left at its tangent's nearest point
NEARER = (
    1.1  # of the best distance: a tangent at the image that is shorter is worth a round, the way is mostly shorter still
)


def try_nearer_rivals(calls: Calls, state: State, these: Tensor, norm: str, compared: int) -> None:
    """A round towards the rival whose tangent at the image is the nearest, where it promises more than was found."""
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
        # Not where all pixels are at their limits.
        reaches = value + (gradient * offset).flatten(1).sum(1) <= UNREACHED * value
        closest = reaches & (offset_length(offset, norm) < length[chosen].amin(1))
        length[chosen, place] = torch.where(reaches, offset_length(offset, norm), torch.inf)
        nearest[chosen[closest]] = offset[closest]
        _keep_if_across(calls, state, these[chosen], JUST_BEYOND * offset, norm)
    nearest_length, place_of = length.min(dim=1)
    rival = ranked.gather(1, place_of[:, None])[:, 0]
    promising = (nearest_length < NEARER * state.best[these]) & (rival != state.reached[these])
    if promising.any():
        active = these[promising]
        state.offset[active], state.aim[active] = nearest[promising], AIM
        one_round(calls, state, active, rival[promising], norm, STEPS_TO_A_RIVAL, from_image=False)


def try_each_rival(calls: Calls, state: State, these: Tensor, norm: str, compared: int, max_gradients: int) -> None:
    """Rounds towards the strongest rivals, from midway to the best point.

    Where the way is far shorter than the tangent at the image said, those of its rivals there say as little. From midway one
    gradient mostly tells: a rival whose tangent promises nothing shorter is left.
    """
    if len(these) == 0:
        return
    ranked, worth = _strongest(state, these, compared, WORTH_A_ROUND)
    for place in range(ranked.shape[1]):
        allowed = state.spent[these] + STEPS_TO_A_RIVAL <= max_gradients
        chosen = worth[:, place] & (ranked[:, place] != state.reached[these]) & allowed
        if chosen.any():
            active = these[chosen]
            state.offset[active] = MIDWAY * state.best_offset[active]
            state.aim[active] = AIM
            one_round(
                calls, state, active, ranked[chosen, place], norm, STEPS_TO_A_RIVAL, from_image=False, hope=HOPE, bold=True
            )


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
