"""Standard training."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.curvature.closed_forms import trace_cross_entropy
from locality.errors import Problem
from locality.training.losses.split import SplitLoss, clean_pass
from locality.training.settings import below_1
from locality.training.step import LossValue, Passes, TrainingBatch


@dataclass(frozen=True)
class Standard(SplitLoss):
    """Cross-entropy of the images as they are; `label_smoothing` of each label's weight is spread over all classes."""

    label_smoothing: float = 0.0

    def passes(self, batch: TrainingBatch) -> Passes:
        return Passes(clean=batch.forward(batch.images))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean = clean_pass(passes)
        total = cross_entropy(clean.logits, labels, label_smoothing=self.label_smoothing)
        return LossValue(total, {"cross_entropy": total}, clean=clean, fit=total)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return trace_cross_entropy(clean_pass(passes), bias)

    def problems(self) -> list[Problem]:
        return below_1("label_smoothing", self.label_smoothing)
