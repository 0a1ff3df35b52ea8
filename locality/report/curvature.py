"""Curvature and robust gap of each model, from the rows of the measurement `curvature`; torch is not needed."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from locality.intervals import CONFIDENCE, difference_interval
from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import Estimate, estimates, floats, share_estimate
from locality.results.results import Results
from locality.types import Threat

NORMAL = 1.959963984540054  # standard errors of a 95 % interval
assert CONFIDENCE == 0.95


@dataclass(frozen=True, eq=False)
class Curved:
    """What is known about a model's curvature."""

    index: Estimate  # WCI; its interval is that of the probes, and of no width where traces are exact
    upper: float
    top_trace: Estimate  # over training images
    train_loss: Estimate  # robust cross-entropy of the training images
    loss_gap: Estimate  # robust cross-entropy, test − train
    error_gap: Estimate  # robust error, test − train
    clipped: int  # layers with a negative trace
    layers: int
    method: str
    images: int  # training images of the traces
    threat: Threat
    steps: int

    @property
    def usable_index(self) -> Estimate:
        """WCI, undefined where most traces are negative and so no part of it."""
        return self.index if 2 * self.clipped <= self.layers else replace(self.index, mean=math.nan, used=0)


@functools.lru_cache(maxsize=2)
def curvatures(results: Results) -> dict[str, Curved]:
    """The curvature of every model that it was measured for."""
    if not {"curvature", "curvature_models", "curvature_images"} <= set(results):
        raise NotMeasuredError("curvature was not measured")
    images = dict(iter(results["curvature_images"].groupby(["model", "split"], sort=False)))
    layers = dict(iter(results["curvature"].groupby("model", sort=False)))
    nothing = results["curvature_images"].iloc[:0]
    curved = {}
    for name, rows in results["curvature_models"].groupby("model", sort=False):
        train, test = (images.get((name, split), nothing) for split in ("train", "test"))
        curved[str(name)] = _curved(rows, layers[name], train, test)
    return curved


def index_and_upper(layers: pd.DataFrame) -> tuple[float, float, int]:
    """WCI = Σ ‖W‖ √trace, its bound √Σ‖W‖² √Σtrace, and the number of negative traces, which count as 0.

    Rows of pieces of a unit are means over their images: the trace of all images is their mean, weighted by `images`.

    >>> pieces = pd.DataFrame({"layer": "a", "images": [1, 3], "weight_norm": 2.0, "trace": [1.0, 5.0]})
    >>> index_and_upper(pieces)  # the trace is (1 · 1 + 3 · 5)/4 = 4
    (4.0, 4.0, 0)
    """
    grouped = layers.assign(total=layers["trace"] * layers["images"]).groupby("layer", sort=False)
    traces = (grouped["total"].sum() / grouped["images"].sum()).to_numpy()
    norms = grouped["weight_norm"].first().to_numpy()
    positive = np.maximum(traces, 0.0)
    upper = math.sqrt((norms**2).sum() * positive.sum())
    return float((norms * np.sqrt(positive)).sum()), upper, int((traces < 0).sum())


def _curved(rows: pd.DataFrame, layers: pd.DataFrame, train: pd.DataFrame, test: pd.DataFrame) -> Curved:
    index, upper, clipped = index_and_upper(layers)
    images = int(rows["images"].sum())
    error = math.sqrt(float(((rows["wci_error"] * rows["images"]) ** 2).sum(skipna=False))) / images
    first: dict[str, Any] = rows.iloc[0].to_dict()
    losses = estimates(
        [floats(train["robust_loss"]), floats(test["robust_loss"]), floats(train["top_trace"])],
        supports=[(0.0, math.inf)] * 3,
    )
    errors = [share_estimate(floats(split["robust_error"])) for split in (train, test)]
    return Curved(
        index=Estimate(index, max(0.0, index - NORMAL * error), index + NORMAL * error, index, error, images, 0),
        upper=upper,
        top_trace=losses[2],
        train_loss=losses[0],
        loss_gap=_difference(losses[0], losses[1]),
        error_gap=_difference(errors[0], errors[1]),
        clipped=clipped,
        layers=layers["layer"].nunique(),
        method=str(first["method"]),
        images=images,
        threat=Threat(first["norm"], float(first["epsilon"])),
        steps=int(first["steps"]),
    )


def _difference(train: Estimate, test: Estimate) -> Estimate:
    """Test − train, of different images."""
    low, high = difference_interval((train.mean, train.low, train.high), (test.mean, test.low, test.high))
    error = math.hypot(train.standard_error, test.standard_error)
    difference = test.mean - train.mean
    used = 0 if math.isnan(difference) else min(train.used, test.used)
    return Estimate(difference, low, high, difference, error, used, train.undefined + test.undefined)
