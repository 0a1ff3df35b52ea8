import math

import pandas as pd
import pytest

from locality.runner.compare import has_verdict, paired_differences, verdict
from locality.runner.summary import model_summary
from locality.runner.summary_json import summary_json
from locality.statistics import Paired, wilson_interval


def rows(f1: list[float], method: str = "SM") -> pd.DataFrame:
    count = len(f1)
    return pd.DataFrame(
        {
            "image_id": [f"i{index}" for index in range(count)],
            "method": method,
            "correct": pd.array([True, False, pd.NA, True][:count], dtype="boolean"),
            "abstained": False,
            "precision": f1,
            "recall": f1,
            "f1": f1,
            "lift": [value / 2 for value in f1],
            "found": [True, True, False, True][:count],
            "distance": [1.0, 2.0, math.inf, 3.0][:count],
        }
    )


def test_a_summary_counts_what_is_undefined() -> None:
    both = pd.concat([rows([0.2, 0.4, math.nan, 0.6]), rows([0.5] * 4, "IG")])
    found = model_summary(both)
    assert found.images == 4
    assert found.accuracy.mean == pytest.approx(2 / 3)
    assert (found.accuracy.used, found.accuracy.undefined) == (3, 1)
    assert found.methods["SM"]["f1"].mean == pytest.approx(0.4)
    assert found.methods["SM"]["f1"].undefined == 1
    assert found.methods["IG"]["lift"].mean == pytest.approx(0.25)
    assert found.distance.mean == pytest.approx(2.0)
    assert (found.found, found.searched, found.distance.undefined) == (3, 4, 1)


def test_comparison_is_image_by_image() -> None:
    first, second = rows([0.1, 0.2, 0.3, 0.4]), rows([0.3, 0.2, math.nan, 0.8]).iloc[::-1]
    found = paired_differences(first, second)["SM"]["f1"]
    assert found.difference == pytest.approx((0.2 + 0 + 0.4) / 3)
    assert (found.used, found.undefined) == (3, 1)


def test_json_has_no_nan() -> None:
    found = model_summary(rows([math.nan, math.nan]))
    assert summary_json(found.methods["SM"]["f1"]) == {"mean": None, "low": None, "high": None, "used": 0, "undefined": 2}


def change(low: float, high: float, used: int = 10, p: float | None = None) -> Paired:
    agreeing = 0.01 if low > 0 or high < 0 else 0.5
    return Paired((low + high) / 2, low, high, agreeing if p is None else p, 0.5, 0.5, used, 0, 0)


@pytest.mark.parametrize(
    ("f1", "lift", "said"),
    [
        (change(0.1, 0.2), change(0.1, 0.2), "b looks at the object more than a"),
        (change(-0.2, -0.1), change(-0.2, -0.1), "a looks at the object more than b"),
        (change(-0.1, 0.2), change(-0.1, 0.1), "no significant difference between a and b"),
        (change(0.1, 0.2), change(-0.1, 0.1), "inconclusive, F1 and lift disagree on a and b"),
        (change(0.1, 0.2), change(0.1, 0.2, p=0.06), "inconclusive, interval and test disagree on a and b"),
        (change(-0.1, 0.2, p=0.01), change(-0.1, 0.2), "inconclusive, interval and test disagree on a and b"),
        (change(0.1, 0.2, used=9), change(0.1, 0.2, used=9), "too few images for a verdict on a and b (10 are needed)"),
        (change(math.nan, math.nan, 1), change(math.nan, math.nan, 1), "too few images to compare: 1 are defined"),
    ],
)
def test_verdicts(f1: Paired, lift: Paired, said: str) -> None:
    sentence = verdict("a", "b", "IG", f1, lift)
    assert said in sentence
    assert has_verdict(f1, lift) == ("looks at the object more" in sentence)


def test_accuracy_has_wilson_s_interval() -> None:
    """The bootstrap interval of 4 of 4 is empty."""
    right = rows([0.5] * 4).assign(correct=pd.array([True] * 4, dtype="boolean"))
    accuracy = model_summary(right).accuracy
    assert (accuracy.low, accuracy.high) == wilson_interval(4, 4)
    assert accuracy.low == pytest.approx(0.396, abs=0.001)
