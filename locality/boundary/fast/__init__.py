"""`fast`, the default search: some dozen gradients an image.

The nearest point across the boundary solves: minimise ‖δ‖ subject to margin(x + δ) = 0 and x + δ in [0, 1]. Each step takes
the margin's gradient g at the current point, replaces the margin by its tangent there, and solves that simpler problem
exactly, pixel limits included: u = clip(x − λg) with the one λ that puts u on the tangent (sequential quadratic programming
with the identity for a Hessian). The iterate moves towards u by a step that falls as a cosine. What makes it work on
networks:

- The tangent is aimed a little beyond the boundary, by a share of the first margin that grows while the iterate stays inside
  and shrinks once it is across. Robust models bend away from the tangent, and only points across count.
- g is the gradient of f_y − logsumexp(β·others)/β: at first, with β = 1, no rival class hides another; β grows until only
  the nearest counts, which is the true margin.
- At a nearest point δ and u agree. Images for which they do leave the round; those for which they do not get further rounds
  from their best point, for as long as a round gains something.
- A leap that lands far across, where gradients say nothing, comes back along its line.
- Which class is nearest shows on the way rather than at the image: rivals are ranked and tried from midway.
- Where the boundary is much nearer than the first tangent promised and the gradient has turned on the way, as happens in
  transformers, tangents may have led to the wrong part of it: a walk from outside looks for a nearer one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locality.boundary.fast.rivals import STEPS_TO_A_RIVAL, try_rivals
from locality.boundary.fast.sphere_walk import walk
from locality.boundary.fast.tangent_steps import State, one_round, sharpen
from locality.model_calls import Calls
from locality.perturbation import per_image
from locality.types import Norm

LATER_ROUND = 2 / 3  # of the first one's steps: later ones begin near a solution


def fast_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    seeds: list[int],
    progress: Any,
    *,
    steps: int = 12,
    max_gradients: int = 100,
    aligned: float = 0.95,
    settled: float = 0.97,
    gain: float = 0.01,
    compared: int = 3,
    rivals: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Candidates after a round of `steps` gradients and shorter ones; a hard image may take `max_gradients`, all in all.

    An image is finished when, after a round, the cosine between δ and u exceeds `aligned`, or when a round shortens δ by
    less than the share `gain`; a cosine above `settled` ends the round itself for this image. Of the strongest rival classes
    at most `compared` are tried besides the one reached. For one of them gradients are kept; where that leaves too few for a
    round, none is tried. `rivals` names the class to reach for each image, where only one is wanted; `start` a first
    displacement.
    """
    _check_steps(steps, max_gradients)
    state = State(images, labels, seeds, start, calls.limits, settled)
    free = rivals is None and start is None
    everyone = torch.arange(len(images), device=images.device)
    later = max(2, round(LATER_ROUND * steps))

    def rounds(active: Tensor, length: int, allowed: int, from_image: bool = False) -> None:
        """Rounds from the best point so far, for as long as they gain something and the gradients allowed last."""
        while len(active := active[state.spent[active] + length <= allowed]):
            rival = None if rivals is None else rivals[active]
            one_round(calls, state, active, rival, norm, length, from_image)
            from_image, length = False, later
            gained = (state.before[active] - state.best[active]) / state.best[active]
            state.before[active] = state.best[active]
            found = torch.isfinite(state.best[active])
            finished = found & ((state.agreement[active] > aligned) | ~(gained >= gain))  # an offset of 0 gains nan
            # Those found go on from their best point, the others from beyond where they are.
            again = torch.where(per_image(found), state.best_offset[active], 1.3 * state.offset[active])
            state.offset[active] = (images[active] + again).clamp(*calls.limits) - images[active]
            active = active[~finished]
            state.finished = max(state.finished, len(images) - len(active))
            progress(state.finished, len(images))

    look = free and compared > 0 and max_gradients - STEPS_TO_A_RIVAL >= steps
    rounds(everyone, steps, max_gradients - STEPS_TO_A_RIVAL if look else max_gradients, from_image=start is None)
    sharpen(calls, state, norm, max_gradients)
    if look:
        try_rivals(calls, state, norm, compared, max_gradients)
    if free:
        rounds(walk(calls, state, norm, max_gradients), later, max_gradients)
    found = torch.isfinite(state.best)
    return images + torch.where(per_image(found), state.best_offset, state.offset)


def _check_steps(steps: int, max_gradients: int) -> None:
    if not 2 <= steps <= max_gradients:
        raise ValueError(f"`steps` must lie between 2 and `max_gradients`, got {steps} and {max_gradients}")
