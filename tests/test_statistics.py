"""Means with intervals, paired comparisons and correlations, against scipy and answers known by hand."""

import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import locality.intervals as intervals
import locality.statistics as statistics
from locality.statistics import (
    correlation,
    holm,
    mean_interval,
    paired,
    ranks,
    share_summary,
    signed_rank_p,
    summary,
    wilson_interval,
)

NAN = math.nan
VALUES = np.random.default_rng(5).beta(2, 3, 400)


def test_the_interval_agrees_with_scipy() -> None:
    found = summary(VALUES, seed=3)
    expected = stats.bootstrap((VALUES,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(3))
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval), rel=1e-12)
    wide = stats.bootstrap(
        (VALUES,), np.mean, n_resamples=10_000, confidence_level=0.5, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert summary(VALUES, confidence=0.5).low == pytest.approx(wide.low, rel=1e-12)
    assert (found.mean, found.median) == (VALUES.mean(), np.median(VALUES))


def test_bca_is_efron_s_formula() -> None:
    """The quantiles Φ(z₀ + (z₀ + z)/(1 − a(z₀ + z))): z₀ from the share of smaller resampled means, a from the jackknife."""
    values = np.random.default_rng(5).exponential(1.0, 60)
    drawn = np.random.default_rng(0).integers(0, 60, (10_000, 60))
    means = values[drawn].mean(axis=1)
    share = ((means < values.mean()).mean() + (means <= values.mean()).mean()) / 2
    bias = stats.norm.ppf(share)
    without = values.mean() - (values.sum() - values) / 59
    acceleration = (without**3).sum() / (6 * (without**2).sum() ** 1.5)
    quantiles = bias + stats.norm.ppf([0.025, 0.975])
    levels = stats.norm.cdf(bias + quantiles / (1 - acceleration * quantiles))
    assert mean_interval(values, method="bca") == pytest.approx(tuple(np.quantile(means, levels)), rel=1e-9)
    percentile = mean_interval(values)
    assert mean_interval(values, method="bca") > percentile  # skewed to the right
    assert summary(values, method="bca").high > percentile[1]
    assert mean_interval(np.full(40, 0.5), method="bca") == (0.5, 0.5)
    with pytest.raises(ValueError, match="`method` must be one of percentile, bca"):
        mean_interval(values, method="basic")  # type: ignore[arg-type]


def test_the_interval_of_many_values_is_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(3, 2, 5000)
    low, high = mean_interval(values)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 5000**0.5, rel=0.04)
    assert (high + low) / 2 == pytest.approx(values.mean(), abs=0.002)


def test_the_seed_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    state = np.random.get_state()[1].tolist()  # type: ignore[index]
    found = summary(VALUES, seed=3)
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index]
    assert found == summary(VALUES, seed=3)
    assert found.low != summary(VALUES, seed=4).low
    monkeypatch.setattr(intervals, "BLOCK", 1234)  # blocks of three resamples
    assert found == summary(VALUES, seed=3)
    monkeypatch.setattr(intervals, "BLOCK", 1)
    assert found == summary(VALUES, seed=3)


def test_memory_does_not_grow_with_the_values() -> None:
    values = np.random.default_rng(0).random(50_000)
    tracemalloc.start()
    mean_interval(values, resamples=300)  # 15 million draws, 240 MB at once
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        lambda values: np.array(values, dtype=np.float32).astype(object),
        pd.Series,
        lambda values: pd.Series([None if value != value else value for value in values], dtype="Float64"),
        lambda values: torch.tensor(values, requires_grad=True),
        lambda values: torch.tensor(values, dtype=torch.bfloat16),
    ],
)
def test_values_in_every_form(make: Callable[[list[float]], Any]) -> None:
    found = summary(make([0.25, NAN, 0.5, 1.0, NAN]))
    assert found.mean == pytest.approx(1.75 / 3)
    assert (found.median, found.used, found.undefined) == (0.5, 3, 2)
    assert found.low < found.mean < found.high


def test_few_values_have_no_interval() -> None:
    one = summary([NAN, 0.5])
    assert (one.mean, one.median, one.used, one.undefined) == (0.5, 0.5, 1, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    none = summary([NAN, NAN, NAN])
    assert all(math.isnan(value) for value in (none.mean, none.low, none.high, none.median))
    assert (none.used, none.undefined) == (0, 3)
    assert summary([]).undefined == 0
    same = summary([0.5] * 4)
    assert (same.mean, same.low, same.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: summary([1.0, math.inf]), "`values` must be finite, or nan where undefined, got inf"),
        (lambda: summary(np.ones((2, 2))), r"`values` must be one number per image, got 'shape \(2, 2\)'"),
        (lambda: summary([1.0, 2.0], confidence=95), "`confidence` must be between 0 and 1, got 95"),
        (lambda: summary([1.0, 2.0], resamples=0), "`resamples` must be a whole number of at least 1, got 0"),
        (lambda: paired([1.0, 2.0], [1.0]), "`first` and `second` must be of the same images, got 2 and 1 values"),
        (lambda: paired([1.0], [-math.inf]), "`second` must be finite"),
        (lambda: paired(pd.Series([1.0, 2.0], ["a", "a"]), pd.Series([1.0], ["a"])), "`first` must have .* got 'a' twice"),
        (lambda: correlation(pd.Series([1.0], ["a"]), pd.Series([1.0, 2.0], ["b", "b"])), "`second` .* got 'b' twice"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_pairs_by_hand() -> None:
    found = paired([0.1, 0.2, 0.3, 0.4, NAN, 0.6], [0.2, 0.1, 0.6, 0.4, 0.5, NAN])
    assert found.difference == pytest.approx((0.1 - 0.1 + 0.3 + 0) / 4)
    assert (found.improved, found.worsened) == (0.5, 0.25)
    assert (found.used, found.undefined, found.unmatched) == (4, 2, 0)
    assert found.low < found.difference < found.high


def test_a_paired_interval_is_narrower_than_those_of_the_means() -> None:
    """Images differ much more than models do."""
    better = VALUES + 0.01 + 0.02 * np.random.default_rng(1).standard_normal(400)
    found = paired(VALUES, better)
    assert found.low > 0.005
    assert found.high - found.low < 0.3 * (summary(VALUES).high - summary(VALUES).low)
    assert found.low == pytest.approx(summary(better - VALUES).low)
    assert found.p == stats.wilcoxon(better, VALUES).pvalue < 1e-6
    back = paired(better, VALUES)
    assert [back.difference, back.p] == pytest.approx([-found.difference, found.p])
    assert (back.improved, back.worsened) == (found.worsened, found.improved)


def test_pairs_are_joined_by_image() -> None:
    ids = [f"image {number}" for number in range(400)]
    first = pd.Series(VALUES, index=ids)
    second = pd.Series(VALUES**2, index=ids)
    expected = paired(first, second)
    shuffled = second.sample(frac=1, random_state=0)
    assert paired(first, shuffled) == expected
    assert paired(VALUES, VALUES**2) == expected
    fewer = paired(first.iloc[:300], pd.concat([shuffled, pd.Series({"other": 0.5})]))
    assert (fewer.used, fewer.unmatched) == (300, 101)
    assert fewer.difference == pytest.approx((VALUES**2 - VALUES)[:300].mean())
    apart = paired(first, pd.Series([0.1, 0.2], index=["x", "y"]))
    assert (apart.used, apart.unmatched) == (0, 402)
    assert all(math.isnan(value) for value in (apart.difference, apart.low, apart.high, apart.p, apart.improved))


def test_wilcoxon_with_zeros_and_few_images() -> None:
    same = paired([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.low, same.high, same.p, same.improved, same.worsened) == (0, 0, 0, 1, 0, 0)
    change = np.array([0.0, 0.0, 0.1, -0.2, 0.3, 0.4, 0.5])
    assert signed_rank_p(change) == pytest.approx(stats.wilcoxon(change[2:]).pvalue)
    assert signed_rank_p(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(2 / 16)
    one = paired([0.1], [0.3])
    assert one.difference == pytest.approx(0.2)
    assert (one.p, one.improved, one.used) == (1, 1, 1)
    assert math.isnan(one.low)
    none = paired([NAN], [0.3])
    assert math.isnan(none.p)
    assert none.undefined == 1


def test_ranks_agree_with_scipy() -> None:
    for values in (VALUES, np.round(VALUES, 1), np.array([2.0]), np.ones(4)):
        assert ranks(values).tolist() == stats.rankdata(values).tolist()


def test_a_share_and_its_interval() -> None:
    assert share_summary(3, 4) == {"mean": 0.75, "low": wilson_interval(3, 4)[0], "high": wilson_interval(3, 4)[1]}
    assert share_summary(0, 0) == {"mean": None, "low": None, "high": None}


def test_neither_torch_nor_scipy_is_imported() -> None:
    code = "import sys, numpy as np, locality.statistics as s; s.summary([1.0, 2.0]); s.correlation([1, 2, 3], [1, 3, 2])"
    code += "; assert not {'torch', 'pandas', 'scipy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_correlations_agree_with_scipy() -> None:
    random = np.random.default_rng(2)
    for count in (3, 4, 5):
        one = random.random(count)
        other = 0.7 * one + 0.3 * random.random(count) ** 3
        other[0] = other[1]  # a tie
        found = correlation(one, other)
        assert found.spearman == pytest.approx(stats.spearmanr(one, other).statistic)
        assert found.pearson == pytest.approx(stats.pearsonr(one, other).statistic)
        for name, statistic in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            exact = stats.permutation_test(
                (one,),
                lambda x, f=statistic, y=other: abs(f(x, y).statistic),
                permutation_type="pairings",
                alternative="greater",
                n_resamples=math.inf,
            )
            assert getattr(found, f"{name}_p") == pytest.approx(exact.pvalue, abs=1e-9), (count, name)
        assert found.used == count


def test_correlations_of_many_models_are_shuffled() -> None:
    random = np.random.default_rng(3)
    one, two = random.random((2, 12))
    found = correlation(one, two)
    assert found.pearson_p == pytest.approx(stats.pearsonr(one, two).pvalue, abs=0.03)
    strong = correlation(one, one + 0.01 * two)
    assert strong.pearson_p == strong.spearman_p == 1 / 10_001  # never 0
    assert correlation(one, two, seed=1).pearson_p != found.pearson_p


def test_undefined_correlations() -> None:
    for one, other in (
        ([1.0, 2.0], [3.0, 5.0]),
        ([1.0, 2.0, NAN], [3.0, 5.0, 6.0]),
        ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]),
        ([], []),
    ):
        found = correlation(one, other)
        assert all(math.isnan(value) for value in (found.spearman, found.spearman_p, found.pearson, found.pearson_p))
        assert found.used + found.undefined == len(one)
    locality = pd.Series({"a": 0.1, "b": 0.2, "c": 0.5, "d": NAN, "e": 0.9})
    accuracy = pd.Series({"e": 0.1, "d": 0.2, "c": 0.3, "b": 0.4, "f": 1.0})
    found = correlation(locality, accuracy)
    assert (found.used, found.undefined, found.unmatched) == (3, 1, 2)
    assert found.spearman == pytest.approx(-1)
    assert found.spearman_p == pytest.approx(2 / 6)


def test_neither_torch_nor_pandas_is_needed() -> None:
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('alone', {statistics.__file__!r})\n"
        "alone = importlib.util.module_from_spec(spec); sys.modules['alone'] = alone; spec.loader.exec_module(alone)\n"
        "assert alone.summary([1.0, 2.0]).mean == 1.5\n"
        "heavy = {'torch', 'pandas', 'scipy.stats'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (3, 7), (431, 500), (1, 4), (999, 1000)])
def test_the_interval_is_wilson_s_with_continuity_correction(successes: int, trials: int) -> None:
    for confidence in (0.95, 0.8):
        expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilsoncc")
        assert wilson_interval(successes, trials, confidence) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize("trials", [5, 10, 30, 200])
def test_no_share_is_covered_by_less_than_94_per_cent(trials: int) -> None:
    shares = np.arange(1, 1000) / 1000
    covered = np.zeros(len(shares))
    for successes in range(trials + 1):
        low, high = wilson_interval(successes, trials)
        covered += stats.binom.pmf(successes, trials, shares) * ((low <= shares) & (shares <= high))
    assert covered.min() > 0.94  # 0.83 to 0.92 without the correction
    assert 0.96 < covered.mean() < 0.99


def test_no_trials_and_too_many_successes() -> None:
    assert all(math.isnan(end) for end in wilson_interval(0, 0))
    with pytest.raises(ValueError, match="`successes` must be from 0 to the number of trials, 2, got 3"):
        wilson_interval(3, 2)


def test_holm_by_hand() -> None:
    """Sorted p times the number that is left, never smaller than the one before, at most 1."""
    assert holm([0.2, 0.001, 0.03, 0.8]) == pytest.approx([0.4, 0.004, 0.09, 0.8])
    assert holm([0.04]) == [0.04]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
