"""The study of certified training: valid recipes, comparisons on the same images, and shares with their intervals."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from locality.data.sources import shapes
from locality.training.recipe import recipe_from

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("certified_study")


def made_up(correct: list[bool], radius: list[float]) -> dict[str, Any]:
    numbers = {"lipschitz": {"features": 5.0, "margin": 7.0}, "accuracy": {}, "parameters": 3, "minutes": 1.0}
    return {"correct": correct, "radius": radius, **numbers}


def test_all_rows_are_recipes_and_all_tables_have_rows(study: ModuleType) -> None:
    recipes = {row: recipe_from(study.recipe_table(row, 3), row) for row in study.ROWS}
    assert {recipe.seed for recipe in recipes.values()} == {3}
    assert {row for rows in study.TABLES.values() for row in rows} == {*study.ROWS, *study.CHECKPOINTS}
    assert set(study.ORDER) == {*study.ROWS, *study.CHECKPOINTS}
    assert study.recipe_table("tiny_liresnet", 3)["seed"] == 0  # a checkpoint is what its recipe says
    for row in ("emma_18", "ce", "la", "power_1", "ramp_3", "constant_1"):
        assert recipes[row].net == recipes["emma_36"].net, row
        assert recipes[row].loss != recipes["emma_36"].loss, row


def test_a_row_counts_what_is_certified(study: ModuleType) -> None:
    one = made_up([True, True, False, True], [0.2, 0.1, 0.3, 0.15])
    numbers = study.summary("emma_36", 0, one)
    assert numbers["clean"]["mean"] == 0.75
    at = {round(255 * entry["radius"]): entry for entry in numbers["verified"]}
    assert (at[0]["mean"], at[18]["mean"], at[36]["mean"], at[72]["mean"]) == (0.75, 0.75, 0.5, 0.0)
    assert (at[36]["wrong"], at[108]["wrong"]) == (1, 0)
    assert at[36]["low"] < 0.5 < at[36]["high"]
    attacked = study.summary("emma_36", 0, one | {"attacked": {"robust": [True, False], "verified": [True, True]}})
    assert attacked["attacked"]["verified but broken"] == 1
    assert study.summary("conv_12", 1, {"diverged": {"term": "loss", "step": 9}})["diverged"]["step"] == 9


def test_rows_are_compared_on_the_same_images(study: ModuleType) -> None:
    runs = {
        ("emma_36", 0): made_up([True] * 40, [0.2] * 20 + [0.1] * 20),
        ("ce", 0): made_up([True] * 30 + [False] * 10, [0.2] * 10 + [0.1] * 30),
        ("la", 0): {"diverged": {"term": "loss", "step": 3}},
        ("ce", 1): made_up([False] * 40, [0.0] * 40),  # the base has no such seed
    }
    found = study.compared(study.TABLES["loss"], runs)
    assert set(found) == {"ce"}
    assert found["ce"]["seeds"] == [0]
    assert found["ce"]["clean"]["difference"] == pytest.approx(-0.25)
    assert found["ce"]["verified"]["difference"] == pytest.approx(-0.25)
    assert found["ce"]["clean"]["high"] < 0
    everything = study.results([0, 1], runs, {})
    assert json.loads(json.dumps(everything))["rows"]["la_0"] == {"seed": 0, "diverged": {"term": "loss", "step": 3}}


def test_seeds_are_averaged_per_image_and_told_apart(study: ModuleType) -> None:
    """Images are paired within a seed; the mean, +15 points, hides that the second seed has −20."""
    runs = {
        **{("emma_36", seed): made_up([True] * 40, [0.2] * 20 + [0.1] * 20) for seed in (0, 1)},
        ("ce", 0): made_up([True] * 40, [0.2] * 40),
        ("ce", 1): made_up([True] * 40, [0.1] * 8 + [0.2] * 12 + [0.1] * 20),
    }
    change = study.compared(study.TABLES["loss"], runs)["ce"]
    assert change["seeds"] == [0, 1]
    assert change["verified"]["by_seed"] == pytest.approx([0.5, -0.2])
    assert change["verified"]["difference"] == pytest.approx(0.15)
    assert change["verified"]["low"] > 0
    assert change["clean"]["by_seed"] == [0, 0]


def test_a_part_of_the_rows_is_added_to_what_is_stored(study: ModuleType) -> None:
    runs = {("emma_36", 0): made_up([True] * 4, [0.2] * 4), ("ce", 0): made_up([True] * 4, [0.1] * 4)}
    stored = study.results([0], runs, {"2": "changes"})
    more = {("emma_36", 1): made_up([True] * 4, [0.2] * 4), ("power_1", 1): made_up([False] * 4, [0.1] * 4)}
    both = study.added(stored, study.results([1], more, {}))
    assert set(both["rows"]) == {"emma_36_0", "ce_0", "emma_36_1", "power_1_1"}
    assert both["compared"]["loss"] == stored["compared"]["loss"]
    assert both["compared"]["power steps"]["power_1"]["clean"]["difference"] == -1.0
    assert both["threatening_class"] == {"2": "changes"}
    assert study.added({}, stored) == stored


def test_a_row_is_trained_measured_and_kept(study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"train": 40, "eval": 20})
    tiny = study.on_shapes({"name": "gloro_emma", "epsilon": 0.01}) | {
        "net": {"name": "liresnet", "depth": 1, "width": 4, "dimension": 8},
        "data": {"name": "shapes", "limit": 16},
        "batch_size": 8,
        "epochs": 1,
        "precision": "no",
    }
    monkeypatch.setitem(study.ROWS, "shapes_0.14", tiny)
    one = study.measured("shapes_0.14", 0, tmp_path)
    assert len(one["correct"]) == len(one["radius"]) == 20
    assert one["accuracy"]["clean"] == sum(one["correct"]) / 20
    kept = tmp_path / "shapes_0.14_0" / "measured.json"
    kept.write_text('{"kept": 1}', encoding="utf-8")
    assert study.measured("shapes_0.14", 0, tmp_path) == {"kept": 1}


def test_changes_of_the_threatening_class(study: ModuleType) -> None:
    threats = importlib.import_module("threatening_class")
    seen = [torch.tensor([1, 2, 0, 0]), torch.tensor([1, 0, 0, 0]), torch.tensor([0, 1, 1, 1])]
    assert threats.changes(seen) == [0.25, 1.0]
