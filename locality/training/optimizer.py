"""The optimizer of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from locality.errors import Problem
from locality.training.settings import at_least_0, below_1, positive


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimizer. `learning_rate` is the unit of the recipe's `step_size`."""

    name: Literal["sgd", "adamw"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of matrices and kernels; biases and normalisation layers have none
    momentum: float = 0.9  # sgd only, Nesterov's
    clip_norm: float | None = None  # largest norm of the gradient, all weights together

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        every = list(parameters)
        groups = [
            {"params": [value for value in every if value.dim() > 1], "weight_decay": self.weight_decay},
            {"params": [value for value in every if value.dim() <= 1], "weight_decay": 0.0},
        ]
        if self.name == "sgd":
            return torch.optim.SGD(groups, self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0)
        return torch.optim.AdamW(groups, self.learning_rate)

    def problems(self) -> list[Problem]:
        return [
            *positive("learning_rate", self.learning_rate),
            *at_least_0("weight_decay", self.weight_decay),
            *below_1("momentum", self.momentum),
            *positive("clip_norm", 1.0 if self.clip_norm is None else self.clip_norm),
        ]
