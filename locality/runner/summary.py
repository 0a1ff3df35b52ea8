"""What rows say together: a model's scores with their intervals, and two models on the same images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from locality.results.schema import SCORES
from locality.statistics import Paired, Summary, paired, summary


@dataclass(frozen=True)
class ModelSummary:
    """One model on one data set. `methods` has a summary of each score by method."""

    images: int
    accuracy: Summary
    methods: dict[str, dict[str, Summary]]
    distance: Summary  # of the images whose boundary was found
    found: int
    searched: int


def model_summary(rows: pd.DataFrame, seed: int = 0) -> ModelSummary:
    """The summary of one model's rows."""
    images = rows.drop_duplicates("image_id")
    accuracy = images["correct"].astype("Float64").to_numpy(dtype=np.float64, na_value=math.nan)
    found = images["found"].to_numpy(dtype=bool)
    distance = np.where(found, images["distance"].to_numpy(dtype=np.float64), math.nan)
    methods = {
        str(name): {score: summary(group[score].to_numpy(), seed=seed) for score in SCORES}
        for name, group in rows.groupby("method", sort=False)
    }
    searched = int(images["distance"].notna().sum())
    return ModelSummary(
        len(images), summary(accuracy, seed=seed), methods, summary(distance, seed=seed), int(found.sum()), searched
    )


def compared(
    first: pd.DataFrame, second: pd.DataFrame, scores: Sequence[str] = ("f1", "lift"), seed: int = 0
) -> dict[str, dict[str, Paired]]:
    """Second minus first on the images that both have: method ↦ score ↦ difference with its interval."""
    methods = [name for name in first["method"].unique() if name in set(second["method"])]
    found: dict[str, dict[str, Paired]] = {}
    for name in methods:
        one, other = (rows[rows["method"] == name].set_index("image_id") for rows in (first, second))
        found[str(name)] = {score: paired(one[score], other[score], seed=seed) for score in scores}
    return found


def as_json(value: Summary) -> dict[str, Any]:
    """Mean, ends of the interval and counts; `nan`, which JSON does not have, becomes null."""
    return {
        "mean": _number(value.mean),
        "low": _number(value.low),
        "high": _number(value.high),
        "used": value.used,
        "undefined": value.undefined,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
