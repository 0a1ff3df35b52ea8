"""Standard training."""

from __future__ import annotations

from dataclasses import dataclass

from torch.nn.functional import cross_entropy

from locality.errors import Problem
from locality.training.settings import below_1
from locality.training.step import LossValue, TrainingBatch


@dataclass(frozen=True)
class Standard:
    """Cross-entropy of the images as they are; `label_smoothing` of each label's weight is spread over all classes."""

    label_smoothing: float = 0.0

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        total = cross_entropy(clean.logits, batch.labels, label_smoothing=self.label_smoothing)
        return LossValue(total, {"cross_entropy": total}, clean=clean)

    def problems(self) -> list[Problem]:
        return below_1("label_smoothing", self.label_smoothing)
