"""Means with intervals, against `statistics.summary` and scipy."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import sem

from locality.report.estimates import boundary_distances, estimates, floats
from locality.statistics import summary


def test_estimates_are_those_of_summary() -> None:
    random = np.random.default_rng(3)
    columns = [
        random.random(40),
        random.normal(size=40),
        random.random(7),
        np.array([0.3]),
        np.array([]),
        np.full(5, math.nan),
    ]
    columns[1][::3] = math.nan
    for column, estimate in zip(columns, estimates(columns), strict=True):
        expected = summary(column)
        for name in ("mean", "low", "high", "median", "used", "undefined"):
            assert getattr(estimate, name) == pytest.approx(getattr(expected, name), abs=1e-12, nan_ok=True), name
        defined = column[~np.isnan(column)]
        assert estimate.standard_error == pytest.approx(sem(defined) if len(defined) > 1 else math.nan, nan_ok=True)


def test_blocks_of_the_bootstrap_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.random.default_rng(0).random(30)
    [whole] = estimates([column])
    monkeypatch.setattr("locality.report.estimates.BLOCK", 100)
    [blocks] = estimates([column])
    assert (whole.low, whole.high) == pytest.approx((blocks.low, blocks.high))


def test_columns_of_any_type_become_numbers() -> None:
    for column in (
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([True, None, False], dtype=object),
        pd.Series([1.0, math.nan, 0.0]),
        pd.Series([1, pd.NA, 0], dtype="Int64"),
    ):
        assert floats(column).tolist() == pytest.approx([1.0, math.nan, 0.0], nan_ok=True)
    assert floats(pd.Series([], dtype=object)).tolist() == []


def test_a_boundary_that_was_not_found_has_no_distance() -> None:
    rows = pd.DataFrame({"distance": [0.5, math.inf, 0.0], "found": [True, False, True]})
    assert boundary_distances(rows).tolist() == pytest.approx([0.5, math.nan, 0.0], nan_ok=True)
