"""The size of each step, in units of the recipe's `learning_rate`.

An entry of `STEP_SIZES` is a frozen settings dataclass. Called with the state of an interrupted run, or None, it gives the
`StepSize` that a run asks before every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from locality.errors import Problem
from locality.training.run_state import State
from locality.training.schedules import Moment, Schedule, passed, rising_shares
from locality.training.settings import at_least_0, from_0_to_1

RISING = 0.3  # share of a one-cycle run in which steps grow
FIRST = 1 / 25  # size of the first step, in units of the largest
LAST = 1 / 250_000


class StepSize(Protocol):
    """The size of the steps of one run."""

    @property
    def state(self) -> State:
        """What a resumed run needs to continue."""
        ...

    def size(self, moment: Moment) -> float:
        """The size of this step."""
        ...

    def observe(self, measured: Mapping[str, float]) -> None:
        """Take in a line of the log, right after the step that it is about; the same in every process."""
        ...


class StepSizeSettings(Protocol):
    """Settings of a step size; called once per sitting."""

    def __call__(self, state: State | None) -> StepSize: ...


@dataclass(frozen=True)
class Planned:
    """A step size that is known in advance."""

    plan: Schedule
    state: State = field(default_factory=dict)

    def size(self, moment: Moment) -> float:
        return self.plan(moment)

    def observe(self, measured: Mapping[str, float]) -> None:
        """Planned sizes do not depend on what is measured."""


@dataclass(frozen=True)
class Constant:
    """Always 1."""

    def __call__(self, state: State | None) -> StepSize:
        return Planned(lambda moment: 1.0)


@dataclass(frozen=True)
class OneCycle:
    """Up a cosine for 30 % of the run, then down another (Smith & Topin 2019).

    >>> [round(OneCycle.plan(Moment.of(step, 101, 1)), 2) for step in (0, 29, 100)]
    [0.04, 1.0, 0.0]
    """

    def __call__(self, state: State | None) -> StepSize:
        return Planned(self.plan)

    @staticmethod
    def plan(moment: Moment) -> float:
        top = RISING * moment.steps - 1
        if moment.step <= top:
            return cosine(FIRST, 1.0, moment.step / top)
        return cosine(1.0, LAST, (moment.step - top) / (moment.steps - 1 - top))


@dataclass(frozen=True)
class Cosine:
    """A linear rise over `warm_up_steps`, then a cosine down to 0 (Loshchilov & Hutter 2017, without restarts).

    >>> [round(Cosine(2).plan(Moment.of(step, 10, 1)), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.04]
    """

    warm_up_steps: int = 0

    def __call__(self, state: State | None) -> StepSize:
        return Planned(self.plan)

    def plan(self, moment: Moment) -> float:
        if moment.step < self.warm_up_steps:
            return (moment.step + 1) / self.warm_up_steps
        return cosine(1.0, 0.0, (moment.step - self.warm_up_steps) / (moment.steps - self.warm_up_steps))

    def problems(self) -> list[Problem]:
        return at_least_0("warm_up_steps", self.warm_up_steps)


@dataclass(frozen=True)
class Piecewise:
    """Constant pieces: times `factor` at each of the `milestones`, which are shares of the run (Rice et al. 2020).

    >>> [round(Piecewise().plan(Moment.of(step, 8, 1)), 3) for step in (0, 3, 4, 5, 6, 7)]
    [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    """

    milestones: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, state: State | None) -> StepSize:
        return Planned(self.plan)

    def plan(self, moment: Moment) -> float:
        return self.factor ** passed(self.milestones, moment)

    def problems(self) -> list[Problem]:
        return rising_shares("milestones", self.milestones) + from_0_to_1("factor", self.factor)


def cosine(begin: float, end: float, share: float) -> float:
    """From `begin` to `end` along half a cosine, `share` of the way."""
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2


STEP_SIZES: dict[str, type[StepSizeSettings]] = {
    "constant": Constant,
    "one_cycle": OneCycle,
    "cosine": Cosine,
    "piecewise": Piecewise,
}
