"""A model that may decline to decide: abstentions are counted apart and never attributed."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import suite_models
from suite_examples import EVERYTHING
from typer.testing import CliRunner

from locality.cli import app
from locality.data.dataset import ImageDataset, load_dataset
from locality.results.folder import read_results
from locality.results.schema import SCORES
from locality.runner.dry_run import Counted
from locality.runner.evaluate import evaluate
from locality.runner.evaluation import Evaluation
from locality.runner.run import Machine, run_suite
from locality.runner.suite import ModelChoice

METHODS = ["SM", "IG", "BSM", "BIG", "captum:Saliency"]
COUNT = 24


@pytest.fixture(scope="module")
def data() -> ImageDataset:
    return load_dataset("shapes", limit=COUNT, count=40)


@pytest.fixture(scope="module")
def steady(data: ImageDataset) -> pd.DataFrame:
    return evaluate(suite_models.steady(), data, METHODS, progress=False).rows


@pytest.fixture(scope="module")
def hesitant(data: ImageDataset) -> Evaluation:
    """The same network, which abstains on some of the images."""
    return evaluate(suite_models.hesitant(), data, METHODS, progress=False)


def test_abstentions_have_no_class_no_boundary_and_no_scores(hesitant: Evaluation) -> None:
    rows = hesitant.rows
    abstained = rows[rows["abstained"]]
    assert 0 < abstained["image_id"].nunique() < COUNT
    assert len(rows) == COUNT * len(METHODS)
    assert (abstained[["prediction", "target", "crossed_to"]] == -1).all(axis=None)
    assert abstained[[*SCORES, "distance"]].isna().all(axis=None)
    assert not abstained["found"].any()
    assert abstained["box_share"].between(0, 1).all()
    assert abstained["correct"].tolist() == [False] * len(abstained)  # not missing: the label is known


def test_the_other_rows_are_those_of_a_model_that_never_abstains(hesitant: Evaluation, steady: pd.DataFrame) -> None:
    decided = ~hesitant.rows["abstained"]
    pd.testing.assert_frame_equal(hesitant.rows[decided], steady[decided], rtol=1e-4)
    assert not steady["abstained"].any()


def test_they_are_counted_apart(hesitant: Evaluation, steady: pd.DataFrame) -> None:
    images = hesitant.rows.drop_duplicates("image_id")
    right = int(images["correct"].sum())
    count = int(images["abstained"].sum())
    summary = hesitant.summary
    assert (summary.images, summary.abstained, summary.abstained_share) == (COUNT, count, count / COUNT)
    assert summary.accuracy.mean == pytest.approx(right / COUNT)  # right / all, the abstentions included
    assert (summary.searched, summary.found) == (COUNT - count, COUNT - count)
    assert summary.methods["SM"]["f1"].undefined == count
    written = hesitant.to_json()
    assert written["abstained"] == {"count": count, "share": count / COUNT}
    assert json.loads(json.dumps(written, allow_nan=False)) == written


def test_a_model_that_always_abstains(data: ImageDataset) -> None:
    evaluation = evaluate(suite_models.silent(), data, METHODS, batch_size=7, progress=False)
    assert evaluation.rows["abstained"].all()
    assert evaluation.rows["method"].tolist() == METHODS * COUNT
    summary = evaluation.summary
    assert (summary.accuracy.mean, summary.abstained, summary.searched) == (0, COUNT, 0)
    assert math.isnan(summary.methods["IG"]["lift"].mean)


def test_the_label_is_not_attributed_either(data: ImageDataset) -> None:
    rows = evaluate(suite_models.hesitant(), data, ["SM"], None, "label", progress=False).rows
    assert (rows["target"] == rows["label"].where(~rows["abstained"], -1)).all()
    assert rows["f1"].isna().tolist() == rows["abstained"].tolist()


def test_every_measurement_leaves_them_out(tmp_path: Path) -> None:
    names = ("steady", "hesitant", "silent")
    models = tuple(ModelChoice(name, f"suite_models:{name}") for name in names)
    (layers,) = EVERYTHING.requested("layer_randomisation")
    measurements = {**EVERYTHING.measurements, "layer_randomisation": (replace(layers, models=()),)}
    suite = replace(EVERYTHING, models=models, data=replace(EVERYTHING.data, limit=10), measurements=measurements)
    wider = {
        name: tuple(replace(one, limit=10) if hasattr(one, "limit") else one for one in several)
        for name, several in measurements.items()
    }
    outcome = run_suite(replace(suite, block=5, measurements=wider), tmp_path, Machine(processes=0))
    assert not len(outcome.faults), outcome.faults["problem"].tolist()
    results = read_results(tmp_path)
    rows = results.rows
    images = {name: set(rows.loc[rows["model"] == name, "image_id"]) for name in names}
    abstained = {name: set(rows.loc[(rows["model"] == name) & rows["abstained"], "image_id"]) for name in names}
    assert not abstained["steady"]
    assert 0 < len(abstained["hesitant"]) < len(abstained["silent"]) == 10
    for name in ("similarity", "faithfulness", "removal", "sensitivity", "localisation", "layer_randomisation", "searches"):
        table = results[name]
        for model in names:
            assert set(table.loc[table["model"] == model, "image_id"]) == images[model] - abstained[model], (name, model)
    robust = results["robust"]
    clean = robust[robust["image_id"].isin(abstained["hesitant"]) & (robust["model"] == "hesitant")]
    assert not clean[["clean", "robust"]].any(axis=None)
    for entry in results.gallery:
        for model in names:
            missing = entry.image_id in abstained[model]
            assert (model in entry.predictions) == (not missing)
            assert all(bool(pd.isna(entry.maps[model, method]).all()) == missing for method in ("SM", "IG", "BIG"))


def test_the_command_line_prints_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.data.sources.shapes.DEFAULT_COUNT", {"eval": 40, "train": 40})
    command = ["--methods", "SM", "--search", "fast", "--limit", "10"]
    done = CliRunner().invoke(app, ["eval", "--model", "suite_models:silent", *command])
    assert done.exit_code == 0, done.output
    assert "10 images; abstained on 10 (100.0%)" in done.stdout
    both = CliRunner().invoke(app, ["compare", "suite_models:steady", "suite_models:hesitant", *command])
    assert both.exit_code == 0, both.output
    assert "abstained: suite_models:steady 0.0%, suite_models:hesitant " in both.stdout


def test_counting_does_not_hide_them() -> None:
    assert hasattr(Counted(suite_models.hesitant()), "abstains")
    assert not hasattr(Counted(suite_models.steady()), "abstains")
