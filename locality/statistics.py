"""Statistics over images or models: means with bootstrap intervals, paired differences, shares, correlations.

Values are numpy arrays, pandas Series, tensors or lists; `nan` means undefined, is left out and is counted. torch, pandas
and scipy are not imported at the top, so that tables can be made without them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from locality.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike
    from torch import Tensor

    Values: TypeAlias = ArrayLike | Tensor | pd.Series

Numbers: TypeAlias = NDArray[np.float64]

RESAMPLES = 10_000
CONFIDENCE = 0.95
BLOCK = 2**21  # values drawn at once by the bootstrap: 32 MB, whatever the number of images
EXACT_MODELS = 7  # 7! = 5,040 permutations can be enumerated; more models are permuted at random
FEWEST_MODELS = 3  # two points always lie on a line


@dataclass(frozen=True, slots=True)
class Summary:
    """The mean of the defined values with its bootstrap interval, which is `nan` for fewer than two values."""

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


def summary(values: Values, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0) -> Summary:
    """The mean and its percentile bootstrap interval: the quantiles (1 ± confidence)/2 of the means of resampled images.

    Catch: the interval is about other images of the same kind, not about another training of the model.

    >>> scores = summary([0.2, 0.4, float("nan"), 0.9])
    >>> scores.mean, scores.median, scores.used, scores.undefined
    (0.5, 0.4, 3, 1)
    >>> scores.low <= scores.mean <= scores.high
    True
    """
    numbers = _numbers(values, "values")
    defined = numbers[~np.isnan(numbers)]
    low, high = mean_interval(defined, confidence=confidence, resamples=resamples, seed=seed)
    mean, median = (float(defined.mean()), float(np.median(defined))) if len(defined) else (math.nan, math.nan)
    return Summary(mean, low, high, median, len(defined), len(numbers) - len(defined))


def paired(
    first: Values, second: Values, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> Paired:
    """Two models on the same images: the mean of second − first with its bootstrap interval, and Wilcoxon's p.

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


def mean_interval(
    values: Numbers, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Lower and upper end of the percentile bootstrap interval of the mean; `nan` for fewer than two values.

    >>> mean_interval(np.array([0.5, 0.5, 0.5]))
    (0.5, 0.5)
    """
    if not 0 < confidence < 1:
        raise ArgumentError("confidence", "between 0 and 1", confidence, "0.95 is usual")
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 1:
        raise ArgumentError("resamples", "a whole number of at least 1", resamples)
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, BLOCK // count)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = values[random.integers(0, count, (stop - start, count))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def wilson_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Wilson score interval of a share: (p + z²/2n ± z√(p(1 − p)/n + z²/4n²)) / (1 + z²/n); `nan` without trials.

    >>> low, high = wilson_interval(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.278)
    """
    if not 0 <= successes <= trials:
        raise ArgumentError("successes", f"from 0 to the number of trials, {trials}", successes)
    if trials == 0:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # At the ends the two terms are equal up to rounding.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == trials else (centre + half) / scale
    return low, high


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
