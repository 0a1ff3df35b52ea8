"""What the region tests of one model say: accuracy, decisions and logits per test, reliance, relative core sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from locality.intervals import UNBOUNDED
from locality.results.region_tests import SUPPORT, RelativeSensitivity, followed, relative_core_sensitivity, reliance
from locality.runner.summary_json import defined_number, summary_json
from locality.statistics import Summary, share, summary

NUMBERS = ("correct", "kept", "logit_change")
PLACES = {"region": "", "elsewhere": "_elsewhere"}  # name ↦ suffix of the columns


@dataclass(frozen=True)
class RegionSummary:
    """The region tests of one model; "elsewhere" is the same change with the region moved, the chance level."""

    region: str
    tests: Mapping[str, Mapping[str, Summary]]  # test ↦ column of `REGIONS` ↦ summary
    reliance: Summary  # above chance
    sensitivity: RelativeSensitivity
    sensitivity_elsewhere: RelativeSensitivity
    followed: Summary  # share of images that get the class of the image that lent its background
    overlap: float  # mean share of the moved region that lies in the region

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values; undefined is None."""
        tests = {
            test: {
                place: {number: summary_json(columns[number + suffix]) for number in NUMBERS}
                for place, suffix in PLACES.items()
            }
            for test, columns in self.tests.items()
        }
        sensitivities = {"region": self.sensitivity, "elsewhere": self.sensitivity_elsewhere}
        return {
            "region": self.region,
            "tests": tests,
            "reliance": summary_json(self.reliance),
            "relative_core_sensitivity": {
                place: {key: defined_number(value) for key, value in asdict(one).items()}
                for place, one in sensitivities.items()
            },
            "followed": summary_json(self.followed),
            "overlap": defined_number(self.overlap),
        }


def region_summary(tests: pd.DataFrame, seed: int = 0) -> RegionSummary:
    """The summary of the region tests of one model."""
    columns = [number + suffix for number in NUMBERS for suffix in PLACES.values()]
    return RegionSummary(
        region=str(tests["region"].iloc[0]),
        tests={
            str(test): {column: _summary(part[column].to_numpy(dtype=np.float64), column, seed) for column in columns}
            for test, part in tests.groupby("test", sort=False)
        },
        reliance=summary(reliance(tests), seed=seed, support=SUPPORT),
        sensitivity=relative_core_sensitivity(tests, seed=seed),
        sensitivity_elsewhere=relative_core_sensitivity(tests, elsewhere=True, seed=seed),
        followed=share(followed(tests)),
        overlap=float(tests["overlap"].mean()) if tests["overlap"].notna().any() else math.nan,
    )


def _summary(values: Any, column: str, seed: int) -> Summary:
    """A share where all values are 0 or 1, else a mean: several draws of noise give values between."""
    if column.startswith("logit"):
        return summary(values, seed=seed, support=UNBOUNDED)
    if np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
        return share(values)
    return summary(values, seed=seed, support=(0.0, 1.0))
