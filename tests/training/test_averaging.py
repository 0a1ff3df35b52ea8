"""Averages of weights that are known, worked out by hand."""

import pytest
import torch
from torch import Tensor
from toy_training import same_state

from locality.training.averaging import AVERAGES, AverageSettings, Ema, NoAverage, Swa
from locality.training.schedules import Moment
from locality.training.settings import problems_in

STEPS, EPOCHS = 8, 4  # two steps per epoch


def weights_after(step: int) -> dict[str, Tensor]:
    """Known weights after a step: squares, so that no two means agree by chance, and a counter as BatchNorm has one."""
    return {"weight": torch.tensor([step**2, -1.0 - step]), "counter": torch.tensor(step)}


def averaged(settings: AverageSettings, restart: int | None = None) -> tuple[dict[str, Tensor], bool]:
    """The average over a run, which may be interrupted after `restart` steps."""
    average = settings(weights_after(0), None)
    for step in range(STEPS):
        if step == restart:
            average = settings(weights_after(step), average.state)
        average.update(Moment.of(step, STEPS, EPOCHS), weights_after(step + 1))
    return dict(average.result()), average.stale_statistics


def test_no_average_is_the_last_weights() -> None:
    result, stale = averaged(NoAverage())
    assert result["weight"].tolist() == [64, -9]
    assert not stale
    untrained = NoAverage()(weights_after(0), None).result()
    assert untrained["weight"].tolist() == [0, -1]


@pytest.mark.parametrize("decay", [0.15, 0.99])
def test_the_moving_average_forgets_faster_at_first(decay: float) -> None:
    """Decay min(d, (1 + n)/(10 + n)): 1/10 in the first step, 2/11 in the second, which is above 0.15 already."""
    expected = weights_after(0)["weight"].double()
    for step in range(STEPS):
        mixed = min(decay, (1 + step) / (10 + step))
        expected = mixed * expected + (1 - mixed) * weights_after(step + 1)["weight"].double()
    result, stale = averaged(Ema(decay))
    assert torch.allclose(result["weight"].double(), expected, rtol=1e-5)
    assert int(result["counter"]) == STEPS  # a counter is no average
    assert not stale


@pytest.mark.parametrize(
    ("start", "ends"),
    [(0.0, [2, 4, 6, 8]), (0.5, [4, 6, 8]), (0.51, [6, 8]), (0.75, [6, 8]), (1.0, [8])],
)
def test_swa_is_the_plain_mean_of_the_ends_of_epochs(start: float, ends: list[int]) -> None:
    result, stale = averaged(Swa(start))
    expected = torch.stack([weights_after(step)["weight"] for step in ends]).mean(0)
    assert torch.allclose(result["weight"], expected)
    assert int(result["counter"]) == STEPS
    assert stale


def test_swa_has_the_initial_weights_before_it_starts() -> None:
    average = Swa(0.5)(weights_after(0), None)
    average.update(Moment.of(0, STEPS, EPOCHS), weights_after(1))
    assert average.result()["weight"].tolist() == [0, -1]


@pytest.mark.parametrize("settings", [NoAverage(), Ema(0.9), Swa(0.25)])
@pytest.mark.parametrize("restart", [1, 3, 4, 7])
def test_an_interrupted_average_ends_like_an_undisturbed_one(settings: AverageSettings, restart: int) -> None:
    assert same_state(averaged(settings, restart), averaged(settings))


@pytest.mark.parametrize("name", AVERAGES)
def test_the_networks_own_tensors_are_left_alone(name: str) -> None:
    first, last = weights_after(0), weights_after(1)
    average = AVERAGES[name]()(first, None)
    average.update(Moment.of(STEPS - 1, STEPS, EPOCHS), last)
    assert first["weight"].tolist() == [0, -1]
    assert last["weight"].tolist() == [1, -2]


def test_settings_that_make_no_sense() -> None:
    assert [problem.where for problem in problems_in(Ema(1.0))] == ["decay"]
    assert [problem.where for problem in problems_in(Swa(-0.1))] == ["start"]
    assert not problems_in(Ema()) + problems_in(Swa()) + problems_in(NoAverage())
