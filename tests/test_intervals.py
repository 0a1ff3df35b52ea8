"""Intervals cover what they promise, also of few and of skewed values."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from locality.intervals import difference_interval, mean_interval, t_quantile, wilson_interval
from locality.report.estimates import estimates

COVERAGE = json.loads((Path(__file__).resolve().parents[1] / "bench/results/coverage.json").read_text(encoding="utf-8"))
Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]


@pytest.mark.parametrize("size", [5, 8, 10, 30])
@pytest.mark.parametrize(
    ("draw", "true"),
    [
        (lambda random, shape: random.normal(0.3, 0.2, shape), 0.3),
        (lambda random, shape: random.beta(6, 2, shape), 0.75),  # as F1 of good models
        (lambda random, shape: random.lognormal(0, 0.5, shape), float(np.exp(0.125))),  # as distances
    ],
)
def test_coverage_of_the_mean(draw: Draw, true: float, size: int) -> None:
    """Percentile intervals cover 77 to 88 % at 8 images."""
    samples = draw(np.random.default_rng(size), (2000, size))
    covered = np.mean([one.low <= true <= one.high for one in estimates(list(samples), resamples=1000)])
    assert 0.92 <= covered <= 0.98


def test_coverage_of_a_difference_of_different_images() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(0.0, 1.0, (2000, 50)), random.normal(0.3, 3.0, (2000, 80))

    def centred(values: NDArray[np.float64]) -> tuple[float, float, float]:
        half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
        return values.mean(), values.mean() - half, values.mean() + half

    ends = [difference_interval(centred(one), centred(other)) for one, other in zip(first, second, strict=True)]
    assert 0.935 <= np.mean([low <= 0.3 <= high for low, high in ends]) <= 0.965
    low, high = difference_interval((0.1, 0.0, 0.5), (0.3, 0.2, 0.35))  # each end depends on one end of either
    assert (low, high) == pytest.approx((0.2 - math.hypot(0.1, 0.4), 0.2 + math.hypot(0.05, 0.1)))


def test_quantiles_of_student_s_t() -> None:
    for degrees in range(1, 30):
        for probability in (0.75, 0.975, 0.995):
            assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9)


def test_few_values_have_at_least_student_s_interval() -> None:
    values = np.array([0.1, 0.4, 0.5, 0.9, 0.95])
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    low, high = mean_interval(values)
    assert low <= expected[0] + 1e-12
    assert high >= expected[1] - 1e-12
    assert mean_interval(values, support=(0.0, 1.0)) == (max(low, 0.0), 1.0)


def test_few_skewed_values_reach_farther_to_the_long_side() -> None:
    values = np.random.default_rng(0).lognormal(0, 1, 10)
    low, high = mean_interval(values)
    assert high - values.mean() > 1.2 * (values.mean() - low)


@pytest.mark.parametrize(("size", "share"), [(20, 0.999), (10, 0.999), (30, 0.9), (200, 0.95)])
def test_wilson_covers_where_the_bootstrap_did_not(size: int, share: float) -> None:
    """The bootstrap interval covered 19 % at a share of 0.999."""
    covered = 0.0
    for successes in range(size + 1):
        low, high = wilson_interval(successes, size)
        covered += stats.binom.pmf(successes, size, share) * (low <= share <= high)
    assert covered >= 0.93


def test_measured_coverage_is_near_what_is_printed() -> None:
    """On the stored results, on average over models and methods."""
    assert set(COVERAGE["coverage"]) >= {"f1", "lift", "precision", "recall", "distance", "f1 difference", "share (Wilson)"}
    for kind, sizes in COVERAGE["coverage"].items():
        assert set(sizes) == {"5", "10", "30", "200"}
        if kind == "share (Wilson)":
            assert all(row["lowest"] >= 0.93 for row in sizes.values())
        else:
            assert all(0.92 <= row["mean"] <= 0.97 for row in sizes.values()), kind
    assert max(COVERAGE["false verdicts"].values()) <= 0.05
