"""Suites and commands on data without boxes: what needs no boxes is measured, the rest is refused before it runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_cifar10 import write_batches
from suite_examples import EVERYTHING
from suite_models import cifar
from torch import Tensor, nn
from typer.testing import CliRunner

from locality.cli import app
from locality.data.dataset import load_dataset
from locality.errors import ArgumentError
from locality.report.aggregates import NotMeasuredError
from locality.report.figures.catalogue import draw_figures
from locality.report.figures.heatmaps import model_heatmaps
from locality.report.findings import sentences
from locality.report.models import models_of
from locality.report.page.html import report_page
from locality.report.tables.build import tables
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.evaluate import evaluate
from locality.runner.measurements.locality import LocalitySettings
from locality.runner.measurements.similarity import SimilaritySettings
from locality.runner.plan import make_plan
from locality.runner.plan_problems import grouped_parts
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import SuiteError, read_suite

HERE = Machine(processes=0)
MODELS = (
    ModelChoice("cifar", "suite_models:cifar", training="standard"),
    ModelChoice("robust", "suite_models:other_cifar", family="cifar", training="at"),
)
SIMILARITY = (SimilaritySettings(),)


def on(folder: Path, **measurements: tuple[Any, ...]) -> Suite:
    return Suite("ten", MODELS, DataChoice(f"cifar10:{folder}", limit=6), block=4, measurements=measurements)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Every measurement that needs no boxes."""
    folder = tmp_path_factory.mktemp("ten")
    measurements = {
        name: settings for name, settings in EVERYTHING.measurements.items() if name not in ("regions", "localisation")
    }
    measurements["layer_randomisation"] = (replace(measurements["layer_randomisation"][0], models=("cifar",)),)
    outcome = run_suite(on(write_batches(folder / "batches"), **measurements), folder / "out", HERE)
    assert outcome.faults.empty
    return read_results(folder / "out")


def test_everything_else_than_locality_is_measured(results: Results, tmp_path: Path) -> None:
    measured = {
        "similarity",
        "robust",
        "faithfulness",
        "removal",
        "sensitivity",
        "layer_randomisation",
        "searches",
        "gallery",
    }
    assert measured <= set(results)
    assert results.rows.empty
    assert len(results["similarity"]) == 2 * 6 * 3  # models × images × pairs
    assert {table.name for table in tables(results)} == measured - {"layer_randomisation", "gallery"} | {"certified"}
    with pytest.raises(NotMeasuredError, match="locality was not measured"):
        tables(results, ["locality"])
    first, *others = sentences(results)
    folder = results.models["data"][0]
    assert first == f"2 models (1 standard, 1 robust); 6 images of {folder}. Locality was not measured."
    assert any("closer (ℓ2) to their boundary-based counterparts" in sentence for sentence in others)
    assert set(draw_figures(results, tmp_path, ["2.4"], ["png"]).files) == {"2.4"}
    for name in ("3.2", "3.4", "distance"):
        with pytest.raises(NotMeasuredError, match=f"Figure {name} cannot be drawn"):
            draw_figures(results, tmp_path, [name])
    page = report_page(results)
    assert "Similarity of attributions" in page
    assert "the box is the annotation" not in page


@pytest.mark.parametrize("width", ["page", "column"])
def test_heat_maps_show_neither_box_nor_f1(results: Results, width: Any) -> None:
    figure = model_heatmaps(results, models_of(results)[0].name, width=width).figure
    texts = {panel.get_title() for panel in figure.axes} | {panel.get_xlabel() for panel in figure.axes}
    assert not any("F1" in text or "box" in text for text in texts)
    assert ("image" in texts) == (width == "page")
    assert "SM" in texts


def test_similarity_has_units_of_its_own_where_locality_is_not_measured(small_cifar10: Path) -> None:
    suite = on(small_cifar10, similarity=SIMILARITY)
    assert [[part.name for part in group] for group in grouped_parts(suite)] == [["locality", "similarity"]]
    [[alone]] = grouped_parts(suite, has_regions=False)
    assert (alone.name, alone.along, alone.block) == ("similarity", "", 4)
    plan = make_plan(suite)
    assert list(plan.parts) == ["similarity"]
    assert [(unit.model, len(unit)) for unit in plan.units] == [("cifar", 4), ("cifar", 2), ("robust", 4), ("robust", 2)]
    keys = {unit.key for unit in plan.units}
    for change in ({"seed": 1}, {"search": "thorough"}, {"target": "label"}):  # all decide the maps
        assert not keys & {unit.key for unit in make_plan(replace(suite, **change)).units}, change


def test_a_suite_may_leave_locality_out_and_similarity_stays_the_same(tmp_path: Path) -> None:
    asked = {"similarity": SIMILARITY}
    both = replace(EVERYTHING, measurements=asked)
    run_suite(both, tmp_path / "both", HERE)
    run_suite(replace(both, measurements=asked | {"locality": ()}), tmp_path / "alone", HERE)
    with_locality, alone = read_results(tmp_path / "both"), read_results(tmp_path / "alone")
    assert len(with_locality.rows) == 2 * 3 * 3
    assert alone.rows.empty
    assert alone["similarity"].equals(with_locality["similarity"])


def test_each_model_on_the_data_of_its_classes(small_cifar10: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALITY_CIFAR10", str(small_cifar10))
    models = (MODELS[0], EVERYTHING.models[0])
    mixed = Suite("mixed", models, DataChoice(limit=2), measurements={"similarity": SIMILARITY})
    plan = make_plan(mixed)
    assert [(unit.model, unit.part) for unit in plan.units] == [("cifar", "similarity"), ("steady", "locality")]
    outcome = run_suite(plan, tmp_path / "out", HERE)
    assert outcome.faults.empty
    results = read_results(tmp_path / "out")
    assert set(results.rows["model"]) == {"steady"}
    assert set(results["similarity"]["model"]) == {"cifar", "steady"}
    [overview] = tables(results, ["overview"])
    assert [row[0].text for row in overview.rows] == ["cifar", "steady"]
    assert overview.rows[0][2].text == "–"
    assert sentences(results)[0].startswith("2 models (2 standard); 4 images of cifar10 and shapes")


def test_what_needs_boxes_is_listed_before_anything_runs(small_cifar10: Path) -> None:
    with pytest.raises(SuiteError) as nothing_left:
        make_plan(on(small_cifar10))
    [problem] = nothing_left.value.problems
    assert str(problem) == (
        f"`data` has no boxes (cifar10:{small_cifar10}), so locality cannot be measured: ask for something else, such as "
        "similarity or robust"
    )
    with pytest.raises(SuiteError) as asked_for:
        make_plan(on(small_cifar10, similarity=SIMILARITY, locality=(LocalitySettings(),)))
    [problem] = asked_for.value.problems
    assert str(problem) == (f"`locality` cannot be measured on cifar10:{small_cifar10}, which has no boxes: leave it out")


def test_evaluate_refuses_before_the_model_is_called(small_cifar10: Path) -> None:
    class Uncalled(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise AssertionError("the model was called")

    data = load_dataset(f"cifar10:{small_cifar10}", limit=4)
    with pytest.raises(ArgumentError, match=r"`data` must be images with boxes, .* got 'cifar10': without boxes, `locality"):
        evaluate(Uncalled(), data, progress=False)


@pytest.mark.parametrize(
    "words", [["eval", "--model", "suite_models:cifar"], ["compare", "suite_models:cifar", "suite_models:other_cifar"]]
)
def test_commands_that_measure_locality_say_what_is_possible(
    words: list[str], small_cifar10: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALITY_CIFAR10", str(small_cifar10))
    for data in ([], ["--data", "cifar10"]):  # also by default, as the data set of the model's classes
        done = CliRunner().invoke(app, [*words, *data])
        assert isinstance(done.exception, ArgumentError)
        assert "`locality robust`, `certify`, `curvature`, `explain`" in str(done.exception)


def test_robust_and_certify_work_on_it(small_cifar10: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALITY_CIFAR10", str(small_cifar10))
    model = ["--model", "suite_models:cifar", "--limit", "10", "--json"]
    attacked = CliRunner().invoke(app, ["robust", *model, "--attack", "pgd20", "--eps", "1/255"], catch_exceptions=False)
    numbers = json.loads(attacked.stdout)
    assert (numbers["n"], numbers["undefined"], numbers["data"]) == (10, 0, "cifar10")
    certified = CliRunner().invoke(app, ["certify", *model, "--by", "smoothing", "--samples", "20"], catch_exceptions=False)
    assert json.loads(certified.stdout)["n"] == 10
    batch = load_dataset("cifar10", limit=10).batch(range(10))
    with torch.no_grad():
        right = int((cifar().eval()(batch.images).argmax(1) == batch.labels).sum())
    assert round(10 * numbers["clean"]["mean"]) == right


def test_the_suite_of_cifar10_that_ships() -> None:
    suite = read_suite("cifar")
    assert [choice.source for choice in suite.models] == [
        f"real_models:cifar_{name}" for name in ("resnet20", "resnet_at4", "resnet_at8", "resnet56")
    ]
    assert [group[0].name for group in grouped_parts(suite, has_regions=False)] == [
        "similarity",
        "robust 1",
        "robust 2",
        "searches fast",
    ]
