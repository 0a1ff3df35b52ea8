"""The scripts of the training studies: valid recipes, and verdicts that need interval, test and seeds to agree."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from locality.training.recipe import recipe_from

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("training_study")


@pytest.fixture
def overfitting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("overfitting_study")


def test_all_rows_are_recipes_that_are_compared_with_a_base(study: ModuleType) -> None:
    tables = study.recipe_tables(3, Path("standard.safetensors"))
    recipes = {row: recipe_from(table, row) for row, table in tables.items()}
    assert {recipe.seed for recipe in recipes.values()} == {3}
    assert [row for row in recipes if study.base_of(row) is None] == ["at", "trades"]
    assert {study.base_of(row) for row in recipes} == {None, "at", "trades"}
    assert recipes["trades_trh"].loss == recipes["trades"].loss
    assert recipes["at_smoothing"].loss != recipes["at"].loss


def test_a_change_is_paired_by_image_and_seed(study: ModuleType) -> None:
    random = np.random.default_rng(0)
    base = random.random((60, 2))
    noise = 0.01 * random.standard_normal((60, 2))
    table = pd.DataFrame({"at_0": base[:, 0], "at_1": base[:, 1]})
    table["at_awp_0"], table["at_awp_1"] = base[:, 0] + 0.02 + noise[:, 0], base[:, 1] + 0.04 + noise[:, 1]
    one = study.change(table, "at_awp", "at", [0, 1])
    assert one["difference"] == pytest.approx(0.03 + noise.mean())
    assert one["seeds"] == pytest.approx([0.02 + noise[:, 0].mean(), 0.04 + noise[:, 1].mean()])
    assert one["low"] < 0.03 < one["high"]
    assert study.verdict(one, 0.001) == "higher"


@pytest.mark.parametrize(
    ("low", "high", "p", "seeds", "expected"),
    [
        (0.01, 0.03, 0.01, [0.02, 0.01], "higher"),
        (-0.03, -0.01, 0.01, [-0.02, -0.01], "lower"),
        (0.01, 0.03, 0.06, [0.02, 0.01], "inconclusive"),  # the corrected test
        (-0.01, 0.03, 0.01, [0.02, 0.01], "inconclusive"),  # the interval
        (0.01, 0.03, 0.01, [0.05, -0.01], "inconclusive"),  # a seed of the other sign
    ],
)
def test_verdicts_need_everything_to_agree(
    study: ModuleType, low: float, high: float, p: float, seeds: list[float], expected: str
) -> None:
    one = {"difference": (low + high) / 2, "low": low, "high": high, "seeds": seeds}
    assert study.verdict(one, p) == expected


def test_associations_are_of_changes_within_a_base(study: ModuleType) -> None:
    """The bases differ in both numbers alike, the rows of each base in opposite ways."""
    rows = {"at": 0.0, "at_l2": 1.0, "at_ema": 2.0, "at_awp": 3.0, "trades": 100.0, "trades_l2": 104.0, "trades_ema": 105.0}
    names = ["robust", "distance", "loss gap", "lift SM", "lift IG", "lift BIG", "wci", "trace", "top trace"]
    table = pd.DataFrame(dict.fromkeys(names, rows))
    base = pd.Series({row: 100.0 if row.startswith("trades") else 0.0 for row in rows})
    table["lift IG"] = base - (table["wci"] - base)
    found = study.associations(table)
    assert found["wci"]["lift IG"] == {"spearman": pytest.approx(-1.0), "p": pytest.approx(2 / 120), "n": 5}
    assert found["trace"]["robust"]["spearman"] == pytest.approx(1.0)


def test_what_follows_the_gap(overfitting: ModuleType) -> None:
    columns = {"loss_gap": [1.0, 2.0, 4.0, 3.0], "wci": [10.0, 20.0, 40.0, 30.0], "trace": [4.0, 3.0, 1.0, 2.0]}
    columns |= {
        "squared_norm": [1.0, 2.0, 3.0, 4.0],
        "epoch": [1.0, 2.0, 3.0, 4.0],
        "train_robust_loss": [4.0, 3.0, 2.0, 1.0],
    }
    lines = [{name: values[index] for name, values in columns.items()} for index in range(4)]
    found = overfitting.follows(lines)
    assert found["wci"] == {"values": pytest.approx(1.0), "changes": pytest.approx(1.0)}
    assert found["sum of traces"] == {"values": pytest.approx(-1.0), "changes": pytest.approx(-1.0)}
    assert found["epoch"] == {"values": pytest.approx(0.8), "changes": None}  # ranks 1 2 3 4 against 1 2 4 3
