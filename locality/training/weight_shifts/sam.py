"""Sharpness-aware minimisation (Foret et al. 2021), also adaptive (Kwon et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from locality.errors import Problem
from locality.training.network import Weights
from locality.training.settings import at_least_0
from locality.training.step import Loss, TrainingBatch
from locality.training.weight_shifts.uphill import uphill


@dataclass(frozen=True)
class Sam:
    """All weights together move by ρ g/‖g‖, where g is the gradient of the loss and ρ the `size`.

    `adaptive` measures lengths in units of the weights, ‖ξ/w‖ ≤ ρ: ξ = ρ w² g/‖w g‖ (ASAM, published with ρ = 0.5).
    """

    size: float = 0.05
    adaptive: bool = False

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        gradients = uphill(batch, loss, weights, weights)
        units = {name: weight.detach().abs() if self.adaptive else 1.0 for name, weight in weights.items()}
        norm = torch.stack([(units[name] * gradient).norm() for name, gradient in gradients.items()]).norm()
        scale = self.size / norm.clamp_min(torch.finfo(norm.dtype).tiny)
        return {name: weight + scale * units[name] * units[name] * gradients[name] for name, weight in weights.items()}

    def problems(self) -> list[Problem]:
        return at_least_0("size", self.size)
