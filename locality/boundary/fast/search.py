"""The order in which `fast` does things: rounds of tangent steps, a final tangent step, rivals, a sphere walk."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.fast.rivals import STEPS_PER_RIVAL, try_rivals
from locality.boundary.fast.sphere_walk import sphere_walk
from locality.boundary.fast.state import State
from locality.boundary.fast.tangent_steps import final_tangent_step, tangent_round
from locality.boundary.search import SearchContext
from locality.errors import ArgumentError
from locality.perturbation import per_image

LATER_ROUND = 2 / 3  # of the first round's steps: later rounds begin near a solution
RESTART_FACTOR = 1.3  # of the last offset: where an image without a point across starts its next round


def fast_search(
    context: SearchContext,
    *,
    steps: int = 12,
    max_gradients: int = 100,
    converged_cosine: float = 0.95,
    stop_cosine: float = 0.97,
    min_improvement: float = 0.01,
    max_rivals: int = 3,
    rival: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Candidates after a round of `steps` gradients and shorter later rounds, at most `max_gradients` per image in total.

    `stop_cosine`: an image leaves a round at once if its cosine to the tangent is larger. `converged_cosine`: it gets no
    further round if the cosine is larger after a round. `min_improvement`: nor if a round shortened its best distance by
    less than this share. `max_rivals`: how many of the strongest rival classes are tried besides the one reached; gradients
    for one rival are reserved, and none is tried if that leaves too few for a round.
    `rival` (N class indices) restricts each image to one rival class; `start` is a first offset from the images.
    """
    if not 2 <= steps <= max_gradients:
        raise ArgumentError("steps", f"between 2 and `max_gradients` ({max_gradients})", steps)
    calls, images = context.calls, context.images
    state = State(context, start, stop_cosine)
    unrestricted = rival is None and start is None
    every_image = torch.arange(len(images), device=images.device)
    later_steps = max(2, round(LATER_ROUND * steps))

    def run_rounds(active: Tensor, steps: int, budget: int, from_image: bool = False) -> None:
        """Rounds from the best points so far, as long as they improve and the budget of gradients lasts."""
        while len(active := active[state.gradients[active] + steps <= budget]):
            active_rival = None if rival is None else rival[active]
            tangent_round(state, active, active_rival, steps, from_image=from_image)
            from_image, steps = False, later_steps
            improvement = (state.previous_distance[active] - state.best_distance[active]) / state.best_distance[active]
            state.previous_distance[active] = state.best_distance[active]
            found = torch.isfinite(state.best_distance[active])
            converged = state.cosine_to_tangent[active] > converged_cosine
            finished = found & (converged | ~(improvement >= min_improvement))  # an offset of 0 improves by nan
            # Images with a point across continue from their best one, the others from beyond their last offset.
            beyond = RESTART_FACTOR * state.offset[active]
            restart = torch.where(per_image(found), state.best_offset[active], beyond)
            state.offset[active] = (images[active] + restart).clamp(*calls.limits) - images[active]
            active = active[~finished]
            state.images_done = max(state.images_done, len(images) - len(active))
            context.progress(state.images_done, len(images))

    with_rivals = unrestricted and max_rivals > 0 and max_gradients - STEPS_PER_RIVAL >= steps
    budget = max_gradients - STEPS_PER_RIVAL if with_rivals else max_gradients
    run_rounds(every_image, steps, budget, from_image=start is None)
    final_tangent_step(state, max_gradients)
    if with_rivals:
        try_rivals(state, max_rivals, max_gradients)
    if unrestricted:
        run_rounds(sphere_walk(state, max_gradients), later_steps, max_gradients)
    found = torch.isfinite(state.best_distance)
    return images + torch.where(per_image(found), state.best_offset, state.offset)
