"""Schedules against their formulas."""

from collections.abc import Sequence

import pytest

from locality.training.schedules import SCHEDULES, Constant, Linear, Moment, Multistep, Schedule, WarmUp
from locality.training.settings import problems_in


def values(schedule: Schedule, steps: Sequence[int], total: int = 100, epochs: int = 10) -> list[float]:
    return [schedule(Moment.of(step, total, epochs)) for step in steps]


def test_moments_of_a_run() -> None:
    moments = [Moment.of(step, 12, 3) for step in range(12)]
    assert [moment.epoch for moment in moments] == [0] * 4 + [1] * 4 + [2] * 4
    assert [moment.step for moment in moments if moment.ends_epoch] == [3, 7, 11]
    assert Moment.of(0, 1, 1).ends_epoch


def test_constant() -> None:
    assert values(Constant(), [0, 50, 99]) == [1, 1, 1]


def test_linear_is_the_share_of_the_run() -> None:
    """λ(t) = t/T."""
    assert values(Linear(), [0, 5, 10, 30, 50, 99]) == pytest.approx([0, 0.05, 0.1, 0.3, 0.5, 0.99])


def test_linear_between_two_numbers() -> None:
    """(0.1 + 1.9 · min(2t/T, 1)), as certified training ramps its radius."""
    expected = [0.1 + 1.9 * min(2 * step / 100, 1) for step in (0, 10, 25, 50, 80)]
    assert values(Linear(begin=0.1, end=2.0, until=0.5), [0, 10, 25, 50, 80]) == pytest.approx(expected)
    assert values(Linear(until=0.0), [0, 50]) == [1, 1]


def test_warm_up_rises_by_epochs() -> None:
    rising = [0.2, 0.2, 0.4, 0.6, 0.8, 1, 1]
    assert values(WarmUp(0.5), [0, 9, 10, 20, 30, 40, 50]) == pytest.approx(rising)
    assert values(WarmUp(0.0), [0]) == [1]
    assert values(WarmUp(0.05), [0]) == [1]


def test_multistep() -> None:
    """0.01 before a tenth of the run, 0.1 before half of it, then 1."""
    assert values(Multistep(), [0, 5, 9, 10, 30, 49, 50, 99]) == [0.01, 0.01, 0.01, 0.1, 0.1, 0.1, 1, 1]
    assert values(Multistep((0.25,), (2.0, 3.0)), [0, 24, 25]) == [2, 2, 3]


@pytest.mark.parametrize(
    ("schedule", "where"),
    [
        (Linear(begin=-1.0), ["begin"]),
        (Linear(end=float("nan"), until=2.0), ["end", "until"]),
        (WarmUp(1.1), ["share"]),
        (Multistep((0.5, 0.1)), ["milestones"]),
        (Multistep((0.5,)), ["factors"]),
        (Multistep((0.5, 1.5), (1.0, float("inf"), 1.0)), ["factors", "milestones"]),
        (Multistep(), []),
    ],
)
def test_settings_that_make_no_sense(schedule: Schedule, where: list[str]) -> None:
    assert [problem.where for problem in problems_in(schedule)] == where


def test_every_schedule_has_a_default() -> None:
    assert all(0 <= kind()(Moment.of(3, 10, 2)) <= 1 for kind in SCHEDULES.values())
