"""Where `fast` looks besides the way its rounds went: towards other classes than the one reached."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.fast.tangent_steps import AIM, State, one_round
from locality.model_calls import Calls
from locality.types import Norm

STEPS_TO_A_RIVAL = 8
MIDWAY = 0.6  # of the way to the best point, where rivals are ranked and tried: at the image it shows less which is nearest
HOPE = (1.6, 1.15)  # of the best distance: what the tangents of a first step towards a rival, and a second, may promise
WORTH = 5.0  # a rival whose margin midway is that much larger than the smallest one is hardly ever nearer


def try_rivals(calls: Calls, state: State, norm: Norm, compared: int, max_gradients: int) -> None:
    """Rounds towards the strongest rivals, from midway to the best point.

    One or two gradients mostly tell: a rival whose tangent promises nothing shorter is left.
    """
    these = torch.nonzero(torch.isfinite(state.best))[:, 0]
    if len(these) == 0:
        return
    ranked, margins = _strongest(calls, state, these, compared)
    for place in range(ranked.shape[1]):
        rival = ranked[:, place]
        chosen = (margins[:, place] <= WORTH * margins[:, 0].abs()) & (rival != state.reached[these])
        chosen &= state.spent[these] + STEPS_TO_A_RIVAL <= max_gradients
        if chosen.any():
            active = these[chosen]
            state.offset[active], state.aim[active] = MIDWAY * state.best_offset[active], AIM
            one_round(calls, state, active, rival[chosen], norm, STEPS_TO_A_RIVAL, from_image=False, hope=HOPE, bold=True)


def _strongest(calls: Calls, state: State, these: Tensor, compared: int) -> tuple[Tensor, Tensor]:
    """The classes with the largest other logits midway, the reached one and `compared` more, and their margins."""
    logits = calls.logits(state.images[these] + MIDWAY * state.best_offset[these])
    labels = state.labels[these, None]
    ranked = logits.scatter(1, labels, -torch.inf).topk(min(1 + compared, logits.shape[1] - 1), dim=1)
    return ranked.indices, logits.gather(1, labels) - ranked.values
