"""The squared length of the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locality.training.regularisers.weighted import Weighted
from locality.training.step import LossValue, TrainingBatch


@dataclass(frozen=True)
class L2(Weighted):
    """‖θ‖² of all weights, with biases and normalisation layers.

    A weight γ moves SGD as a `weight_decay` of 2γ does, but the optimizer's decay leaves biases and normalisation layers
    out, and that of AdamW is not a part of the gradient.
    """

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        return torch.stack([weight.square().sum() for weight in batch.weights.values()]).sum()
