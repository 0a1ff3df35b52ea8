"""Tables of docs/certified.md from made-up results, and the photographs that are held out to choose settings."""

import importlib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from locality.training.recipe import recipe_from

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.fixture
def tables() -> ModuleType:
    return importlib.import_module("certified_tables")


def run(correct: list[bool], radius: list[float]) -> dict[str, Any]:
    numbers = {"lipschitz": {"features": 5.0, "margin": 7.0}, "accuracy": {}, "parameters": 3, "minutes": 1.0}
    return {"correct": correct, "radius": radius, **numbers}


def stored() -> dict[str, Any]:
    """Half of the images of `emma_36` are verified, a quarter of `trades`, all of `fixed`; `la` diverges."""
    study = importlib.import_module("certified_study")
    runs = {
        ("emma_36", 0): run([True] * 30 + [False] * 10, [0.2] * 20 + [0.1] * 10 + [0.3] * 10),
        ("trades", 0): run([True] * 40, [0.2] * 10 + [0.1] * 30),
        ("fixed", 0): run([True] * 40, [0.2] * 40),
        ("la", 0): {"diverged": {"term": "loss", "step": 9}},
    }
    found: dict[str, Any] = study.results([0], runs, {"2": {"classes": 2, "n": 40, "changed": [0.5, 0.25]}})
    return found


def test_a_table_has_one_row_per_network_that_was_measured(tables: ModuleType) -> None:
    titles, rows = tables.study_rows(stored(), "loss")
    by_name = {row[0]: dict(zip(titles, row, strict=True)) for row in rows}
    assert list(by_name) == ["`emma_36`", "`trades`", "`fixed`", "`la`"]
    assert (by_name["`emma_36`"]["clean"], by_name["`emma_36`"]["verified, 36/255"]) == ("75.0 %", "50.0 %")
    assert by_name["`emma_36`"]["wrong but certified, 36/255"] == "25.0 %"
    assert by_name["`emma_36`"]["change of clean"] == ""
    assert by_name["`trades`"]["change of verified, 36/255"].startswith("**-25.0 (")
    assert by_name["`la`"]["clean"] == "diverged in step 9"


def test_claims_follow_the_intervals(tables: ModuleType) -> None:
    verdicts = {row[0]: row[-1] for row in tables.claim_rows(stored())[1]}
    assert verdicts["EMMA certifies more than TRADES, LiResNet"] == "holds"
    assert verdicts["EMMA certifies more than a fixed margin"] == "contradicted"
    assert verdicts["logit annealing certifies more than EMMA (Lai et al. 2025)"] == "diverged"
    assert len(verdicts) == 3  # the others were not trained


def test_a_claim_needs_all_seeds_to_agree(tables: ModuleType) -> None:
    """An interval over images knows nothing of the trainings, so one seed of another sign makes it inconclusive."""
    change = {"difference": -0.02, "low": -0.03, "high": -0.01}
    for seeds, of_less, of_no_more, text in (
        ([-0.02], "holds", "holds", "**-2.0 (-3.0 to -1.0)**"),
        ([-0.01, -0.03], "holds", "holds", "**-2.0 (-3.0 to -1.0), by seed -3.0 to -1.0**"),
        ([0.01, -0.05], "inconclusive", "no difference found", "-2.0 (-3.0 to -1.0), by seed -5.0 to +1.0"),
        ([0.0, -0.04], "inconclusive", "no difference found", "-2.0 (-3.0 to -1.0), by seed -4.0 to +0.0"),
    ):
        one = change | {"by_seed": seeds}
        assert tables.verdict(one, -1) == of_less
        assert tables.verdict(one, 1) == of_less.replace("holds", "contradicted")
        assert tables.verdict(one, 0) == of_no_more
        assert tables.points(one) == text
    unclear = {"difference": 0.01, "low": -0.01, "high": 0.03, "by_seed": [0.01, 0.01]}
    assert tables.verdict(unclear, 1) == "inconclusive"


def test_claims_name_rows_of_the_study(tables: ModuleType) -> None:
    study = importlib.import_module("certified_study")
    assert set(tables.TITLES) == set(study.TABLES)
    for claim in tables.CLAIMS:
        assert claim.row in study.TABLES[claim.table][1:], claim.text


def test_changes_of_the_threatening_class_by_epoch(tables: ModuleType) -> None:
    assert tables.threat_rows(stored()) == (
        ["classes", "images", "epochs 1 to 2", "epochs 2 to 3"],
        [["2", "40", "50.0 %", "25.0 %"]],
    )


def made_up_zip(path: Path) -> Path:
    """One class of 410 photographs that are their own numbers, and an evaluation photograph."""
    with zipfile.ZipFile(path, "w") as whole:
        whole.writestr("top/wnids.txt", "n1\n")
        lines = [f"n1_{number}.JPEG\t0\t0\t9\t9" for number in range(410)]
        whole.writestr("top/train/n1/n1_boxes.txt", "\n".join(reversed(lines)) + "\n")
        for number in range(410):
            whole.writestr(f"top/train/n1/images/n1_{number}.JPEG", str(number))
        whole.writestr("top/val/images/val_0.JPEG", "evaluation")
    return path


def test_settings_are_chosen_on_training_photographs_that_do_not_train(tmp_path: Path) -> None:
    settings = importlib.import_module("certified_settings")
    with zipfile.ZipFile(settings.held_out(made_up_zip(tmp_path / "all.zip"), tmp_path / "some.zip")) as some:
        images = {name: some.read(name).decode() for name in some.namelist() if name.endswith("JPEG")}
        trained = {int(text) for name, text in images.items() if "/train/" in name}
        held_out = {int(text) for name, text in images.items() if "/val/" in name}
        boxes = some.read("top/val/val_annotations.txt").decode().splitlines()
    assert (trained, held_out) == (set(range(320)), set(range(320, 400)))  # 400 and later are evaluation photographs
    assert boxes[0] == "val_0.JPEG\tn1\t0\t0\t9\t9"
    recipes = {row: recipe_from(settings.recipe_table(row, tmp_path / "some.zip", tmp_path), row) for row in settings.ROWS}
    assert all(recipe.data.name.endswith("some.zip") for recipe in recipes.values())
    assert recipes["polish_1"].start == str(tmp_path / "base" / "base.safetensors")
    assert recipes["polish_1"].augmentation.flip
    assert (recipes["base"].augmentation.cutout, recipes["polish_1"].augmentation.cutout) == (16, 0)


def test_rows_of_settings_are_compared_at_their_size_and_added(tmp_path: Path) -> None:
    settings = importlib.import_module("certified_settings")
    assert {settings.first_of(row) for row in ("la", "polish_1", "base")} == {"base"}
    assert {settings.first_of(row) for row in ("full", "moved")} == {"full"}
    assert {settings.first_of(row) for row in ("full_again", "maps_32_48")} == {"full_again"}
    recipes = {
        row: recipe_from(settings.recipe_table(row, tmp_path / "some.zip", tmp_path), row) for row in ("full", "moved")
    }
    assert recipes["full"].net.options == {"depth": 6, "width": 64, "dimension": 512}
    assert recipes["moved"].augmentation != recipes["full"].augmentation
    rows = {"full": run([True, True], [0.2, 0.1]), "moved": run([True, False], [0.2, 0.2])}
    found = settings.summary(rows)
    assert found["moved"]["clean change"]["difference"] == -0.5
    assert found["moved"]["verified change"]["difference"] == 0.0
    assert "clean change" not in found["full"]
    alone = settings.summary({"moved": rows["moved"]})
    assert "clean change" not in alone["moved"]  # what it is compared with is not there
    both = settings.added({"rows": {"moved": alone["moved"], "la": {"minutes": 1}}}, {"moved": found["moved"]})
    assert list(both["rows"]) == list(both["changes"]) == ["la", "moved"]
    assert both["rows"]["moved"] == found["moved"]
