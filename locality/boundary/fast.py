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
- Where the gradient has turned between the image and the point found, or the rounds got stuck, another class may lie nearer:
  a walk inside a smaller ball looks for it. Where it finds nothing and the way was far shorter than the first tangent said,
  as in transformers, or stuck, the search begins once more, along the first gradient, at the distance known then.
- Where the way was clearly shorter than the first tangent said, the strongest rivals are tried from midway.
- For all others the tangents at the image say which class is nearest; one that is clearly nearer is tried.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locality.boundary.bisect import rows
from locality.boundary.elsewhere import STEPS_AGAIN, STEPS_CLOSER, look_closer, try_again, try_each_rival, try_nearer_rivals
from locality.boundary.rounds import State, one_round
from locality.model_calls import Calls

TURNED = 0.7  # the cosine between the gradients at the image and at the best point, below which another way may be nearer
MUCH_SHORTER = 0.3  # a way that long, in units of what the first tangent said: the first gradient's length was no guide
SHORTER = 0.6  # likewise: the tangents at the image do not say which class is nearest
STUCK = 0.8  # an agreement that no round could raise


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
    settled: float = 0.975,
    gain: float = 0.005,
    compared: int = 5,
    rivals: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Candidates after rounds of `steps` gradients; a hard image may take `max_gradients`, all in all.

    An image is finished when, after a round, the cosine between δ and u exceeds `aligned`, or when a round shortens δ by
    less than the share `gain`; a cosine above `settled` ends the round itself for this image. Of the strongest `compared`
    rival classes one may lie nearer, by the tangents at the image, than the class reached: where it does clearly, it gets a
    round of its own. For this and the other looks elsewhere some 30 gradients are kept; where `max_gradients` is less than
    twice that, they are left out. `rivals` names the class to reach for each image, where only one is wanted;
    `start` a first displacement.
    """
    _check_steps(steps, max_gradients)
    state = State(images, labels, seeds, start, calls.limits, settled)
    free = rivals is None and start is None
    everyone = torch.arange(len(images), device=images.device)

    def rounds(active: Tensor, allowed: int, from_image: bool) -> None:
        """Rounds from the best point so far, for as long as they gain something."""
        while len(active) and allowed >= steps:
            rival = None if rivals is None else rivals[active]
            one_round(calls, state, active, rival, norm, steps, from_image)
            allowed, from_image = allowed - steps, False
            gained = (state.before[active] - state.best[active]) / state.best[active]
            state.before[active] = state.best[active]
            found = torch.isfinite(state.best[active])
            finished = found & ((state.agreement[active] > aligned) | ~(gained >= gain))  # an offset of 0 gains nan
            # Those found go on from their best point, the others from beyond where they are.
            again = torch.where(rows(found), state.best_offset[active], 1.3 * state.offset[active])
            state.offset[active] = (images[active] + again).clamp(*calls.limits) - images[active]
            active = active[~finished]
            state.finished = max(state.finished, len(images) - len(active))
            progress(state.finished, len(images))

    def may(chosen: Tensor, cost: int) -> Tensor:
        """Those of the chosen that are allowed so many gradients more."""
        return everyone[chosen & (state.spent + cost <= max_gradients)]

    kept = STEPS_CLOSER + STEPS_AGAIN  # for looking elsewhere, where that leaves enough
    look = free and max_gradients >= 2 * kept
    rounds(everyone, max_gradients - kept if look else max_gradients, from_image=start is None)
    if look:
        found = torch.isfinite(state.best)
        turned = found & ((state.turn < TURNED) | (state.agreement < STUCK))
        misled = turned & ((state.best < MUCH_SHORTER * state.leap) | (state.agreement < STUCK))
        closer = look_closer(calls, state, may(turned, STEPS_CLOSER + steps), norm)
        rounds(closer, steps, from_image=False)
        misled[closer] = False
        try_again(calls, state, may(misled, STEPS_AGAIN), norm)
        if compared > 0:
            bent = found & (state.best < SHORTER * state.leap)
            try_each_rival(calls, state, everyone[bent], norm, steps, compared, max_gradients)
            misled[closer] = True  # these, too, have had their second chance
            try_nearer_rivals(calls, state, may(~misled & ~bent, compared + steps), norm, steps, compared)
    found = torch.isfinite(state.best)
    return images + torch.where(rows(found), state.best_offset, state.offset)


def _check_steps(steps: int, max_gradients: int) -> None:
    if not 2 <= steps <= max_gradients:
        raise ValueError(f"`steps` must lie between 2 and `max_gradients`, got {steps} and {max_gradients}")
