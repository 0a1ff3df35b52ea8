"""The scripts of the training studies: valid recipes, and verdicts that need interval, test and seeds to agree."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from locality.errors import ArgumentError
from locality.results.folder import read_results, write_results
from locality.results.results import Results
from locality.training.recipe import recipe_from

BENCH = Path(__file__).resolve().parents[1] / "bench"
STUDY = BENCH / "results/training_study"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("training_study")


@pytest.fixture
def overfitting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("overfitting_study")


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("training_sweeps")


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("merged_results")


def renamed(folder: Path, seed: int) -> Results:
    """The study's results of seed 0 as if they were those of another seed."""
    results = read_results(folder)
    first = set(
        results.models["model"][results.models["model"].str.endswith("_0") | (results.models["model"] == "standard")]
    )
    own = {
        name: table[table["model"].isin(first)].assign(model=lambda rows: rows["model"].str.replace("_0", f"_{seed}"))
        for name, table in results.items()
    }
    models = [
        {**one, "name": one["name"].replace("_0", f"_{seed}")}
        for one in results.provenance["suite"]["models"]
        if one["name"] in first
    ]
    return replace(
        results, tables=own, provenance={**results.provenance, "suite": {**results.provenance["suite"], "models": models}}
    )


def test_seeds_of_several_folders_are_joined(study: ModuleType, merging: ModuleType, tmp_path: Path) -> None:
    first, second = renamed(STUDY, 0), renamed(STUDY, 7)
    joined = merging.merged([first, second])
    assert study.seeds_of(joined) == [0, 7]
    assert study.rows_of(joined) == list(study.recipe_tables(0, Path()))
    assert len(joined["robust"]) == 2 * len(first["robust"]) - 200  # the standard network is in both, and counted once
    assert len(joined.provenance["suite"]["models"]) == len(joined.models)
    changes = study.compared(joined, ["at", "at_awp"], [0, 7])["distance"]["at_awp"]
    alone = study.compared(first, ["at", "at_awp"], [0])["distance"]["at_awp"]
    assert changes["seeds"] == pytest.approx(2 * alone["seeds"])
    schemas = {name: table for one in merging.MEASUREMENTS.values() for name, table in one.tables.items()}
    write_results(joined, tmp_path, schemas)
    again = merging.merge([tmp_path, tmp_path], tmp_path)
    assert {name: len(table) for name, table in again.items()} == {name: len(table) for name, table in joined.items()}


def test_results_that_do_not_belong_together_are_not_joined(study: ModuleType, merging: ModuleType) -> None:
    first = renamed(STUDY, 0)
    suite = {**first.provenance["suite"], "rho": 0.5}
    with pytest.raises(ArgumentError, match="results of one suite"):
        merging.merged([first, replace(renamed(STUDY, 1), provenance={**first.provenance, "suite": suite})])
    second = renamed(STUDY, 1)
    newer = {**second.provenance["suite"], "added since": None}  # a setting that the first results did not have yet
    assert merging.merged([first, replace(second, provenance={**second.provenance, "suite": newer})])["robust"] is not None
    short = second.with_tables(models=second.models[second.models["model"] != "at_awp_1"])
    with pytest.raises(ArgumentError, match="at_awp"):
        study.seeds_of(merging.merged([first, short]))


def test_runs_that_overfit_are_joined_by_seed(overfitting: ModuleType) -> None:
    def part(*seeds: str) -> dict[str, object]:
        names = [f"static_{seed}" for seed in seeds] + [f"wci_half_{seed}_control" for seed in seeds]
        runs = {name: {"clean": 0.5} for name in names}
        return {"recipe": {"epochs": 2}, "follows the gap": dict.fromkeys(seeds), "accuracy": runs, "curves": runs}

    joined = overfitting.merged([part("2"), part("0", "1")])
    assert list(joined["follows the gap"]) == ["0", "1", "2"]
    assert list(joined["curves"])[:4] == ["static_0", "static_1", "static_2", "wci_half_0_control"]
    assert joined["command"].endswith("--seeds 0,1,2")
    with pytest.raises(ArgumentError, match="other seeds"):
        overfitting.merged([part("1"), part("0", "1")])


def test_a_sweep_changes_one_number_and_uses_the_runs_of_the_study(sweeps: ModuleType, study: ModuleType) -> None:
    start = Path("standard.safetensors")
    rows = study.recipe_tables(1, start)
    trh = sweeps.recipes("trh_trades", 1, start)
    assert list(trh)[:2] == ["trades_l2", "trh_trades_0.0001"]
    assert trh["trades_trh"] == rows["trades_trh"]  # λ = 5e-3
    weights = [recipe_from(table, row).regularisers["trh"].weight for row, table in trh.items() if row != "trades_l2"]
    assert weights == list(sweeps.LAMBDAS)
    assert list(sweeps.recipes("rat_labels", 1, start)) == ["trades", "rat_labels_0.1", "rat_labels", "rat_labels_0.4"]
    smoothed = sweeps.recipes("smoothing", 1, start)
    assert smoothed["trades_smoothing"]["name"] == "trades_smoothing_1"  # η = 0.2
    assert [table["loss"].get("label_smoothing") for table in smoothed.values()] == [None, 0.07, 0.14, 0.3]


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
