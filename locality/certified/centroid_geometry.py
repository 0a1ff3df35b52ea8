"""The regions in which a Centroid Net decides, as balls in the space of its features, and how far a point is from them.

For centroids c_i, c_j at distance D and a ratio ρ, the points with ‖z − c_j‖ ≤ ρ·‖z − c_i‖ form a ball of Apollonius if
ρ < 1, a half-space if ρ = 1 and the outside of a ball if ρ > 1. In all three cases the signed distance of z to them is
(‖z − c_j‖² − ρ²‖z − c_i‖²)/(ρD + ‖(z − c_j) − ρ²(z − c_i)‖), which has no cancellation for ρ near 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.operator_norms import gamma


def accepting_ball(own: Tensor, other: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """Centre and radius of the ball in which ‖z − own‖ ≤ ρ·‖z − other‖, ρ < 1: (c_i − ρ²c_j)/(1 − ρ²) and ρD/(1 − ρ²).

    >>> accepting_ball(torch.tensor([0.0]), torch.tensor([1.0]), ratio=1 / 3)  # from −1/2 to 1/4
    (tensor([-0.1250]), tensor(0.3750))
    """
    rest = 1 - ratio**2
    return (own - ratio**2 * other) / rest, ratio * (own - other).norm(dim=-1) / rest


def smallest_distance(centroids: Tensor) -> float:
    """d_min, the smallest distance of two centroids of different classes; centroids are K×k×D.

    >>> smallest_distance(torch.tensor([[[0.0], [5.0]], [[1.0], [9.0]]]))
    1.0
    """
    classes, per_class = centroids.shape[:2]
    flat = centroids.detach().double().flatten(0, 1)
    labels = torch.arange(classes).repeat_interleave(per_class)
    apart = (flat[:, None] - flat[None]).norm(dim=2)
    return float(apart[labels[:, None] != labels[None]].min())


def region_distances(features: Tensor, centroids: Tensor, classes: Tensor, ratio: float) -> Tensor:
    """N×j×i lower bounds, with rounding, on the distances to where centroid j is ρ times as far as centroid i, or nearer.

    i runs over the k centroids of the image's class, j over all K·k; those of the class itself are at infinity. All tensors
    are float64. Where the point is inside the region, the value is negative.
    """
    own = features[:, None, None] - centroids[classes][:, None]  # N×1×i×D
    others = (features[:, None] - centroids.flatten(0, 1))[:, :, None]  # N×j×1×D
    to_own, to_others = own.norm(dim=3), others.norm(dim=3)
    between = (centroids.flatten(0, 1)[:, None] - centroids[classes][:, None]).norm(dim=3)  # N×j×i
    square = ratio**2
    error = gamma(features.shape[1] + 16)
    above = to_others.square() - square * to_own.square()
    above = above - 4 * error * (to_others.square() + square * to_own.square())
    below = ratio * between + (others - square * own).norm(dim=3)
    below = below + 4 * error * (below + to_others + square * to_own)
    # Both are 0 where z and the two centroids coincide.
    distances = torch.where(above > 0, above / below, torch.where(above < 0, above / below.clamp_min(1e-300), 0.0))
    labels = torch.arange(len(centroids)).repeat_interleave(centroids.shape[1])
    return torch.where((labels == classes[:, None])[:, :, None], math.inf, distances)


def latent_radii(features: Tensor, centroids: Tensor, classes: Tensor, ratio: float) -> tuple[Tensor, Tensor, Tensor]:
    """N lower bounds on the distances that features can move, the class being that of the nearest centroid.

    Within the first, the nearest centroid is of the same class. Within the second, no other class is accepted, but the
    network may abstain. Within the third, the class is accepted, too. Rounding of the distances is included: a computed
    distance is wrong by a relative `error` at most, which acts as another ratio.
    """
    error = 8 * gamma(features.shape[1] + 16)
    same = region_distances(features, centroids, classes, 1 + error)
    other = region_distances(features, centroids, classes, ratio * (1 + error))
    no_other = other.amax(2).amin(1)  # another class is accepted in the intersection over i
    if ratio == 0:
        return same.amax(2).amin(1), no_other, torch.zeros_like(no_other)
    kept = region_distances(features, centroids, classes, (1 + error) / ratio)
    return same.amax(2).amin(1), no_other, kept.amin(1).amax(1)  # one centroid of the class accepts it
