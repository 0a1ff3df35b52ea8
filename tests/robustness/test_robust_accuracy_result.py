"""Shares, their intervals, and the rows of a result."""

import json
from typing import Any

import pytest
import torch

from locality.robustness.robust_accuracy_result import RobustAccuracy
from locality.statistics import wilson_interval


def result(**changes: Any) -> RobustAccuracy:
    given: dict[str, Any] = {
        "ids": ("a", "b", "c", "d"),
        "labels": torch.tensor([0, 1, -1, 2]),
        "predictions": torch.tensor([0, 1, 1, 0]),
        "clean": torch.tensor([True, True, False, False]),
        "robust": torch.tensor([True, False, False, False]),
        "broken_by": torch.tensor([-1, 1, -1, -1]),
        "attacks": ("apgd-ce", "apgd-dlr"),
        "norm": "linf",
        "epsilon": 4 / 255,
        "attack": "paper",
        "batch_size": 32,
        "seed": 0,
        "warnings": (),
        "provenance": {"torch": "2"},
    }
    return RobustAccuracy(**(given | changes))


def test_unknown_classes_are_counted_and_left_out() -> None:
    found = result()
    assert (found.clean_accuracy, found.accuracy, found.undefined) == (pytest.approx(2 / 3), pytest.approx(1 / 3), 1)
    assert found.interval == wilson_interval(1, 3)
    assert found.clean_interval == wilson_interval(2, 3)
    assert found.broken == {"apgd-ce": 0, "apgd-dlr": 1}


def test_one_row_an_image() -> None:
    table = result().table()
    assert table.columns.tolist() == ["id", "label", "prediction", "correct", "robust", "broken_by"]
    assert table["correct"].isna().tolist() == table["robust"].isna().tolist() == [False, False, True, False]
    assert table["robust"].fillna(False).tolist() == [True, False, False, False]
    assert table["broken_by"].tolist() == ["", "apgd-dlr", "", ""]


def test_the_summary_is_json_also_where_nothing_is_defined() -> None:
    summary = json.loads(json.dumps(result().summary(), allow_nan=False))
    assert summary["n"] == 4
    assert summary["robust"] == {"mean": 1 / 3, "low": wilson_interval(1, 3)[0], "high": wilson_interval(1, 3)[1]}
    assert summary["clean"]["mean"] == 2 / 3
    nothing = result(labels=torch.full((4,), -1), clean=torch.zeros(4) > 0, robust=torch.zeros(4) > 0).summary()
    assert json.loads(json.dumps(nothing, allow_nan=False))["robust"] == {"mean": None, "low": None, "high": None}
    assert nothing["undefined"] == 4
