"""What changes over a run: functions of where the run stands, so there is nothing to store and nothing to restore.

A schedule is a frozen settings dataclass that maps a `Moment` to a factor; `SCHEDULES` names them for recipes.
Learning rates are in `step_size.py`.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import Protocol

from locality.errors import Problem
from locality.training.settings import at_least_0, from_0_to_1


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a run stands: step `step` of `steps`, in epoch `epoch` of `epochs`, all counted from 0.

    >>> Moment(step=5, steps=12, epoch=1, epochs=3).ends_epoch, Moment(7, 12, 1, 3).ends_epoch
    (False, True)
    """

    step: int
    steps: int
    epoch: int
    epochs: int

    @classmethod
    def of(cls, step: int, steps: int, epochs: int) -> Moment:
        """The moment of a step, where all epochs have equally many steps."""
        return cls(step, steps, step * epochs // steps, epochs)

    @property
    def ends_epoch(self) -> bool:
        """Whether this is the last step of its epoch."""
        return (self.step + 1) * self.epochs // self.steps > self.epoch


class Schedule(Protocol):
    """A factor that depends on where the run stands."""

    def __call__(self, moment: Moment) -> float: ...


@dataclass(frozen=True)
class Constant:
    """Always 1."""

    def __call__(self, moment: Moment) -> float:
        return 1.0


@dataclass(frozen=True)
class Linear:
    """From `begin` to `end` over the first `until` of the run, step by step; `end` from then on.

    >>> [Linear(until=0.5)(Moment.of(step, 8, 1)) for step in range(5)]
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    begin: float = 0.0
    end: float = 1.0
    until: float = 1.0  # share of the run

    def __call__(self, moment: Moment) -> float:
        done = min(1.0, moment.step / (self.until * moment.steps)) if self.until > 0 else 1.0
        return self.begin + (self.end - self.begin) * done

    def problems(self) -> list[Problem]:
        return [*at_least_0("begin", self.begin), *at_least_0("end", self.end), *from_0_to_1("until", self.until)]


@dataclass(frozen=True)
class WarmUp:
    """Rises to 1 over the first `share` of the epochs, and stays there.

    It rises by epochs, not by steps, so that it is never near 0: without an attack, a few dozen steps are enough to learn a
    cue that the rest of the run cannot unlearn (seen on `shapes`).

    >>> [round(WarmUp(0.3)(Moment.of(epoch, 10, 10)), 2) for epoch in range(4)]
    [0.33, 0.67, 1.0, 1.0]
    """

    share: float = 0.1

    def __call__(self, moment: Moment) -> float:
        return min(1.0, (moment.epoch + 1) / (self.share * moment.epochs)) if self.share > 0 else 1.0

    def problems(self) -> list[Problem]:
        return from_0_to_1("share", self.share)


@dataclass(frozen=True)
class Multistep:
    """Piecewise constant: `factors[k]` after the first k `milestones`, which are shares of the run.

    >>> [Multistep()(Moment.of(step, 10, 1)) for step in (0, 1, 4, 5, 9)]
    [0.01, 0.1, 0.1, 1.0, 1.0]
    """

    milestones: tuple[float, ...] = (0.1, 0.5)
    factors: tuple[float, ...] = (0.01, 0.1, 1.0)

    def __call__(self, moment: Moment) -> float:
        return self.factors[passed(self.milestones, moment)]

    def problems(self) -> list[Problem]:
        problems = [problem for factor in self.factors for problem in at_least_0("factors", factor)]
        if len(self.factors) != len(self.milestones) + 1:
            problems.append(
                Problem("factors", f"must be one more than the {len(self.milestones)} milestones, got {self.factors}")
            )
        return problems + rising_shares("milestones", self.milestones)


def passed(milestones: tuple[float, ...], moment: Moment) -> int:
    """How many of the milestones, which are shares of the run, lie behind.

    >>> [passed((0.5, 0.75), Moment.of(step, 8, 1)) for step in (3, 4, 5, 6)]
    [0, 1, 1, 2]
    """
    return bisect.bisect_right([milestone * moment.steps for milestone in milestones], moment.step)


def rising_shares(name: str, shares: tuple[float, ...]) -> list[Problem]:
    """A problem unless these are shares of the run in rising order."""
    if all(0 <= one <= 1 for one in shares) and all(a < b for a, b in itertools.pairwise(shares)):
        return []
    return [Problem(name, f"must be shares of the run between 0 and 1, in rising order, got {shares}")]


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "linear": Linear,
    "warm_up": WarmUp,
    "multistep": Multistep,
}
