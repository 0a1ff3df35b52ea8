"""Corners: nearest points where two facets of the boundary meet.

The piece across a ReLU network's boundary may be wedge-shaped, and the nearest point its tip. One tangent knows one facet
only: steps that follow it fall on the one and on the other in turn and end a few percent too far out. So a step here takes
the shortest offset that satisfies the tangent at hand and, of those met just before, the one that it would violate most.

An older tangent counts only as long as it does not lie above the margin at the current point. A wedge is where the margin is
convex, and the tangents of a convex function never do; where the margin bends the other way, an older tangent would forbid
points that are across.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from locality.boundary.tangent import tangent_point
from locality.model_calls import Calls, Limits
from locality.perturbation import length, margin, per_image
from locality.types import Norm

KEPT = 3  # older tangents, each as large as the images
BEYOND = 1e-3  # of the margin at the image: how far beyond the boundary steps aim, so that they come to lie across
CONVEX = 1e-4  # of the margin at the image: what counts as not above
SOLVED = 0.999  # cosine between the offset and the tangent's: a nearest point of a smooth piece, no corner
LEAP = 1.5  # of the first length: farther away the tangents say nothing
FLAT = 1e-20  # of a gradient's length: it says nothing
ROUNDS = 12


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
    """Candidates from `points` on the boundary: the nearest across that `steps` gradients met, else the points given.

    Images whose points are nearest on a smooth piece take one gradient.
    """
    found = points.clone()
    active = torch.arange(len(images), device=images.device)
    offset, older = points - images, list[Tangent]()
    limit = LEAP * length(offset, norm)
    shortest = length(offset, norm)
    scale = margin(calls.logits(images), labels).clamp_min(1e-6)
    for step in range(steps):
        logits, gradient = calls.gradient(images[active] + offset, margin, labels[active])
        value = margin(logits, labels[active])
        distance = length(offset, norm)
        better = (value < 0) & (distance < shortest[active])
        shortest[active] = torch.where(better, distance, shortest[active])
        found[active] = torch.where(per_image(better), images[active] + offset, found[active])
        here = Tangent(value - (gradient * offset).flatten(1).sum(1), gradient)
        wanted = _step(images[active], offset, value, here, older, scale[active], norm, calls.limits)
        older = [*older[-KEPT + 1 :], here]
        if step == 0:
            rough = torch.nn.functional.cosine_similarity(offset.flatten(1), wanted.flatten(1)) < SOLVED
            active, wanted, older = active[rough], wanted[rough], [here.rows(rough)]
            if len(active) == 0:
                break
        near = length(wanted, norm) < limit[active]
        offset = torch.where(per_image(near), wanted, found[active] - images[active])
    return found


def _step(
    images: Tensor,
    offset: Tensor,
    value: Tensor,
    here: Tangent,
    older: list[Tangent],
    scale: Tensor,
    norm: Norm,
    limits: Limits,
) -> Tensor:
    """The shortest offset that satisfies the tangent here and the older one it would violate most."""
    aim = BEYOND * scale
    wanted = tangent_point(images, offset, value + aim, here.gradient, norm, limits)
    most, worst = torch.zeros_like(value), here
    for tangent in older:
        violated = tangent.shifted(aim).at(wanted) / tangent.steepness()
        counts = (tangent.at(offset) <= value + CONVEX * scale) & (violated > most) & (tangent.steepness() > FLAT)
        most = torch.where(counts, violated, most)
        worst = Tangent(
            torch.where(counts, tangent.value, worst.value), torch.where(per_image(counts), tangent.gradient, worst.gradient)
        )
    chosen = torch.nonzero((most > 0) & (here.steepness() > FLAT))[:, 0]
    if len(chosen):
        first, second = here.shifted(aim).rows(chosen), worst.shifted(aim).rows(chosen)
        wanted[chosen] = both_tangents(images[chosen], first, second, norm, limits)
    return wanted


def both_tangents(images: Tensor, first: Tangent, second: Tangent, norm: Norm, limits: Limits = (0.0, 1.0)) -> Tensor:
    """The shortest offset, pixel limits included, at which neither tangent is above 0.

    Satisfying both is harder than satisfying any mixture of them, and for the hardest mixture it is the same (duality).
    There the two are equal, unless one alone is the hardest; regula falsi with the Illinois rule finds the weight.

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
    # Above 0 at the low end: the second tangent is violated and wants more weight; likewise at the other end.
    alone = torch.where(per_image(at_low <= 0), offset, only_second)
    mixed = (at_low > 0) & (at_high < 0)
    last_side = torch.zeros_like(low)
    for _ in range(ROUNDS if mixed.any() else 0):
        weight = (low + (high - low) * at_low / (at_low - at_high)).nan_to_num(0.5).clamp(0, 1)
        offset, value = mixture(weight)
        rises = value > 0
        repeated = torch.where(rises, 1.0, -1.0) == last_side
        low, high = torch.where(rises, weight, low), torch.where(rises, high, weight)
        halved_low = torch.where(repeated, at_low / 2, at_low)
        halved_high = torch.where(repeated, at_high / 2, at_high)
        at_low, at_high = torch.where(rises, value, halved_low), torch.where(rises, halved_high, value)
        last_side = torch.where(rises, 1.0, -1.0)
    return torch.where(per_image(mixed), offset, alone)
