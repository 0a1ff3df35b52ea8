"""No shift: the loss at the network's own weights."""

from __future__ import annotations

from dataclasses import dataclass

from locality.training.network import Weights
from locality.training.step import Loss, TrainingBatch


@dataclass(frozen=True)
class NoShift:
    """The weights as they are."""

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        return weights
