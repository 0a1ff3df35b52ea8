"""Adversarial weight perturbation (Wu et al. 2020): the loss at weights that were moved to raise it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locality.errors import Problem
from locality.training.linear_head import linear_head_problems
from locality.training.network import Weights
from locality.training.schedules import Moment
from locality.training.settings import at_least_0, from_0_to_1
from locality.training.step import Loss, TrainingBatch
from locality.training.weight_shifts.uphill import uphill

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class Awp:
    """Every matrix and kernel w moves by ξ = δ ‖w‖ g/‖g‖, where g is its gradient of the loss and δ the `size`.

    Vectors (biases, normalisation layers) stay. One ascent on the attacked images of the step; there is no shift in the
    first `warm_up` of the epochs. Published: δ = 0.01 for AT, 0.005 for TRADES after 10 epochs; TrH's comparison has 5e-4.
    """

    size: float = 5e-3
    warm_up: float = 0.0  # share of the epochs without a shift

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        if _is_early(batch.moment, self.warm_up):
            return weights
        names = [name for name, weight in weights.items() if weight.dim() > 1]
        return moved_relatively(batch, loss, weights, names, self.size)

    def problems(self) -> list[Problem]:
        return at_least_0("size", self.size) + from_0_to_1("warm_up", self.warm_up)


@dataclass(frozen=True)
class Awpt:
    """AWP of the top layer: the weight of the head alone moves by δ ‖w‖ g/‖g‖."""

    size: float = 5e-3
    warm_up: float = 0.0  # share of the epochs without a shift

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        if _is_early(batch.moment, self.warm_up):
            return weights
        return moved_relatively(batch, loss, weights, [batch.network.head_weight], self.size)

    def problems(self) -> list[Problem]:
        return at_least_0("size", self.size) + from_0_to_1("warm_up", self.warm_up)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return linear_head_problems(recipe)


def moved_relatively(
    batch: TrainingBatch, loss: Loss, weights: Weights, names: Iterable[str], size: float
) -> dict[str, Tensor]:
    """The weights, of which the named ones are moved uphill by `size` times their length; w + ξ with a constant ξ."""
    gradients = uphill(batch, loss, weights, names)
    shifts = {
        name: size * weights[name].detach().norm() / gradient.norm().clamp_min(torch.finfo(gradient.dtype).tiny) * gradient
        for name, gradient in gradients.items()
    }
    return {name: weight + shifts[name] if name in shifts else weight for name, weight in weights.items()}


def _is_early(moment: Moment, warm_up: float) -> bool:
    return moment.epoch < warm_up * moment.epochs
