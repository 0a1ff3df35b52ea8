"""The table `localisation`: what MaxBoxAccV2 and PxAP are computed from, one row per map. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.pooled_scores import LEVELS, max_box_accuracy, pixel_average_precision
from locality.results.schema import Schema
from locality.statistics import Summary

MODEL_FREE = "model-free: "  # begins the method of maps that depend on neither the model nor the image
# One row per model × image × method. Arrays are bytes.
LOCALISATION: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "overlaps": bytes,  # 255 float32: the best IoU of a box at each threshold; nan where undefined
    "inside": bytes,  # 256 int32: pixels of each level inside the region
    "outside": bytes,  # 256 int32
}
# Scores of a data set by name: the rows of one model and method ↦ the score with its interval.
POOLED_SCORES: dict[str, Callable[[pd.DataFrame], Summary]] = {
    "max_box_acc_v2": lambda rows: max_box_accuracy(arrays(rows, "overlaps")),
    "px_ap": lambda rows: pixel_average_precision(arrays(rows, "inside"), arrays(rows, "outside")),
}


def arrays(rows: pd.DataFrame, column: str) -> NDArray[np.float32] | NDArray[np.int32]:
    """A column of arrays as one array with a row per map."""
    if column == "overlaps":
        return np.frombuffer(b"".join(rows[column]), dtype=np.float32).reshape(-1, LEVELS - 1)
    return np.frombuffer(b"".join(rows[column]), dtype=np.int32).reshape(-1, LEVELS)


def region_share(rows: pd.DataFrame) -> float:
    """The share of all pixels that lies inside the regions: chance of PxAP; `nan` without any pixel."""
    inside, outside = (int(arrays(rows, column).sum(dtype=np.int64)) for column in ("inside", "outside"))
    return inside / (inside + outside) if inside + outside else float("nan")


def pooled_scores(table: pd.DataFrame, names: Sequence[str]) -> dict[str, dict[str, Summary]]:
    """Method ↦ score ↦ its value and interval, of one model's rows."""
    methods = table.groupby("method", sort=False)
    return {str(method): {name: POOLED_SCORES[name](rows) for name in names} for method, rows in methods}
