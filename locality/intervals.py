"""Confidence intervals: of a mean, by the bootstrap; of a share, by Wilson's formula; of a difference, from two others.

`bench/coverage.py` measures how often they contain the true value.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from locality.errors import ArgumentError, unknown_choice

Numbers: TypeAlias = NDArray[np.float64]
Support: TypeAlias = tuple[float, float]  # the range that values can have, and so their mean
BootstrapMethod: TypeAlias = Literal["percentile", "bca"]
Centred: TypeAlias = tuple[float, float, float]  # a mean, and the low and high end of its interval

UNBOUNDED: Support = (-math.inf, math.inf)
RESAMPLES = 10_000
CONFIDENCE = 0.95
BLOCK = 2**21  # values drawn at once by the bootstrap: 32 MB, whatever the number of images
FEW = 30  # up to so many values, percentile intervals are too narrow
LEAST_ERROR = 0.2  # of a resample's standard error, relative to the sample's: a resample can be one value repeated


def mean_interval(
    values: Numbers,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    support: Support = UNBOUNDED,
    method: BootstrapMethod = "percentile",
) -> tuple[float, float]:
    """Lower and upper end of the interval of the mean, within the support; `nan` for fewer than two values.

    More than 30 values: the percentile bootstrap, the quantiles (1 ± confidence)/2 of the means of resampled values, or
    with `method="bca"` scipy's bias-corrected and accelerated bootstrap. Up to 30 values: `few_values_intervals`.

    >>> mean_interval(np.array([0.5, 0.5, 0.5]))
    (0.5, 0.5)
    """
    if not 0 < confidence < 1:
        raise ArgumentError("confidence", "between 0 and 1", confidence, "0.95 is usual")
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 1:
        raise ArgumentError("resamples", "a whole number of at least 1", resamples)
    if method not in get_args(BootstrapMethod):
        raise unknown_choice("method", method, get_args(BootstrapMethod))
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    if count <= FEW:
        lows, highs = few_values_intervals(values[:, None], confidence, resamples, seed)
        return within(float(lows[0]), float(highs[0]), support)
    if method == "bca":
        return within(*_bca(values, confidence, resamples, seed), support)
    # scipy.stats.bootstrap gives the same numbers from the same seed. Tables are printed without it: importing scipy.stats
    # takes longer than reading the results.
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, BLOCK // count)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = values[random.integers(0, count, (stop - start, count))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return within(float(low), float(high), support)


def _bca(values: Numbers, confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    from scipy.stats import bootstrap

    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])  # the acceleration of a constant is undefined
    rows, random = max(1, BLOCK // len(values)), np.random.default_rng(seed)
    interval = bootstrap(
        (values,), np.mean, n_resamples=resamples, batch=rows, confidence_level=confidence, method="BCa", rng=random
    ).confidence_interval
    return float(interval.low), float(interval.high)


def few_values_intervals(
    columns: Numbers, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Numbers, Numbers]:
    """Lower and upper ends of the intervals of the means of n×K values, for small n.

    Each end is the farther one of Student's t interval, which holds for symmetric values, and of the bootstrap-t interval,
    which follows their skewness. Either alone covers less than 92 % of the means of skewed scores.

    >>> low, high = few_values_intervals(np.array([[1.0], [2.0], [3.0]]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)  # 2 ± 5: many resamples are one value repeated
    (-3.0, 7.0)
    """
    count = len(columns)
    centre = columns.mean(axis=0)
    offset = columns - centre
    error = offset.std(axis=0, ddof=1) / math.sqrt(count)
    drawn = np.random.default_rng(seed).integers(0, count, (resamples, count)) + count * np.arange(resamples)[:, None]
    weights = np.bincount(drawn.ravel(), minlength=resamples * count).reshape(resamples, count) / count
    means = weights @ offset
    variances = np.maximum(weights @ offset**2 - means**2, 0.0)
    errors = np.maximum(np.sqrt(variances / (count - 1)), LEAST_ERROR * error)
    studentised = np.divide(means, errors, out=np.zeros_like(means), where=errors > 0)
    low, high = np.quantile(studentised, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    student = t_quantile((1 + confidence) / 2, count - 1)
    return centre - np.maximum(high, student) * error, centre + np.maximum(-low, student) * error


@functools.cache
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile above 1/2 of Student's t distribution, whose cdf is a finite sum for whole degrees of freedom.

    >>> round(t_quantile(0.975, 4), 4), round(t_quantile(0.975, 29), 4)
    (2.7764, 2.0452)
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_share(middle, degrees) < 2 * probability - 1 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _central_share(angle: float, degrees: int) -> float:
    """P(|T| < √ν tan θ): formulas 26.7.3 and 26.7.4 of Abramowitz and Stegun."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def within(low: float, high: float, support: Support) -> tuple[float, float]:
    """The interval without what lies outside the support.

    >>> within(0.7, 1.1, (0.0, 1.0))
    (0.7, 1.0)
    """
    return max(low, support[0]), min(high, support[1])


def wilson_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Wilson score interval of a share, with continuity correction; `nan` without trials.

    Its lower end is the share π below the observed one, p, for which (p − 1/2n − π)² = z² π(1 − π)/n; its upper end
    likewise with p + 1/2n (Newcombe 1998, method 4). Without the correction as few as 83 % of the intervals of shares near 0
    or 1 contain the share; with it 95 % or more, and 96 % (200 trials) to 99 % (5 trials) on average.

    >>> low, high = wilson_interval(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.345)
    """
    if not 0 <= successes <= trials:
        raise ArgumentError("successes", f"from 0 to the number of trials, {trials}", successes)
    if trials == 0:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    low = 0.0 if successes == 0 else _score_end(successes - 0.5, trials, -z)
    high = 1.0 if successes == trials else _score_end(successes + 0.5, trials, z)
    return low, high


def _score_end(successes: float, trials: int, z: float) -> float:
    """One end of the score interval of a share p, the lower if z < 0: (p + z²/2n + z√(p(1 − p)/n + z²/4n²)) / (1 + z²/n)."""
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (centre + half) / (1 + z * z / trials)


def difference_interval(first: Centred, second: Centred) -> tuple[float, float]:
    """The interval of second − first, two numbers of different images, from the mean, low and high end of each.

    Each end is d ± √(a² + b²), where a and b are the distances from the means to the ends that it depends on (Zou and
    Donner 2008). Of two Wilson intervals it is Newcombe's interval (1998, method 11).

    >>> low, high = difference_interval((0.6, *wilson_interval(48, 80)), (0.8, *wilson_interval(56, 70)))
    >>> round(low, 4), round(high, 4)  # Newcombe's first example
    (0.0428, 0.3422)
    """
    difference = second[0] - first[0]
    below = math.hypot(second[0] - second[1], first[2] - first[0])
    above = math.hypot(second[2] - second[0], first[0] - first[1])
    return difference - below, difference + above
