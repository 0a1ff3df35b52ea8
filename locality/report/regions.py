"""Region tests of each model, from the rows of the measurement `regions`; torch is not needed."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import Estimate, estimates, floats, share_estimate
from locality.results.region_tests import (
    SUPPORT,
    RelativeSensitivity,
    followed,
    relative_core_sensitivity,
    reliance,
)
from locality.results.results import Results

COLUMNS = ("correct", "kept", "logit_change", "correct_elsewhere", "kept_elsewhere", "logit_change_elsewhere")


@dataclass(frozen=True, eq=False)
class RegionTested:
    """The region tests of one model."""

    region: str
    reliances: pd.Series  # above chance, by image id
    reliance: Estimate
    sensitivity: RelativeSensitivity
    sensitivity_elsewhere: RelativeSensitivity
    accuracy: Estimate  # on the unchanged images
    followed: Estimate  # share of images that get the class of the image that lent its background
    overlap: float  # mean share of the moved region that lies in the region
    tests: dict[str, dict[str, Estimate]]  # test ↦ a column of COLUMNS ↦ its mean


@functools.lru_cache(maxsize=2)
def region_tested(results: Results) -> dict[str, RegionTested]:
    """The region tests of every model that they were made for."""
    if "regions" not in results:
        raise NotMeasuredError("region tests were not made")
    models = {str(name): rows for name, rows in results["regions"].groupby("model", sort=False)}
    reliances = {name: reliance(rows) for name, rows in models.items()}
    columns = [floats(values) for values in reliances.values()]
    means = dict(zip(models, estimates(columns, supports=[SUPPORT] * len(models)), strict=True))
    tests = _tests(results["regions"])
    return {
        name: RegionTested(
            region=str(rows["region"].iloc[0]),
            reliances=reliances[name],
            reliance=means[name],
            sensitivity=relative_core_sensitivity(rows),
            sensitivity_elsewhere=relative_core_sensitivity(rows, elsewhere=True),
            accuracy=share_estimate(floats(rows.drop_duplicates("image_id")["before"])),
            followed=share_estimate(followed(rows)),
            overlap=float(rows["overlap"].mean()),
            tests=tests[name],
        )
        for name, rows in models.items()
    }


def _tests(table: pd.DataFrame) -> dict[str, dict[str, dict[str, Estimate]]]:
    """The means of all columns, by model and test, with bootstrap intervals in one go."""
    keys, columns, supports = [], [], []
    for (model, test), rows in table.groupby(["model", "test"], sort=False):
        for column in COLUMNS:
            keys.append((str(model), str(test), column))
            columns.append(floats(rows[column]))
            supports.append((-math.inf, math.inf) if column.startswith("logit") else (0.0, 1.0))
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for (model, test, column), values, mean in zip(keys, columns, estimates(columns, supports=supports), strict=True):
        # Shares have Wilson's interval; several draws of noise give values between 0 and 1.
        is_share = not column.startswith("logit") and bool(np.isin(values[~np.isnan(values)], (0.0, 1.0)).all())
        found.setdefault(model, {}).setdefault(test, {})[column] = share_estimate(values) if is_share else mean
    return found
