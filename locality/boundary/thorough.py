"""`thorough`: several searches, the closest point wins; for when distance matters more than time."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from locality.boundary.bisect import bisect
from locality.boundary.corners import corner_search
from locality.boundary.fast import fast_search
from locality.model_calls import Calls
from locality.perturbation import length, margin, per_image
from locality.types import Norm

SETTLED, GAIN = 0.9995, 0.001  # later than `fast` is content
COMPARED = 7  # rival classes that the slow `fast` tries midway
ARMS = 4  # of a cross: directions at right angles, each tried both ways


def thorough_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    seeds: list[int],
    progress: Any,
    *,
    steps: int = 40,
    rivals: int = 3,
    restarts: int = 12,
) -> Tensor:
    """The closest of: a slow `fast`, one towards each of the strongest rivals, restarts from random places, corners.

    Every third restart begins around the best point so far, the others anywhere: they find what lies behind the image.
    """
    if steps < 8:
        raise ValueError(f"`steps` must be at least 8 for the thorough search, got {steps}")
    image_logits = calls.logits(images)
    best, shortest = images, images.new_full((len(images),), torch.inf)
    others = image_logits.scatter(1, labels[:, None], -torch.inf)
    strongest = others.topk(min(rivals, others.shape[1] - 1), dim=1).indices.T
    stages, done = 2 + len(strongest) + restarts, 0

    def keep_closer(points: Tensor) -> None:
        nonlocal best, shortest, done
        done += 1
        progress(done * len(images) // stages, len(images))
        logits = calls.logits(points)
        points = bisect(calls, images, points, labels, image_logits=image_logits, point_logits=logits)
        distance = torch.where(margin(logits, labels) < 0, length(points - images, norm), torch.inf)
        # Without a success yet, the latest iterate stands in.
        best = torch.where(per_image((distance < shortest) | shortest.isinf()), points, best)
        shortest = torch.minimum(distance, shortest)

    run = partial(fast_search, calls, images, labels, norm, seeds, _silent)
    slow = partial(run, steps=steps, gain=GAIN, settled=SETTLED)
    keep_closer(slow(max_gradients=4 * steps, compared=COMPARED))
    for rival in strongest:
        keep_closer(slow(max_gradients=max(100, 2 * steps), rivals=rival))
    for restart in range(restarts):
        around = best - images
        start = per_image(around.flatten(1).norm(dim=1)) * _directions(images, seeds, restart)
        if restart % 3 == 2:
            start = (around + start) * 1.5 / 2**0.5
        keep_closer(run(steps=steps // 4, max_gradients=max(100, steps), gain=0.005, start=start))
    keep_closer(corner_search(calls, images, labels, best, norm))
    return best


def _silent(done: int, total: int) -> None:
    """One search of several has nothing to say: only what all of them have done counts."""


def _directions(images: Tensor, seeds: list[int], number: int) -> Tensor:
    """A direction of length 1 for each image, the same in any company: the next end of its crosses' random arms."""
    size = images[0].numel()
    arms = min(ARMS, size)
    cross, end = divmod(number, 2 * arms)
    found = []
    for seed in seeds:
        drawn = torch.randn(size, arms, generator=torch.Generator().manual_seed((seed + cross) % 2**63))
        arm = torch.linalg.qr(drawn).Q[:, end // 2]
        found.append(arm if end % 2 == 0 else -arm)
    return torch.stack(found).view(images.shape).to(images)
