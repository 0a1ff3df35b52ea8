"""Scores of a data set that are not means over images: MaxBoxAccV2 and PxAP (Choe et al. 2020), with bootstrap intervals.

This module does not import torch: tables compute the scores from what is stored per image (`scores/localisation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locality.intervals import CONFIDENCE
from locality.statistics import Summary

LEVELS = 256  # of a map; there are 255 thresholds between them
OVERLAPS = (0.3, 0.5, 0.7)  # the IoU that a box must reach
RESAMPLES = 1000  # each has a maximum over thresholds, so they cost more than those of a mean
BLOCK = 100  # resamples at once
Array = NDArray[Any]


def max_box_accuracy(
    overlaps: Array, reach: tuple[float, ...] = OVERLAPS, *, resamples: int = RESAMPLES, seed: int = 0
) -> Summary:
    """MaxBoxAccV2: the mean over δ in `reach` of max_t (1/N)·Σ 1[IoU_i(t) ≥ δ], from N×T best overlaps.

    Rows that are `nan` are undefined. The catch: the threshold is chosen on the same images, so small data sets score too
    high, and so do resamples of them: the interval is the basic bootstrap's, which moves the other way.

    >>> max_box_accuracy(np.array([[0.8, 0.4], [0.2, 0.6]]), (0.5,)).mean  # no threshold finds both
    0.5
    """
    defined = ~np.isnan(overlaps).any(axis=1)
    used = overlaps[defined]
    hits = np.concatenate([used >= share - 1e-6 for share in reach], axis=1).astype(np.float64)  # N×(δ·T)

    def score(weights: Array) -> Array:
        return np.asarray((weights @ hits).reshape(len(weights), len(reach), -1).max(2).mean(1))

    return _summary(score, len(used), int((~defined).sum()), resamples, seed)


def pixel_average_precision(inside: Array, outside: Array, *, resamples: int = RESAMPLES, seed: int = 0) -> Summary:
    """PxAP: Σ_t Pre(t)·(Rec(t) − Rec(t + 1)) over the pixels of all images, from N×L histograms of their levels.

    Chance is the region's share of all pixels. Images without a pixel, whose maps are undefined, count as such.

    >>> pixel_average_precision(np.array([[0, 1, 2]]), np.array([[3, 1, 0]])).mean  # 2/3 at 1, 1/3 at 3/4
    0.9166666666666666
    """
    defined = (inside.sum(1) + outside.sum(1)) > 0
    good, bad = (counts[defined][:, ::-1].cumsum(1).astype(np.float64) for counts in (inside, outside))

    def score(weights: Array) -> Array:
        hits, misses = weights @ good, weights @ bad  # of the pixels at or above each level, from the highest
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = hits / (hits + misses)
            gain = np.diff(hits, axis=1, prepend=0) / hits[:, -1:]
        return np.asarray((np.nan_to_num(precision) * gain).sum(1))  # nan without any pixel inside

    return _summary(score, int(defined.sum()), int((~defined).sum()), resamples, seed)


def _summary(score: Callable[[Array], Array], used: int, undefined: int, resamples: int, seed: int) -> Summary:
    """The score of all images with its interval; `score` takes B×N weights that sum to 1."""
    if used == 0:
        return Summary(np.nan, np.nan, np.nan, np.nan, 0, undefined)
    value = float(score(np.full((1, used), 1 / used))[0])
    if used == 1 or np.isnan(value):
        return Summary(value, np.nan, np.nan, np.nan, used, undefined)
    draws = np.random.default_rng(seed)
    drawn = [
        score(draws.multinomial(used, np.full(used, 1 / used), size=min(BLOCK, resamples - start)) / used)
        for start in range(0, resamples, BLOCK)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(np.concatenate(drawn), [tail, 1 - tail])
    return Summary(value, max(0.0, 2 * value - float(high)), min(1.0, 2 * value - float(low)), value, used, undefined)
