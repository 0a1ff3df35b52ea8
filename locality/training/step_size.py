"""The size of each step, in units of the recipe's `learning_rate`.

An entry of `STEP_SIZES` is a frozen settings dataclass. Called with the state of an interrupted run, or None, it gives the
`StepSize` that a run asks before every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from locality.errors import Problem
from locality.training.run_state import State
from locality.training.schedules import Moment, Schedule, passed, rising_shares
from locality.training.settings import at_least_0, chosen_from, from_0_to_1, positive

if TYPE_CHECKING:
    from locality.training.recipe import Recipe

RISING = 0.3  # share of a one-cycle run in which steps grow
FIRST = 1 / 25  # size of the first step, in units of the largest
LAST = 1 / 250_000
MEASUREMENTS = 3  # of WCI that are averaged


class StepSize(Protocol):
    """The size of the steps of one run."""

    @property
    def state(self) -> State:
        """What a resumed run needs to continue."""
        ...

    def size(self, moment: Moment) -> float:
        """The size of this step."""
        ...

    def observe(self, measured: Mapping[str, Any]) -> None:
        """Take in a line of the log, right after the step that it is about; the same in every process.

        At the ends of epochs that the monitor measures, the line has the monitor's numbers, too.
        """
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

    def observe(self, measured: Mapping[str, Any]) -> None:
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


PLANS: dict[str, type[StepSizeSettings]] = {
    "constant": Constant,
    "one_cycle": OneCycle,
    "cosine": Cosine,
    "piecewise": Piecewise,
}


@dataclass(frozen=True)
class CurvatureControl:
    """Smaller steps where the loss is sharp: plan · min(1, (threshold / WCI)^power), after `start`.

    WCI is the mean of the last three measurements of the monitor after `start`. One at `start` itself does not count: it is
    of weights before the drop, which are sharper, so a threshold of it would hardly ever be reached. This is a reading of
    Algorithm 1 of the WCI paper, whose text leaves the rule open. Compare with `equal_mean`: smaller steps alone also limit
    robust overfitting.
    """

    plan: StepSizeSettings = field(default=Piecewise((0.5,)), metadata=chosen_from(PLANS))
    start: float = 0.5  # share of the run, that of the plan's first drop
    threshold: float | None = None  # of WCI; None: `multiple` of the first measurement after `start`
    multiple: float = 1.0
    power: float = 1.0  # 2: inverse to the trace
    floor: float = 1e-3  # least factor of the plan
    monotone: bool = False  # whether the factor never rises again

    def __call__(self, state: State | None) -> StepSize:
        return _Controlled(self, self.plan(None), **(state or {"threshold": self.threshold, "recent": [], "factor": 1.0}))

    def problems(self) -> list[Problem]:
        problems = from_0_to_1("start", self.start) + from_0_to_1("floor", self.floor)
        numbers = {"threshold": self.threshold, "multiple": self.multiple, "power": self.power}
        return problems + [problem for name, one in numbers.items() if one is not None for problem in positive(name, one)]

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return [Problem("", "needs a table [monitor], which measures WCI: add one")] if recipe.monitor is None else []


@dataclass
class _Controlled:
    settings: CurvatureControl
    plan: StepSize
    threshold: float | None
    recent: list[float]  # the last measurements since `start`
    factor: float

    @property
    def state(self) -> State:
        return {"threshold": self.threshold, "recent": list(self.recent), "factor": self.factor}

    def size(self, moment: Moment) -> float:
        return self.plan.size(moment) * self.factor

    def observe(self, measured: Mapping[str, Any]) -> None:
        if measured.get("wci") is None or measured["share"] <= self.settings.start:
            return
        self.recent = [*self.recent, measured["wci"]][-MEASUREMENTS:]
        if self.threshold is None:
            self.threshold = self.settings.multiple * measured["wci"]
        mean = sum(self.recent) / len(self.recent)
        factor = min(1.0, (self.threshold / mean) ** self.settings.power) if mean > 0 else 1.0
        factor = max(self.settings.floor, factor)
        self.factor = min(self.factor, factor) if self.settings.monotone else factor


@dataclass(frozen=True)
class EqualMean:
    """The plan until `start`, then half a cosine whose mean is `mean`: the control of `wci`, with its mean and without WCI.

    The cosine begins at the plan's size at `start`, or at twice the mean if that is less.

    >>> sizes = [EqualMean(0.02).size(Moment.of(step, 8, 1)) for step in range(8)]
    >>> sizes[:4], [round(size, 4) for size in sizes[4:]], round(sum(sizes[4:]) / 4, 12)
    ([1.0, 1.0, 1.0, 1.0], [0.0385, 0.0277, 0.0123, 0.0015], 0.02)
    """

    mean: float  # of the sizes from `start` on, in units of the learning rate
    plan: StepSizeSettings = field(default=Piecewise((0.5,)), metadata=chosen_from(PLANS))
    start: float = 0.5  # share of the run

    def __call__(self, state: State | None) -> StepSize:
        return Planned(self.size)

    def size(self, moment: Moment) -> float:
        plan = self.plan(None)
        first = math.ceil(self.start * moment.steps)
        if moment.step < first:
            return plan.size(moment)
        begin = min(plan.size(Moment.of(first, moment.steps, moment.epochs)), 2 * self.mean)
        # In the middles of the steps the cosine is antisymmetric, so its mean is exact.
        return cosine(begin, 2 * self.mean - begin, (moment.step - first + 0.5) / (moment.steps - first))

    def problems(self) -> list[Problem]:
        return positive("mean", self.mean) + from_0_to_1("start", self.start)


STEP_SIZES: dict[str, type[StepSizeSettings]] = PLANS | {"wci": CurvatureControl, "equal_mean": EqualMean}
