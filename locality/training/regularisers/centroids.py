"""Regularisers of Centroid Nets: features towards their centroids, centroids of different classes apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locality.errors import ArgumentError, Problem
from locality.training.centroids import centroid_net_problems, centroid_network, centroids_at
from locality.training.regularisers.weighted import Weighted
from locality.training.settings import positive
from locality.training.step import LossValue, TrainingBatch

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class Pull(Weighted):
    """Mean squared distance of the clean images' features to the nearest centroid of their class (centre loss)."""

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        if value.clean is None:
            raise ArgumentError("loss", "one that makes a pass over clean images", type(batch.loss).__name__)
        own = centroids_at(batch)[batch.labels]  # N×k×D
        return (value.clean.features[:, None] - own).square().sum(2).amin(1).mean()

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return centroid_net_problems(recipe)


@dataclass(frozen=True)
class Push(Weighted):
    """Mean over centroids of different classes of max(0, Δ − ‖c_i − c_j‖)², Δ = 2ε·K/η.

    From Δ on, accepted images of different classes are at least 2ε apart (Theorem 8, corrected). K is the estimate of
    training with its gradient, so that a smaller K serves as well as a larger distance.
    """

    epsilon: float = 36 / 255
    power_steps: int = 1

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        eta = centroid_network(batch.network).centroid_head.eta
        centroids = centroids_at(batch)
        norm = batch.at(batch.weights).margin_norms(self.power_steps).max() / 2
        labels = torch.arange(len(centroids), device=centroids.device).repeat_interleave(centroids.shape[1])
        first, second = (labels[:, None] < labels).nonzero(as_tuple=True)
        flat = centroids.flatten(0, 1)
        squares = (flat[first] - flat[second]).square().sum(1)
        # Two centroids in one place have no direction to part in, and the root no gradient there.
        apart = squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        return (2 * self.epsilon * norm / eta - apart).clamp_min(0).square().mean()

    def problems(self) -> list[Problem]:
        return super().problems() + positive("epsilon", self.epsilon) + positive("power_steps", self.power_steps)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        problems = centroid_net_problems(recipe)
        if not problems and recipe.net.options.get("eta", math.inf) == 0:
            problems.append(Problem("", "needs an `eta` of the network above 0: without rejection there is no gap"))
        return problems
