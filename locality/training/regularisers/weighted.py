"""What the settings of every regulariser begin with: its weight, and the schedule that the weight follows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from locality.errors import Problem
from locality.training.schedules import SCHEDULES, Constant, Schedule
from locality.training.settings import chosen_from
from locality.training.step import LossValue, Terms, TrainingBatch


@dataclass(frozen=True)
class Weighted:
    """The regulariser is added to the loss times `weight`, times the factor of the `schedule`."""

    weight: float
    schedule: Schedule = field(default=Constant(), metadata=chosen_from(SCHEDULES))

    def terms(self, batch: TrainingBatch, value: LossValue) -> Terms:
        """Further numbers for the log, under names that begin with the regulariser's."""
        return {}

    def problems(self) -> list[Problem]:
        return [] if math.isfinite(self.weight) else [Problem("weight", f"must be finite, got {self.weight}")]
