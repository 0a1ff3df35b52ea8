"""Step sizes against torch's schedulers and by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.optim import lr_scheduler

from locality.training.schedules import Moment
from locality.training.settings import problems_in
from locality.training.step_size import STEP_SIZES, Constant, Cosine, OneCycle, Piecewise, StepSizeSettings


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


@pytest.mark.parametrize("name", STEP_SIZES)
def test_planned_sizes_keep_nothing(name: str) -> None:
    step_size = STEP_SIZES[name]()(None)
    moment = Moment.of(3, 10, 2)
    before = step_size.size(moment)
    step_size.observe({"loss": 1e9})
    assert step_size.size(moment) == before
    assert step_size.state == {}
    assert STEP_SIZES[name]()(step_size.state).size(moment) == before


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        (Cosine(-1), ["warm_up_steps"]),
        (Piecewise((0.75, 0.5)), ["milestones"]),
        (Piecewise((0.5, 0.5), factor=1.5), ["milestones", "factor"]),
        (Piecewise(), []),
    ],
)
def test_settings_that_make_no_sense(settings: StepSizeSettings, where: list[str]) -> None:
    assert [problem.where for problem in problems_in(settings)] == where
