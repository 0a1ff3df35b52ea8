"""Logit squeezing (Kannan et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from locality.errors import ArgumentError
from locality.training.regularisers.weighted import Weighted
from locality.training.step import LossValue, TrainingBatch


@dataclass(frozen=True)
class LogitSqueezing(Weighted):
    """Mean squared logit of the clean images or, where the loss sees none, of the attacked ones.

    Small logits keep the gradients of the cross-entropy from vanishing.
    """

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        seen = value.clean or value.attacked
        if seen is None:
            raise ArgumentError("loss", "one that makes a pass over clean or attacked images", type(batch.loss).__name__)
        return seen.logits.square().mean()
