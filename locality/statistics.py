"""Statistics over images or models: means with intervals, paired differences, shares, correlations.

Values are numpy arrays, pandas Series, tensors or lists; `nan` means undefined, is left out and is counted. torch, pandas
and scipy are not imported at the top, so that tables can be made without them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from locality.errors import ArgumentError
from locality.intervals import CONFIDENCE, RESAMPLES, UNBOUNDED, BootstrapMethod, Support, difference_interval
from locality.intervals import mean_interval as mean_interval
from locality.intervals import wilson_interval as wilson_interval

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike
    from torch import Tensor

    Values: TypeAlias = ArrayLike | Tensor | pd.Series

Numbers: TypeAlias = NDArray[np.float64]

SIGNIFICANT = 0.05  # p below this
EXACT_MODELS = 7  # 7! = 5,040 permutations can be enumerated; more models are permuted at random
FEWEST_MODELS = 3  # two points always lie on a line


@dataclass(frozen=True, slots=True)
class Summary:
    """The mean of the defined values with its interval, which is `nan` for fewer than two values."""

    mean: float
    low: float
    high: float
    median: float
    used: int
    undefined: int


@dataclass(frozen=True, slots=True)
class Paired:
    """Second minus first on the same images: mean, interval, Wilcoxon's p and the shares of increases and decreases."""

    difference: float
    low: float
    high: float
    p: float  # two-sided signed-rank test; 1 if nothing changed, nan if nothing can be compared
    improved: float  # share of the used images where second > first
    worsened: float  # where second < first; the rest are equal
    used: int
    undefined: int  # images where either is nan
    unmatched: int  # images that only one of the two has


@dataclass(frozen=True, slots=True)
class Difference:
    """Second minus first, of different images, with its interval; `nan` where either is undefined."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Correlation:
    """Correlation of two numbers per model; `nan` for fewer than three models or if one number is constant.

    p is the share of all permutations of the models (of 10,000 random ones for more than seven) with a correlation at least
    as strong: the usual formulas do not hold for a handful of models (they give p = 0 for three in a row).
    """

    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float
    used: int
    undefined: int  # models where either is nan
    unmatched: int  # models that only one of the two has


def summary(
    values: Values,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    support: Support = UNBOUNDED,
    method: BootstrapMethod = "percentile",
) -> Summary:
    """The mean and its interval (`intervals.mean_interval`); `support` is the range that values can have.

    Catch: the interval is about other images of the same kind, not about another training of the model.

    >>> scores = summary([0.2, 0.4, float("nan"), 0.9])
    >>> scores.mean, scores.median, scores.used, scores.undefined
    (0.5, 0.4, 3, 1)
    >>> scores.low <= scores.mean <= scores.high
    True
    """
    numbers = _numbers(values, "values")
    defined = numbers[~np.isnan(numbers)]
    low, high = mean_interval(defined, confidence=confidence, resamples=resamples, seed=seed, support=support, method=method)
    mean, median = (float(defined.mean()), float(np.median(defined))) if len(defined) else (math.nan, math.nan)
    return Summary(mean, low, high, median, len(defined), len(numbers) - len(defined))


def share(values: Values) -> Summary:
    """The share of ones among zeros and ones, with its 95 % Wilson interval: the bootstrap interval of 20 of 20 is empty.

    >>> right = share([1.0] * 20 + [float("nan")])
    >>> right.mean, round(right.low, 3), right.high, right.used, right.undefined
    (1.0, 0.8, 1.0, 20, 1)
    """
    numbers = _numbers(values, "values")
    defined = numbers[~np.isnan(numbers)]
    low, high = wilson_interval(int(defined.sum()), len(defined))
    mean, median = (float(defined.mean()), float(np.median(defined))) if len(defined) else (math.nan, math.nan)
    return Summary(mean, low, high, median, len(defined), len(numbers) - len(defined))


def paired(
    first: Values, second: Values, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Paired:
    """Two models on the same images: the mean of second − first with its interval, and Wilcoxon's p.

    Two Series are joined by their index (image ids); anything else is compared element by element and must have equal
    length. Pairs with `nan` in either are left out and counted. Wilcoxon's test ignores zero differences.

    >>> change = paired([0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.3, float("nan")])
    >>> round(change.difference, 3), round(change.improved, 3), change.used, change.undefined
    (0.1, 0.667, 3, 1)
    """
    one, other, unmatched = _joined(first, second)
    both = ~(np.isnan(one) | np.isnan(other))
    change = other[both] - one[both]
    low, high = mean_interval(change, confidence=confidence, resamples=resamples, seed=seed)
    used, undefined = len(change), len(both) - len(change)
    if used == 0:
        return Paired(math.nan, low, high, math.nan, math.nan, math.nan, 0, undefined, unmatched)
    improved, worsened = float((change > 0).mean()), float((change < 0).mean())
    return Paired(float(change.mean()), low, high, signed_rank_p(change), improved, worsened, used, undefined, unmatched)


def unpaired(first: Summary, second: Summary) -> Difference:
    """Two means or two shares of different images: second − first with its interval (`intervals.difference_interval`).

    >>> unpaired(share([0.0, 1.0]), share([1.0, 1.0])).mean
    0.5
    """
    ends = difference_interval((first.mean, first.low, first.high), (second.mean, second.low, second.high))
    return Difference(second.mean - first.mean, *ends)


def correlation(first: Values, second: Values, *, resamples: int = RESAMPLES, seed: int = 0) -> Correlation:
    """Spearman's and Pearson's correlation of two numbers per model, such as its locality and its accuracy (or ERA).

    Two Series are joined by their index (model names); anything else is compared element by element.

    >>> trend = correlation([0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 40.0])
    >>> trend.spearman, round(trend.spearman_p, 3), round(trend.pearson, 3)  # 2 of 24 permutations are as strong
    (1.0, 0.083, 0.801)
    """
    one, other, unmatched = _joined(first, second)
    both = ~(np.isnan(one) | np.isnan(other))
    one, other = one[both], other[both]
    spearman = _correlation_and_p(ranks(one), ranks(other), resamples, seed)
    pearson = _correlation_and_p(one, other, resamples, seed)
    return Correlation(*spearman, *pearson, len(one), len(both) - len(one), unmatched)


def share_summary(successes: int, trials: int) -> dict[str, float | None]:
    """A share and its 95 % Wilson interval as JSON has them: None without trials.

    >>> share_summary(5, 10)["mean"], share_summary(0, 0)["mean"]
    (0.5, None)
    """
    if trials == 0:
        return {"mean": None, "low": None, "high": None}
    low, high = wilson_interval(successes, trials)
    return {"mean": successes / trials, "low": low, "high": high}


def signed_rank_p(change: Numbers) -> float:
    """Wilcoxon's two-sided p of differences; 1 if all are zero.

    >>> round(signed_rank_p(np.array([0.1, 0.2, 0.3, 0.4, 0.5])), 4)  # 2 of 32 signs are as one-sided
    0.0625
    """
    from scipy.stats import wilcoxon

    return float(wilcoxon(change[change != 0]).pvalue) if (change != 0).any() else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, adjusted by Holm's method: any below 0.05 is wrong in at most 5 % of families.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]  # 3 · 0.01, then 2 · 0.03, never smaller than the one before
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def ranks(values: Numbers) -> Numbers:
    """Ranks from 1; equal values share the mean of theirs.

    >>> ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(mean_ranks[inverse], dtype=np.float64)


def _correlation_and_p(one: Numbers, other: Numbers, resamples: int, seed: int) -> tuple[float, float]:
    """Pearson's r and its permutation p."""
    count = len(one)
    if count < FEWEST_MODELS or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan, math.nan
    one, other = _unit(one), _unit(other)
    exact = count <= EXACT_MODELS
    if exact:
        permutations = np.array(list(itertools.permutations(range(count))))
    else:
        permutations = np.random.default_rng(seed).permuted(np.tile(np.arange(count), (resamples, 1)), axis=1)
    observed = float(one @ other)
    # Equal correlations differ by rounding; all of them count.
    as_strong = int((np.abs(other[permutations] @ one) >= abs(observed) - 1e-12).sum())
    # All permutations include the observed order; random ones do not, so it is added.
    p = as_strong / len(permutations) if exact else (as_strong + 1) / (len(permutations) + 1)
    return min(1.0, max(-1.0, observed)), p


def _unit(values: Numbers) -> Numbers:
    centred = values - values.mean()
    return np.asarray(centred / np.linalg.norm(centred))


def _joined(first: Values, second: Values) -> tuple[Numbers, Numbers, int]:
    """Both as numbers in the same order, and the number of images (or models) that only one of them has."""
    if not (_has_index(first) and _has_index(second)):
        one, other = _numbers(first, "first"), _numbers(second, "second")
        if len(one) != len(other):
            raise ValueError(
                f"`first` and `second` must be of the same images, got {len(one)} and {len(other)} values: pass two pandas "
                "Series with image ids as index to join them"
            )
        return one, other, 0
    series: tuple[Any, Any] = (first, second)
    for name, values in zip(("first", "second"), series, strict=True):
        if not values.index.is_unique:
            repeated = values.index[values.index.duplicated()][0]
            raise ValueError(f"`{name}` must have each image once in its index, got {repeated!r} twice")
    # The order of `first`, so that the seeded interval does not depend on how an index is sorted.
    shared = series[0].index[series[0].index.isin(series[1].index)]
    unmatched = len(series[0]) + len(series[1]) - 2 * len(shared)
    return _numbers(series[0].loc[shared], "first"), _numbers(series[1].loc[shared], "second"), unmatched


def _has_index(values: object) -> bool:
    """Whether it is a pandas Series; a list has a method `index`, too."""
    return hasattr(values, "to_numpy") and hasattr(values, "index")


def _numbers(values: Any, name: str) -> Numbers:
    """N float64 numbers, `nan` where undefined."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    elif _has_index(values):
        values = values.to_numpy(dtype=np.float64, na_value=math.nan)
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise ArgumentError(name, "one number per image", f"shape {numbers.shape}")
    if np.isinf(numbers).any():
        raise ArgumentError(name, "finite, or nan where undefined", math.inf, "their mean would be infinite")
    return numbers
