"""`thorough`: several searches, the closest point wins; for when distance matters more than time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from locality.boundary.bisect import bisect
from locality.boundary.corners import corner_search
from locality.boundary.fast import fast_search
from locality.boundary.search import SearchContext
from locality.errors import ArgumentError
from locality.perturbation import length, margin, per_image
from locality.progress import no_progress

STOP_COSINE, MIN_IMPROVEMENT = 0.9995, 0.001  # stricter than the defaults of `fast`
MAX_RIVALS = 7  # of the first search
RESTART_IMPROVEMENT = 0.005  # `min_improvement` of the restarts
RESTART_LENGTH = 1.5  # of the best distance, for restarts around the best point
ORTHOGONAL_DIRECTIONS = 4  # random directions at right angles; each is tried both ways before others are drawn


def thorough_search(context: SearchContext, *, steps: int = 40, max_rivals: int = 3, restarts: int = 12) -> Tensor:
    """The closest of: `fast` with more steps, one per strongest rival class, random restarts, and corners.

    Every third restart begins around the best point so far. The others begin anywhere: they find what lies behind the image.
    """
    if steps < 8:
        raise ArgumentError("steps", "at least 8 for search='thorough'", steps)
    calls, images, labels, norm = context.calls, context.images, context.labels, context.norm
    image_logits = calls.logits(images)
    best, shortest = images, images.new_full((len(images),), torch.inf)
    others = image_logits.scatter(1, labels[:, None], -torch.inf)
    strongest = others.topk(min(max_rivals, others.shape[1] - 1), dim=1).indices.T
    stages, done = 2 + len(strongest) + restarts, 0

    def keep_closer(points: Tensor) -> None:
        nonlocal best, shortest, done
        done += 1
        context.progress(done * len(images) // stages, len(images))
        logits = calls.logits(points)
        points = bisect(calls, images, points, labels, image_logits=image_logits, point_logits=logits)
        distance = torch.where(margin(logits, labels) < 0, length(points - images, norm), torch.inf)
        # Without a success so far, the latest iterate is used.
        best = torch.where(per_image((distance < shortest) | shortest.isinf()), points, best)
        shortest = torch.minimum(distance, shortest)

    run = partial(fast_search, replace(context, progress=no_progress))  # only finished stages are reported
    slow = partial(run, steps=steps, min_improvement=MIN_IMPROVEMENT, stop_cosine=STOP_COSINE)
    keep_closer(slow(max_gradients=4 * steps, max_rivals=MAX_RIVALS))
    for rival in strongest:
        keep_closer(slow(max_gradients=max(100, 2 * steps), rival=rival))
    for restart in range(restarts):
        around = best - images
        start = per_image(around.flatten(1).norm(dim=1)) * _directions(images, context.seeds, restart)
        if restart % 3 == 2:
            start = (around + start) * RESTART_LENGTH / 2**0.5
        budget = max(100, steps)
        keep_closer(run(steps=steps // 4, max_gradients=budget, min_improvement=RESTART_IMPROVEMENT, start=start))
    keep_closer(corner_search(calls, images, labels, best, norm))
    return best


def _directions(images: Tensor, seeds: list[int], number: int) -> Tensor:
    """One random direction of length 1 per image, from its seed: number 2k + 1 is the opposite of number 2k."""
    size = images[0].numel()
    count = min(ORTHOGONAL_DIRECTIONS, size)
    draw, index = divmod(number, 2 * count)
    directions = []
    for seed in seeds:
        normal = torch.randn(size, count, generator=torch.Generator().manual_seed((seed + draw) % 2**63))
        direction = torch.linalg.qr(normal).Q[:, index // 2]
        directions.append(direction if index % 2 == 0 else -direction)
    return torch.stack(directions).view(images.shape).to(images)
