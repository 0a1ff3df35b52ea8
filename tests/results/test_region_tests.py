"""Reliance and relative core sensitivity of invented tests."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from locality.results.region_tests import INSIDE, OUTSIDE, followed, relative_core_sensitivity, reliance, title_of


def removals(inside: float, outside: float, inside_there: float, outside_there: float, image: str = "a") -> pd.DataFrame:
    tests = {**dict.fromkeys(INSIDE, (inside, inside_there)), **dict.fromkeys(OUTSIDE, (outside, outside_there))}
    rows = [(image, test, here, there) for test, (here, there) in tests.items()]
    return pd.DataFrame(rows, columns=["image_id", "test", "kept", "kept_elsewhere"])


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ((0, 1, 1, 0), 1),  # the region is needed and enough, the other place neither
        ((1, 0, 0, 1), -1),
        ((1, 0, 1, 0), 0),  # it takes most of the image: no region of this size is enough
        ((0, 1, 0, 1), 0),  # any part is enough and all are needed: the chance level must count
        ((0, 1, 1, 1), 0.5),
        ((math.nan, 1, 1, 0), math.nan),
    ],
)
def test_reliance(kept: tuple[float, float, float, float], expected: float) -> None:
    assert reliance(removals(*kept)).to_dict() == {"a": pytest.approx(expected, nan_ok=True)}


def test_reliance_is_of_each_image() -> None:
    table = pd.concat([removals(0, 1, 1, 0, "b"), removals(1, 0, 0, 1, "a")])
    assert reliance(table).to_dict() == {"b": 1, "a": -1}
    assert reliance(table[table["test"] != "inside_greyed"]).isna().all()


def noises(inside: Sequence[float], outside: Sequence[float]) -> pd.DataFrame:
    ids = [f"i{index}" for index in range(len(inside))]
    tables = [
        pd.DataFrame(
            {"image_id": ids, "test": f"{side}_noise", "correct": values, "correct_elsewhere": 1 - np.array(values)}
        )
        for side, values in (("inside", inside), ("outside", outside))
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [
        ([0, 0, 0, 0], [1, 1, 0, 0], 1),  # (½ − 0)/(2 · ¼)
        ([1, 1, 1, 0], [1, 1, 1, 1], 1),  # (1 − ¾)/(2 · ⅛): near ā = 1 one image decides
        ([1, 1, 1, 0], [1, 0, 0, 0], -0.5),
        ([1, 0, 1, 0], [0, 1, 0, 1], 0),
        ([1, 1], [1, 1], math.nan),
        ([0, 0], [0, 0], math.nan),
        ([math.nan, 0, 0], [math.nan, 1, 0], 1),
    ],
)
def test_relative_core_sensitivity(inside: list[float], outside: list[float], expected: float) -> None:
    found = relative_core_sensitivity(noises(inside, outside))
    assert found.value == pytest.approx(expected, nan_ok=True)
    assert found.used == sum(not math.isnan(value) for value in inside)
    if not math.isnan(expected):
        assert found.low <= found.value + 1e-12
        assert found.high >= found.value - 1e-12


def test_the_interval_covers_what_the_bootstrap_does() -> None:
    random = np.random.default_rng(0)
    inside, outside = (random.random(200) < p for p in (0.4, 0.7))
    found = relative_core_sensitivity(noises(inside.astype(float).tolist(), outside.astype(float).tolist()))
    rows = random.integers(0, 200, (4000, 200))
    ends = np.stack([inside[rows].mean(1), outside[rows].mean(1)])
    middle = ends.mean(0)
    resampled = (ends[1] - ends[0]) / (2 * np.minimum(middle, 1 - middle))
    assert [found.low, found.high] == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.03)
    assert relative_core_sensitivity(noises([0.0, 1.0], [1.0, 1.0]), elsewhere=True).value == -1


def test_no_noise_was_measured() -> None:
    assert math.isnan(relative_core_sensitivity(removals(0, 1, 1, 0).assign(correct=1.0)).value)


def test_a_swapped_background_is_followed() -> None:
    table = pd.DataFrame(
        {
            "test": ["outside_swapped"] * 4 + ["inside_greyed"],
            "prediction": [3, 2, -1, 1, 3],
            "donor_label": [3, 3, -1, -1, 3],
            "kept": [0.0, 1.0, math.nan, 0.0, 0.0],
        }
    )
    assert followed(table) == pytest.approx([1, 0, math.nan, math.nan], nan_ok=True)


def test_titles_name_the_cue_where_that_is_the_region() -> None:
    assert title_of("inside_blurred", "object") == "object blurred"
    assert title_of("outside_swapped", "cue") == "rest swapped"
    assert title_of("mine", "box") == "mine"
