"""Rounds towards other classes than the one reached, from a point on the way to the best one."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.fast.state import FIRST_OVERSHOOT, State
from locality.boundary.fast.tangent_steps import tangent_round

STEPS_PER_RIVAL = 8
START_SHARE = 0.6  # of the best offset: rivals are ranked and tried there, where the ranking is better than at the image
LENGTH_LIMITS = (1.6, 1.15)  # for the tangents of the first and the second step towards a rival
MAX_MARGIN_RATIO = 5.0  # a rival with a margin this many times the smallest one is almost never nearer


def try_rivals(state: State, max_rivals: int, max_gradients: int) -> None:
    """Rounds towards the strongest rivals. Most need one or two gradients: `LENGTH_LIMITS` rejects them early."""
    found = torch.nonzero(torch.isfinite(state.best_distance))[:, 0]
    if len(found) == 0:
        return
    rivals, margins = _strongest_rivals(state, found, max_rivals)
    for rank in range(rivals.shape[1]):
        rival = rivals[:, rank]
        tried = (margins[:, rank] <= MAX_MARGIN_RATIO * margins[:, 0].abs()) & (rival != state.best_class[found])
        tried &= state.gradients[found] + STEPS_PER_RIVAL <= max_gradients
        if tried.any():
            active = found[tried]
            state.offset[active] = START_SHARE * state.best_offset[active]
            state.overshoot[active] = FIRST_OVERSHOOT
            tangent_round(
                state,
                active,
                rival[tried],
                STEPS_PER_RIVAL,
                from_image=False,
                length_limits=LENGTH_LIMITS,
                full_steps=True,
            )


def _strongest_rivals(state: State, chosen: Tensor, max_rivals: int) -> tuple[Tensor, Tensor]:
    """The classes with the largest other logits, the reached one and `max_rivals` more, and their margins."""
    logits = state.context.calls.logits(state.images[chosen] + START_SHARE * state.best_offset[chosen])
    labels = state.labels[chosen, None]
    ranked = logits.scatter(1, labels, -torch.inf).topk(min(1 + max_rivals, logits.shape[1] - 1), dim=1)
    return ranked.indices, logits.gather(1, labels) - ranked.values
