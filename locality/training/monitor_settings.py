"""Settings of the monitor: the table `[monitor]` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from locality.errors import Problem
from locality.training.settings import positive


@dataclass(frozen=True)
class MonitorSettings:
    """What is measured at the ends of epochs: losses and errors on fixed images, clean and attacked, and curvature.

    The attack is PGD without early stop at the threat of the loss, or at ℓ∞ with `evaluate_epsilon` if it has none.
    """

    every: int = 1  # epochs between two measurements
    images: int = 256  # of each split, balanced over the classes
    steps: int = 10  # of the attack
    epsilon: float | None = None  # of the attack, in the norm of the threat; None: the threat's own
    method: Literal["auto", "exact", "sampled", "probed"] = "sampled"  # of `layer_traces`
    probes: int | None = None  # of `layer_traces`; None: its default
    average: bool = False  # measure the averaged weights instead of the current ones

    def problems(self) -> list[Problem]:
        counts = {"every": self.every, "images": self.images, "steps": self.steps, "probes": self.probes or 1}
        problems = [problem for name, value in counts.items() for problem in positive(name, value)]
        return problems + ([] if self.epsilon is None else positive("epsilon", self.epsilon))
