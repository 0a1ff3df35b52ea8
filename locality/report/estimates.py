"""Means over images with 95 % intervals, for many columns at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from locality.intervals import (
    BLOCK,
    CONFIDENCE,
    FEW,
    RESAMPLES,
    UNBOUNDED,
    Support,
    few_values_intervals,
    wilson_interval,
    within,
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of the defined values with its 95 % interval and standard error; `nan` where there are too few values."""

    mean: float
    low: float
    high: float
    median: float
    standard_error: float
    used: int
    undefined: int


def estimates(
    columns: Sequence[ArrayLike],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    supports: Sequence[Support] | None = None,
) -> list[Estimate]:
    """One estimate per column, with the interval of `statistics.summary` and the standard error s/√n.

    Columns with equally many defined values are resampled together: a resample is a vector of counts, and counts · values
    gives the means of all columns at once. A hundred columns take about as long as two.

    >>> [estimate] = estimates([[0.2, 0.4, float("nan"), 0.9]])
    >>> round(estimate.mean, 3), estimate.median, round(estimate.standard_error, 3), estimate.used, estimate.undefined
    (0.5, 0.4, 0.208, 3, 1)
    """
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    defined = [array[~np.isnan(array)] for array in arrays]
    intervals: list[tuple[float, float]] = [(math.nan, math.nan)] * len(arrays)
    by_size: dict[int, list[int]] = defaultdict(list)
    for index, values in enumerate(defined):
        by_size[len(values)].append(index)
    for size, indices in by_size.items():
        if size >= 2:
            values = np.stack([defined[index] for index in indices], axis=1)
            if size <= FEW:
                lows, highs = few_values_intervals(values, CONFIDENCE, resamples, seed)
            else:
                means = _resampled_means(values, resamples, seed)
                lows, highs = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
            for index, low, high in zip(indices, lows.tolist(), highs.tolist(), strict=True):
                intervals[index] = within(low, high, UNBOUNDED if supports is None else supports[index])
    return [
        _estimate(values, interval, len(array) - len(values))
        for array, values, interval in zip(arrays, defined, intervals, strict=True)
    ]


def share_estimate(values: NDArray[np.float64]) -> Estimate:
    """The share of ones among zeros and ones, with its Wilson interval: the bootstrap interval of 30 of 30 is empty.

    >>> estimate = share_estimate(np.ones(30))
    >>> estimate.mean, round(estimate.low, 3), estimate.high
    (1.0, 0.859, 1.0)
    """
    defined = values[~np.isnan(values)]
    return _estimate(defined, wilson_interval(int(defined.sum()), len(defined)), len(values) - len(defined))


def floats(column: pd.Series) -> NDArray[np.float64]:
    """The column as float64, `nan` where a value is missing; booleans become 1 and 0."""
    if column.dtype == object:
        column = pd.to_numeric(column.map(lambda value: math.nan if pd.isna(value) else float(value)))
    values: NDArray[np.float64] = column.astype("Float64").to_numpy(dtype=np.float64, na_value=math.nan)
    return values


def boundary_distances(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The boundary distance of each row, `nan` where no boundary was found (stored as inf)."""
    distance = floats(rows["distance"])
    return np.where(floats(rows["found"]) == 1, distance, math.nan)


def _estimate(values: NDArray[np.float64], interval: tuple[float, float], undefined: int) -> Estimate:
    count = len(values)
    if count == 0:
        return Estimate(math.nan, *interval, math.nan, math.nan, 0, undefined)
    error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Estimate(float(values.mean()), *interval, float(np.median(values)), error, count, undefined)


def _resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """resamples×K means of the columns of n×K values, from the resamples that `statistics.mean_interval` draws."""
    count = len(values)
    random = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    rows = max(1, BLOCK // count)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = random.integers(0, count, (stop - start, count)) + count * np.arange(stop - start)[:, None]
        times = np.bincount(drawn.ravel(), minlength=(stop - start) * count).reshape(stop - start, count)
        means[start:stop] = times.astype(np.float64) @ values / count
    return means
