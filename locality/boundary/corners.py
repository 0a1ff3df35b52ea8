"""Corners: nearest points where two facets of the boundary meet.

The region across a ReLU network's boundary may be a wedge, and its tip the nearest point. One tangent describes one facet
only: steps that follow it alternate between the facets and end a few percent too far out. So a step here takes the shortest
offset that satisfies the current tangent and, of the previous ones, the one it would violate most.

A previous tangent counts only while it does not lie above the margin at the current point. In a wedge the margin is convex,
and tangents of a convex function never lie above it; where the margin is concave, a previous tangent would exclude points
that are across.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from locality.boundary.tangent import tangent_point
from locality.model_calls import Calls, Limits
from locality.perturbation import length, margin, per_image
from locality.types import Norm

MAX_PREVIOUS = 3  # tangents kept, each as large as the images
OVERSHOOT = 1e-3  # of the margin at the image: how far beyond the boundary steps aim
CONVEXITY_TOLERANCE = 1e-4  # of the margin at the image: what counts as not above
STOP_COSINE = 0.999  # between the offset and the tangent's: the nearest point of a smooth facet, no corner
LENGTH_LIMIT = 1.5  # of the first length: tangents farther away are useless
MIN_STEEPNESS = 1e-20  # of a gradient: a smaller one has no direction
REGULA_FALSI_STEPS = 12


class Tangent(NamedTuple):
    """value + gradient · offset for N images; 0 where the boundary should be."""

    value: Tensor  # N, at the image itself
    gradient: Tensor  # N×C×H×W

    def at(self, offset: Tensor) -> Tensor:
        return self.value + (self.gradient * offset).flatten(1).sum(1)

    def steepness(self) -> Tensor:
        lengths: Tensor = self.gradient.flatten(1).norm(dim=1)
        return lengths.clamp_min(1e-30)

    def shifted(self, amount: Tensor) -> Tangent:
        return Tangent(self.value + amount, self.gradient)

    def rows(self, chosen: Tensor) -> Tangent:
        return Tangent(self.value[chosen], self.gradient[chosen])


def corner_search(calls: Calls, images: Tensor, labels: Tensor, points: Tensor, norm: Norm, steps: int = 8) -> Tensor:
    """Candidates from `points` on the boundary: the nearest point across within `steps` gradients, else the given point.

    Images whose points are the nearest of a smooth facet take one gradient.
    """
    nearest = points.clone()
    active = torch.arange(len(images), device=images.device)
    offset, previous = points - images, list[Tangent]()
    limit = LENGTH_LIMIT * length(offset, norm)
    shortest = length(offset, norm)
    scale = margin(calls.logits(images), labels).clamp_min(1e-6)
    for step in range(steps):
        logits, gradient = calls.gradient(images[active] + offset, margin, labels[active])
        value = margin(logits, labels[active])
        distance = length(offset, norm)
        better = (value < 0) & (distance < shortest[active])
        shortest[active] = torch.where(better, distance, shortest[active])
        nearest[active] = torch.where(per_image(better), images[active] + offset, nearest[active])
        current = Tangent(value - (gradient * offset).flatten(1).sum(1), gradient)
        target = _step(images[active], offset, value, current, previous, scale[active], norm, calls.limits)
        previous = [*previous[-MAX_PREVIOUS + 1 :], current]
        if step == 0:
            corner = torch.nn.functional.cosine_similarity(offset.flatten(1), target.flatten(1)) < STOP_COSINE
            active, target, previous = active[corner], target[corner], [current.rows(corner)]
            if len(active) == 0:
                break
        short = length(target, norm) < limit[active]
        offset = torch.where(per_image(short), target, nearest[active] - images[active])
    return nearest


def _step(
    images: Tensor,
    offset: Tensor,
    value: Tensor,
    current: Tangent,
    previous: list[Tangent],
    scale: Tensor,
    norm: Norm,
    limits: Limits,
) -> Tensor:
    """The shortest offset that satisfies the current tangent and the previous one it would violate most."""
    overshoot = OVERSHOOT * scale
    target = tangent_point(images, offset, value + overshoot, current.gradient, norm, limits)
    largest, worst = torch.zeros_like(value), current
    for tangent in previous:
        violation = tangent.shifted(overshoot).at(target) / tangent.steepness()
        convex = tangent.at(offset) <= value + CONVEXITY_TOLERANCE * scale
        counts = convex & (violation > largest) & (tangent.steepness() > MIN_STEEPNESS)
        largest = torch.where(counts, violation, largest)
        worst = Tangent(
            torch.where(counts, tangent.value, worst.value), torch.where(per_image(counts), tangent.gradient, worst.gradient)
        )
    chosen = torch.nonzero((largest > 0) & (current.steepness() > MIN_STEEPNESS))[:, 0]
    if len(chosen):
        first, second = current.shifted(overshoot).rows(chosen), worst.shifted(overshoot).rows(chosen)
        target[chosen] = both_tangents(images[chosen], first, second, norm, limits)
    return target


def both_tangents(images: Tensor, first: Tangent, second: Tangent, norm: Norm, limits: Limits = (0.0, 1.0)) -> Tensor:
    """The shortest offset within pixel limits at which neither tangent is above 0.

    By duality it is the longest of the offsets that satisfy a mixture of the two. For that mixture both tangents have the
    same value, unless its weights are 0 and 1; regula falsi with the Illinois rule finds the weight.

    >>> images = torch.full((1, 1, 1, 2), 0.5)
    >>> right, up = torch.tensor([[[[-1.0, 0.0]]]]), torch.tensor([[[[0.0, -1.0]]]])
    >>> offset = both_tangents(images, Tangent(torch.tensor([0.1]), right), Tangent(torch.tensor([0.2]), up), "l2")
    >>> [round(value, 3) for value in offset.flatten().tolist()]  # 0.1 to the right and 0.2 up
    [0.1, 0.2]
    """
    # At equal steepness the difference below compares lengths, whatever the margins' scale.
    first = Tangent(first.value / first.steepness(), first.gradient / per_image(first.steepness()))
    second = Tangent(second.value / second.steepness(), second.gradient / per_image(second.steepness()))

    def mixture(weight: Tensor) -> tuple[Tensor, Tensor]:
        value = (1 - weight) * first.value + weight * second.value
        gradient = per_image(1 - weight) * first.gradient + per_image(weight) * second.gradient
        offset = tangent_point(images, torch.zeros_like(images), value, gradient, norm, limits)
        return offset, second.at(offset) - first.at(offset)

    low, high = torch.zeros_like(first.value), torch.ones_like(first.value)  # weights of the second tangent
    offset, at_low = mixture(low)
    only_second, at_high = mixture(high)
    # Above 0 at the low end: the second tangent is violated and needs more weight; likewise at the other end.
    single = torch.where(per_image(at_low <= 0), offset, only_second)
    mixed = (at_low > 0) & (at_high < 0)
    last_side = torch.zeros_like(low)
    for _ in range(REGULA_FALSI_STEPS if mixed.any() else 0):
        weight = (low + (high - low) * at_low / (at_low - at_high)).nan_to_num(0.5).clamp(0, 1)
        offset, value = mixture(weight)
        rises = value > 0
        repeated = torch.where(rises, 1.0, -1.0) == last_side
        low, high = torch.where(rises, weight, low), torch.where(rises, high, weight)
        halved_low = torch.where(repeated, at_low / 2, at_low)
        halved_high = torch.where(repeated, at_high / 2, at_high)
        at_low, at_high = torch.where(rises, value, halved_low), torch.where(rises, halved_high, value)
        last_side = torch.where(rises, 1.0, -1.0)
    return torch.where(per_image(mixed), offset, single)
