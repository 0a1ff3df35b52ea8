"""Step sizes against torch's schedulers and by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.optim import lr_scheduler

from locality.training.schedules import Moment
from locality.training.settings import problems_in
from locality.training.step_size import (
    PLANS,
    Constant,
    Cosine,
    CurvatureControl,
    EqualMean,
    OneCycle,
    Piecewise,
    StepSize,
    StepSizeSettings,
)


def sizes(settings: StepSizeSettings, steps: int) -> list[float]:
    step_size = settings(None)
    return [step_size.size(Moment.of(step, steps, 1)) for step in range(steps)]


def torchs(steps: int, make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]) -> list[float]:
    """The learning rates of a scheduler of torch, in units of the largest."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for step in range(steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()
    return rates


def test_constant() -> None:
    assert sizes(Constant(), 3) == [1, 1, 1]


@pytest.mark.parametrize("steps", [7, 40, 333])
def test_one_cycle_is_torchs(steps: int) -> None:
    def make(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=steps, cycle_momentum=False)

    assert sizes(OneCycle(), steps) == pytest.approx(torchs(steps, make), abs=1e-9)


@pytest.mark.parametrize("steps", [1, 7, 100])
def test_cosine_is_torchs(steps: int) -> None:
    expected = torchs(steps, lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps))
    assert sizes(Cosine(), steps) == pytest.approx(expected, abs=1e-9)


def test_cosine_after_a_linear_warm_up() -> None:
    plan = sizes(Cosine(warm_up_steps=4), 12)
    assert plan[:5] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert plan[4:] == pytest.approx([(1 + math.cos(math.pi * step / 8)) / 2 for step in range(8)])
    # A run that ends during its warm-up.
    assert sizes(Cosine(warm_up_steps=10), 3) == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("steps", [8, 200])
def test_piecewise_is_torchs(steps: int) -> None:
    def make(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.MultiStepLR(optimizer, milestones=[steps // 2, 3 * steps // 4], gamma=0.1)

    assert sizes(Piecewise(), steps) == pytest.approx(torchs(steps, make))
    assert sizes(Piecewise((0.25,), 0.5), 8) == [1, 1, *[0.5] * 6]


@pytest.mark.parametrize("name", PLANS)
def test_planned_sizes_keep_nothing(name: str) -> None:
    step_size = PLANS[name]()(None)
    moment = Moment.of(3, 10, 2)
    before = step_size.size(moment)
    step_size.observe({"loss": 1e9})
    assert step_size.size(moment) == before
    assert step_size.state == {}
    assert PLANS[name]()(step_size.state).size(moment) == before


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (Cosine(-1), ["warm_up_steps"]),
        (Piecewise((0.75, 0.5)), ["milestones"]),
        (Piecewise((0.5, 0.5), factor=1.5), ["milestones", "factor"]),
        (Piecewise(), []),
        (CurvatureControl(start=2, floor=-1, threshold=0, power=0), ["start", "floor", "threshold", "power"]),
        (CurvatureControl(Piecewise((2.0,)), multiple=0), ["multiple", "plan.milestones"]),
        (CurvatureControl(), []),
        (EqualMean(0.0, start=-1), ["mean", "start"]),
    ],
)
def test_settings_that_make_no_sense(settings: StepSizeSettings, where: list[str]) -> None:
    assert [problem.where for problem in problems_in(settings)] == where


def controlled(settings: CurvatureControl, curvatures: list[float | None]) -> list[float]:
    """The size of a step after each measurement; one per epoch, one step each."""
    step_size = settings(None)
    after = []
    for epoch, curvature in enumerate(curvatures):
        after.append(measured_size(step_size, epoch, len(curvatures), curvature))
        step_size = settings(step_size.state)  # an interruption after every epoch changes nothing
    return after


def measured_size(step_size: StepSize, epoch: int, epochs: int, curvature: float | None) -> float:
    step_size.observe({"step": epoch + 1, "loss": 1.0})  # a line of the log without the monitor's numbers
    step_size.observe({"step": epoch + 1, "share": (epoch + 1) / epochs, "wci": curvature})
    return step_size.size(Moment.of(epoch, epochs, epochs))


def test_curvature_control() -> None:
    """size = min(1, threshold / mean of the last three), counted after `start`; the first there is the threshold."""
    curvatures: list[float | None] = [50.0, 90.0, 10.0, 20.0, 30.0, 40.0, 2.0, 3.0]
    always = CurvatureControl(Constant(), start=2 / 8)
    means = [10, 15, 20, 30, 24, 15]
    assert controlled(always, curvatures) == pytest.approx([1, 1, *(10 / mean for mean in means)])
    assert controlled(replace(always, power=2), curvatures)[2:] == pytest.approx([(10 / mean) ** 2 for mean in means])
    assert controlled(replace(always, multiple=2), curvatures)[2:] == pytest.approx([min(1, 20 / mean) for mean in means])
    absolute = replace(always, threshold=15.0)
    assert controlled(absolute, curvatures)[2:] == pytest.approx([min(1, 15 / mean) for mean in means])
    assert controlled(replace(absolute, multiple=9), curvatures) == controlled(absolute, curvatures)
    lasting = replace(always, monotone=True)
    assert controlled(lasting, curvatures)[2:] == pytest.approx([1, 2 / 3, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    assert controlled(replace(always, power=50, floor=0.01), curvatures)[4:6] == [0.01, 0.01]


def test_curvature_control_of_a_plan() -> None:
    falling = CurvatureControl(Piecewise((0.5,)), start=0.5, multiple=0.5)
    # The measurement at `start` is of weights before the drop.
    assert controlled(falling, [80.0, 80.0, 8.0, 8.0]) == pytest.approx([1, 1, 0.05, 0.05])
    # Nothing is known about an undefined curvature, nor about none at all: the plan goes on.
    assert controlled(falling, [8.0, None, None, 0.0]) == pytest.approx([1, 1, 0.1, 0.1])


@pytest.mark.parametrize("mean", [0.001, 0.03, 0.05, 0.08, 0.1])
@pytest.mark.parametrize(("steps", "start"), [(60, 0.5), (61, 0.5), (7, 0.3), (4, 0.0)])
def test_equal_mean(mean: float, steps: int, start: float) -> None:
    plan = Piecewise((start,))
    after = [size for step, size in enumerate(sizes(EqualMean(mean, plan, start), steps)) if step >= start * steps]
    assert sum(after) / len(after) == pytest.approx(mean, rel=1e-12)
    assert all(later <= earlier + 1e-15 for earlier, later in pairwise(after))
    assert 0 <= after[-1] <= after[0] <= 0.1 + 1e-15
    before = [size for step, size in enumerate(sizes(EqualMean(mean, plan, start), steps)) if step < start * steps]
    assert before == [1.0] * len(before)
