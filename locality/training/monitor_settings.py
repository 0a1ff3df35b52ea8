"""Settings of the monitor: the table `[monitor]` of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from locality.errors import Problem
from locality.training.settings import positive

SHARE = 0.06  # of an epoch's gradients; at most a tenth of its time, also if the training is faster by bf16
FEWEST, MOST = 16, 256


@dataclass(frozen=True)
class MonitorSettings:
    """What is measured at the ends of epochs: losses and errors on fixed images, clean and attacked, and curvature.

    The attack is PGD without early stop at the threat of the loss, or at ℓ∞ with `evaluate_epsilon` if it has none.
    """

    every: int = 1  # epochs between two measurements
    images: int | None = None  # of each split, balanced over the classes; None: as `affordable_images` says
    steps: int = 5  # of the attack
    epsilon: float | None = None  # of the attack, in the norm of the threat; None: the threat's own
    method: Literal["auto", "exact", "sampled", "probed"] = "sampled"  # of `layer_traces`
    probes: int = 2  # of `layer_traces`; a single probe has no standard error
    average: bool = False  # measure the averaged weights instead of the current ones

    def problems(self) -> list[Problem]:
        counts = {"every": self.every, "images": 1 if self.images is None else self.images}
        counts |= {"steps": self.steps, "probes": self.probes}
        problems = [problem for name, value in counts.items() for problem in positive(name, value)]
        return problems + ([] if self.epsilon is None else positive("epsilon", self.epsilon))

    def gradients_per_image(self, classes: int) -> int:
        """Gradients per image: the attack's in both splits, and the traces' in the training split.

        >>> MonitorSettings().gradients_per_image(10)  # 2 · 5 + 2
        12
        """
        traces = {"sampled": self.probes, "probed": 1 + 2 * self.probes}.get(self.method, classes)
        return 2 * self.steps + traces

    def affordable_images(self, epoch_gradients: int, classes: int) -> int:
        """Images of each split that take SHARE of the gradients of the epochs between two measurements; from 16 to 256.

        >>> MonitorSettings().affordable_images(12_000, 10)  # AT with two steps on 4,000 images: 720 gradients
        60
        """
        affordable = int(SHARE * epoch_gradients * self.every) // self.gradients_per_image(classes)
        return min(max(affordable, FEWEST), MOST)
