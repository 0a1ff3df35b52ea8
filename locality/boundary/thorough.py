"""`thorough`: several searches, the closest point wins; for when distance matters more than time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from locality.boundary.bisect import bisect, margin, rows
from locality.boundary.fast import fast_search, offset_length
from locality.model_calls import Calls


def thorough_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: str,
    seeds: list[int],
    progress: Any,
    *,
    steps: int = 40,
    rivals: int = 3,
    restarts: int = 8,
) -> Tensor:
    """The closest of: a slow `fast`, one towards each of the strongest rival classes, and restarts from random places."""
    best = fast_search(calls, images, labels, norm, seeds, progress, steps=steps, max_gradients=3 * steps, gain=0.001)
    best, length = _on_boundary(calls, images, labels, best, norm)
    logits = calls.logits(images).scatter(1, labels[:, None], -torch.inf)
    ranked = logits.topk(min(rivals, logits.shape[1] - 1), dim=1).indices
    for place in range(ranked.shape[1]):
        found = fast_search(calls, images, labels, norm, seeds, progress, steps=steps, rivals=ranked[:, place])
        best, length = _closer(calls, images, labels, best, length, found, norm)
    for restart in range(restarts):
        # Every other one starts anywhere, which finds what lies behind the image in few dimensions.
        start = _scattered(best - images, [seed + restart + 1 for seed in seeds], keep=(restart + 1) % 2)
        found = fast_search(calls, images, labels, norm, seeds, progress, steps=steps // 2, start=start)
        best, length = _closer(calls, images, labels, best, length, found, norm)
    return best


def _on_boundary(calls: Calls, images: Tensor, labels: Tensor, points: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """The points, moved onto the boundary where they are across, and their distance; inf where they are not."""
    across = margin(calls.logits(points), labels) < 0
    points = points.clone()
    if across.any():
        points[across] = bisect(calls, images[across], points[across], labels[across])
    return points, torch.where(across, offset_length(points - images, norm), torch.inf)


def _closer(
    calls: Calls, images: Tensor, labels: Tensor, best: Tensor, length: Tensor, found: Tensor, norm: str
) -> tuple[Tensor, Tensor]:
    points, distance = _on_boundary(calls, images, labels, found, norm)
    better = distance < length
    return torch.where(rows(better), points, best), torch.minimum(distance, length)


def _scattered(offset: Tensor, seeds: list[int], keep: float) -> Tensor:
    """Offsets half as long again, in directions that are random but for the share `keep`; the same in any company."""
    noise = torch.stack(
        [torch.randn(offset.shape[1:], generator=torch.Generator().manual_seed(seed % 2**63)) for seed in seeds]
    ).to(offset)
    scale = offset.flatten(1).norm(dim=1) / noise.flatten(1).norm(dim=1)
    scattered: Tensor = 1.5 * (keep * offset + rows(scale) * noise) / (1 + keep) ** 0.5
    return scattered
