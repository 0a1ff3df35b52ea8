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

    name: Literal["sgd", "adamw", "nadam"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of matrices and kernels; biases and normalisation layers have none
    momentum: float = 0.9  # sgd only, Nesterov's
    clip_norm: float | None = None  # largest norm of the gradient, all weights together
    lookahead: int = 0  # steps after which the weights go halfway back to slow ones (Zhang et al. 2019); 0: never

    def __call__(
        self, parameters: Iterable[nn.Parameter], head: Iterable[nn.Parameter] = (), body_rate: float = 1.0
    ) -> torch.optim.Optimizer:
        """The optimizer; parameters that are not of the `head` learn at `body_rate` times the learning rate."""
        every, of_head = list(parameters), {id(value) for value in head}
        body = [value for value in every if id(value) not in of_head]
        parts = [(every, 1.0)] if body_rate == 1 else [(body, body_rate), ([v for v in every if id(v) in of_head], 1.0)]
        groups = [
            {"params": chosen, "weight_decay": decay, "rate": rate}
            for part, rate in parts
            for decay, chosen in (
                (self.weight_decay, [value for value in part if value.dim() > 1]),
                (0.0, [value for value in part if value.dim() <= 1]),
            )
        ]
        fast: torch.optim.Optimizer
        if self.name == "sgd":
            fast = torch.optim.SGD(groups, self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0)
        elif self.name == "nadam":
            fast = torch.optim.NAdam(groups, self.learning_rate, decoupled_weight_decay=True)
        else:
            fast = torch.optim.AdamW(groups, self.learning_rate)
        return _looking_ahead(fast, self.lookahead) if self.lookahead else fast

    def problems(self) -> list[Problem]:
        return [
            *positive("learning_rate", self.learning_rate),
            *at_least_0("weight_decay", self.weight_decay),
            *below_1("momentum", self.momentum),
            *at_least_0("lookahead", self.lookahead),
            *positive("clip_norm", 1.0 if self.clip_norm is None else self.clip_norm),
        ]


def _looking_ahead(fast: torch.optim.Optimizer, steps: int) -> torch.optim.Optimizer:
    """timm's Lookahead, whose slow weights are in the state of the optimizer."""
    from timm.optim.lookahead import Lookahead

    slow: torch.optim.Optimizer = Lookahead(fast, alpha=0.5, k=steps)
    return slow
