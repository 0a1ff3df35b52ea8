"""Where `fast` looks besides the way its rounds went: towards other classes than the one reached."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.rounds import AIM, State, one_round
from locality.model_calls import Calls

STEPS_TO_A_RIVAL = 8
MIDWAY = 0.6  # of the way to the best point, where rivals are compared: their tangents at the image say less
# Of the best distance: what the tangents of a first step towards a rival, and a second, may promise.
HOPE, HOPE_CURVED = (1.4, 1.05), (1.6, 1.25)
# A rival whose margin at the image is that much larger than the first one's is hardly ever nearer.
WORTH, WORTH_CURVED = 3.0, 4.0


def try_rivals(calls: Calls, state: State, norm: str, compared: int, max_gradients: int) -> None:
    """Rounds towards the strongest rivals, from midway to the best point.

    One or two gradients mostly tell: a rival whose tangent promises nothing shorter is left. Where the margin is curved,
    tangents promise less than there is.
    """
    ranked, margins = _strongest(state, compared)
    for curved, worth, hope in ((False, WORTH, HOPE), (True, WORTH_CURVED, HOPE_CURVED)):
        these = torch.nonzero(state.curved == curved)[:, 0]
        for place in range(ranked.shape[1] if len(these) else 0):
            rival = ranked[these, place]
            chosen = (margins[these, place] <= worth * margins[these, 0]) & (rival != state.reached[these])
            chosen &= state.spent[these] + STEPS_TO_A_RIVAL <= max_gradients
            if chosen.any():
                active = these[chosen]
                state.offset[active], state.aim[active] = MIDWAY * state.best_offset[active], AIM
                one_round(
                    calls, state, active, rival[chosen], norm, STEPS_TO_A_RIVAL, from_image=False, hope=hope, bold=True
                )


def _strongest(state: State, compared: int) -> tuple[Tensor, Tensor]:
    """N×`compared`: the classes with the largest other logits at the images, and their margins."""
    assert state.image_logits is not None  # the first round began at the images
    labels = state.labels[:, None]
    others = state.image_logits.scatter(1, labels, -torch.inf)
    ranked = others.topk(min(compared, others.shape[1] - 1), dim=1)
    return ranked.indices, state.image_logits.gather(1, labels) - ranked.values
