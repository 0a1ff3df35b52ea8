"""Averages of the weights over a run; the model that a run ends with has the average's weights.

An entry of `AVERAGES` is a frozen settings dataclass. Called with the weights at the start of the run, and with the state of
an interrupted run if there was one, it gives the `Average` that follows the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from locality.errors import Problem
from locality.training.network import Weights
from locality.training.run_state import State
from locality.training.schedules import Moment
from locality.training.settings import below_1, from_0_to_1


class Average(Protocol):
    """Weights, buffers included, averaged over the steps of a run."""

    @property
    def stale_statistics(self) -> bool:
        """Whether BatchNorm's statistics do not belong to the result, and must be estimated again."""
        ...

    @property
    def state(self) -> State:
        """What a resumed run needs to continue this average."""
        ...

    def update(self, moment: Moment, weights: Weights) -> None:
        """Take in the weights after a step."""
        ...

    def result(self) -> Weights: ...


class AverageSettings(Protocol):
    """Settings of an average; called once per sitting."""

    def __call__(self, weights: Weights, state: State | None) -> Average: ...


@dataclass(frozen=True)
class NoAverage:
    """The last weights."""

    def __call__(self, weights: Weights, state: State | None) -> Average:
        return _Last(weights)


@dataclass(frozen=True)
class Ema:
    """Exponential moving average: mean ← d · mean + (1 − d) · weights after every step.

    d is `decay`, but (1 + n)/(10 + n) in the first steps n, which forget the initial weights faster.
    """

    decay: float = 0.99

    def __call__(self, weights: Weights, state: State | None) -> Average:
        return _Exponential(self.decay, _copied(weights) if state is None else _like(weights, state["mean"]))

    def problems(self) -> list[Problem]:
        return below_1("decay", self.decay)


@dataclass(frozen=True)
class Swa:
    """Stochastic weight averaging (Izmailov et al. 2018): the mean of the weights at the ends of the epochs from `start` on.

    `start` is a share of the run. BatchNorm's statistics are estimated again for the averaged weights.
    """

    start: float = 0.75

    def __call__(self, weights: Weights, state: State | None) -> Average:
        if state is None:
            return _Equal(self.start, _copied(weights), 0)
        return _Equal(self.start, _like(weights, state["mean"]), state["count"])

    def problems(self) -> list[Problem]:
        return from_0_to_1("start", self.start)


@dataclass
class _Last:
    weights: Weights
    stale_statistics: bool = False
    state: State = field(default_factory=dict)

    def update(self, moment: Moment, weights: Weights) -> None:
        self.weights = weights

    def result(self) -> Weights:
        return self.weights


@dataclass
class _Exponential:
    decay: float
    mean: dict[str, Tensor]
    stale_statistics: bool = False

    @property
    def state(self) -> State:
        return {"mean": self.mean}

    def update(self, moment: Moment, weights: Weights) -> None:
        _move(self.mean, weights, 1 - min(self.decay, (1 + moment.step) / (10 + moment.step)))

    def result(self) -> Weights:
        return self.mean


@dataclass
class _Equal:
    start: float
    mean: dict[str, Tensor]
    count: int  # of the weights in the mean
    stale_statistics: bool = True

    @property
    def state(self) -> State:
        return {"mean": self.mean, "count": self.count}

    def update(self, moment: Moment, weights: Weights) -> None:
        if moment.ends_epoch and moment.step + 1 >= self.start * moment.steps:
            self.count += 1
            _move(self.mean, weights, 1 / self.count)

    def result(self) -> Weights:
        return self.mean


@torch.no_grad()
def _move(mean: dict[str, Tensor], weights: Weights, share: float) -> None:
    """Move the mean toward the weights by a share of the way; counters, which are whole numbers, are copied."""
    for name, value in mean.items():
        if value.is_floating_point():
            value.lerp_(weights[name], share)
        else:
            value.copy_(weights[name])


def _copied(weights: Weights) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _like(weights: Weights, mean: Weights) -> dict[str, Tensor]:
    """A stored mean on the device of the weights."""
    return {name: value.detach().to(weights[name].device, copy=True) for name, value in mean.items()}


AVERAGES: dict[str, type[AverageSettings]] = {"none": NoAverage, "ema": Ema, "swa": Swa}
