"""The measurements removal, sensitivity and localisation, and the same scores by `eval`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from suite_examples import EVERYTHING
from typer.testing import CliRunner

from locality import load_dataset, load_model
from locality.attribution import attribute_all
from locality.cli import app
from locality.pooled_scores import max_box_accuracy, pixel_average_precision
from locality.results.folder import read_results
from locality.results.localisation import arrays
from locality.results.results import Results
from locality.runner.evaluate import evaluate
from locality.runner.measurements.localisation import LocalisationSettings
from locality.runner.measurements.removal import RemovalSettings
from locality.runner.measurements.sensitivity import SensitivitySettings
from locality.runner.run import Machine, run_suite
from locality.runner.suite import ModelChoice
from locality.runner.suite_file import SuiteError, read_suite
from locality.scores.localisation import box_overlaps, level_histograms
from locality.scores.map_features import plain_maps
from locality.scores.max_sensitivity import max_sensitivity
from locality.scores.random_logit import random_logit
from locality.scores.removal import chance_curves, removal_curves
from locality.scores.road import road

METHODS = ("SM", "BIG")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("removal")
    suite = replace(
        EVERYTHING,
        models=(ModelChoice("shapes", "shapes_cnn", training="standard"),),
        methods=METHODS,
        measurements={
            "localisation": (LocalisationSettings(),),
            "removal": (RemovalSettings(limit=3, steps=4, fill="black", shares=(0.3, 0.6)),),
            "sensitivity": (SensitivitySettings(limit=3, samples=2, radius=0.01),),
        },
    )
    outcome = run_suite(suite, folder, Machine(processes=0))
    assert outcome.faults.empty
    return read_results(folder)


def column(table: pd.DataFrame, method: str, name: str) -> list[float]:
    values: list[float] = table[table["method"] == method].sort_values("image_id")[name].tolist()
    return values


def test_suites_store_what_the_functions_return(results: Results) -> None:
    """Blocks of two images; the functions have all three at once."""
    model = load_model("shapes_cnn")
    data = load_dataset("shapes", limit=3, count=20, spec=model.spec)
    batch = data.batch(range(3))
    order = np.argsort(batch.ids)
    maps = attribute_all(model, batch.images, METHODS)
    found: dict[str, Any] = {
        "removal": removal_curves(model, batch.images, maps, steps=4, fill="black"),
        "road": road(model, batch.images, maps, shares=(0.3, 0.6)),
        "logit": random_logit(model, batch.images, METHODS),
        "noise": max_sensitivity(model, batch.images, METHODS, samples=2, radius=0.01),
    }
    chance = chance_curves(model, batch.images, steps=4, fill="black")
    for method in METHODS:
        curves, kept = found["removal"][method], found["road"][method]
        expected = {
            "deletion": curves.deletion.area,
            "insertion": curves.insertion.area,
            "deletion_chance": chance.deletion.area,
            "insertion_chance": chance.insertion.area,
            "road": kept.gap,
            "road_most": kept.most,
            "road_least": kept.least,
        }
        for name, values in expected.items():
            assert column(results["removal"], method, name) == pytest.approx(values[order].tolist(), abs=2e-3), name
        logit, noise = found["logit"][method], found["noise"][method]
        expected = {
            "random_logit": logit.ssim,
            "random_logit_chance": logit.ssim_chance,
            "class_cosine": logit.cosine,
            "max_sensitivity": noise.relative,
            "max_sensitivity_chance": noise.chance,
        }
        for name, values in expected.items():
            assert column(results["sensitivity"], method, name) == pytest.approx(values[order].tolist(), abs=0.02), name
        rows = results["localisation"]
        rows = rows[rows["method"] == method]
        plain = plain_maps(maps[method])
        assert np.allclose(arrays(rows, "overlaps"), box_overlaps(plain, batch.boxes), atol=0.1)
        inside, _ = level_histograms(plain, batch.masks)
        assert (arrays(rows, "inside").sum(1) == inside.sum(1)).all()
        assert (arrays(rows, "outside").sum(1) + inside.sum(1) == 64 * 64).all()
    free = results["localisation"]["method"].unique().tolist()
    assert free == [*METHODS, "model-free: uniform", "model-free: random", "model-free: centred Gaussian"]


def test_eval_measures_them_by_name(tmp_path: Path) -> None:
    names = "deletion,insertion,road,random_logit,max_box_acc_v2,px_ap,roc_auc"
    words = [
        "eval",
        "--model",
        "shapes_cnn",
        "--limit",
        "3",
        "--methods",
        "SM",
        "--scores",
        names,
        "--json",
        "--out",
        str(tmp_path),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    scores, free = summary["methods"]["SM"], summary["model_free"]
    assert set(names.split(",")) <= set(scores)
    assert summary["provenance"]["settings"]["scores"] == [
        "roc_auc",
        *("deletion", "insertion", "road", "random_logit"),
        *("max_box_acc_v2", "px_ap"),
    ]
    model = load_model("shapes_cnn")
    batch = load_dataset("shapes", limit=3, spec=model.spec).batch(range(3))
    maps = attribute_all(model, batch.images, ["SM"])["SM"]
    assert isinstance(maps, torch.Tensor)
    curves = removal_curves(model, batch.images, maps)["map"]
    assert scores["deletion"]["mean"] == pytest.approx(float(curves.deletion.area.mean()), abs=1e-3)
    assert scores["max_box_acc_v2"]["mean"] == max_box_accuracy(box_overlaps(maps, batch.boxes)).mean
    pixels = pixel_average_precision(*level_histograms(maps, batch.masks))
    assert scores["px_ap"]["mean"] == pytest.approx(pixels.mean, abs=1e-6)
    chance = chance_curves(model, batch.images)
    assert free["uniform"]["deletion"]["mean"] == pytest.approx(float(chance.deletion.area.mean()), abs=1e-3)
    assert free["uniform"]["max_box_acc_v2"]["undefined"] == free["random"]["random_logit"]["undefined"] == 3
    assert "localisation" in read_results(tmp_path)


def test_undefined_and_abstaining_images_are_counted() -> None:
    model = load_model("shapes_cnn")
    data = load_dataset("shapes", limit=4, spec=model.spec)
    constant = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10))
    torch.nn.init.zeros_(constant[1].weight)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="saliency map is zero"):
        found = evaluate(
            constant, data, ["SM"], None, progress=False, scores=["deletion", "px_ap", "max_box_acc_v2", "random_logit"]
        )
    scores = found.summary.methods["SM"]
    assert scores["deletion"].used == 4  # a constant map is a random order
    assert scores["random_logit"].undefined == scores["max_box_acc_v2"].undefined == 4
    assert scores["px_ap"].mean == pytest.approx(float(data.batch(range(4)).masks.float().mean()), abs=1e-6)


def test_unknown_names_and_settings_are_listed(tmp_path: Path) -> None:
    wrong = CliRunner().invoke(app, ["eval", "--model", "shapes_cnn", "--scores", "deletions"])
    assert "did you mean 'deletion'?" in str(wrong.exception)
    suite = tmp_path / "wrong.toml"
    suite.write_text("""
models = ["shapes_cnn"]
removal = { steps = 0, fill = "grey", shares = [0.5, 1.0], noise = -1.0 }
sensitivity = { radius = 0.0, samples = 0 }
""")
    with pytest.raises(SuiteError) as caught:
        read_suite(suite)
    found = " ".join(str(problem) for problem in caught.value.problems)
    for key in (
        "removal.steps",
        "removal.fill",
        "removal.shares",
        "removal.noise",
        "sensitivity.radius",
        "sensitivity.samples",
    ):
        assert f"`{key}` must be" in found, key
