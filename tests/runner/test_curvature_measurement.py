"""Curvature as a measurement of suites: which images, which rows, and pieces that can be put together."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from suite_examples import STEADY
from typer.testing import CliRunner

from locality.cli import app
from locality.curvature.model_curvature import model_curvature
from locality.curvature.training_run import TrainingImages
from locality.data.dataset import load_dataset
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.measurements import MEASUREMENTS
from locality.runner.measurements.curvature import CurvatureSettings
from locality.runner.plan import Plan, make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import SuiteError, draft_suite
from locality.runner.unit import block_tables
from locality.zoo.load import load_model

SETTINGS = CurvatureSettings(steps=2, limit=6)
SUITE = Suite(
    "curved",
    (ModelChoice("shapes_cnn"),),
    DataChoice("shapes", limit=8, options=(("count", 40),)),
    methods=("SM",),
    search="none",
    block=4,
    measurements={"curvature": (SETTINGS,)},
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("curved")
    run_suite(SUITE, out, Machine(processes=0))
    return read_results(out)


def test_the_rows_are_those_of_the_function(results: Results) -> None:
    model = load_model("shapes_cnn")
    train = TrainingImages("shapes").of(model.spec, 6, count=40)
    test = load_dataset("shapes", limit=6, count=40, spec=model.spec, max_box_share=None)
    expected = model_curvature(model, train, test, steps=2)
    layers, [row] = results["curvature"], results["curvature_models"].to_dict("records")
    assert layers["trace"].tolist() == pytest.approx(expected.traces.traces.tolist(), rel=1e-5)
    assert layers["weight_norm"].tolist() == pytest.approx(expected.traces.norms.tolist())
    assert layers["layer"].tolist() == list(expected.traces.names)
    assert row["wci"] == pytest.approx(expected.index.index, rel=1e-5)
    assert row["top_trace"] == pytest.approx(expected.to_json()["top_trace"], rel=1e-5)
    assert (row["images"], row["steps"], row["norm"], row["method"]) == (6, 2, "linf", "exact")
    images = results["curvature_images"]
    for split in ("train", "test"):
        own = images[images["split"] == split]
        assert own["robust_loss"].mean() == pytest.approx(expected.to_json()["gap"][split]["robust_loss"]["mean"], rel=1e-4)
        assert own["image_id"].is_unique
    assert set(images["image_id"]) == set(expected.image_rows["image_id"])


def plan_of(suite: Suite) -> Plan:
    return make_plan(suite)


def test_the_training_images_of_a_model_are_one_unit() -> None:
    units = [(unit.part, unit.first, unit.last) for unit in plan_of(SUITE).units]
    assert units == [
        ("locality", 0, 4),
        ("locality", 4, 8),
        ("curvature", 0, 6),
        ("curvature test", 0, 4),
        ("curvature test", 4, 6),
    ]


def test_pieces_of_a_unit_have_the_trace_of_the_whole(results: Results) -> None:
    """A unit that crashed is measured in halves; their traces, weighted by their images, are those of all images."""
    plan = plan_of(SUITE)
    [unit] = [unit for unit in plan.units if unit.part == "curvature"]
    task, model = plan.task(unit, 1), load_model("shapes_cnn")
    data = TrainingImages("shapes").of(model.spec, 6, count=40)
    samples = list(data)
    pieces = [block_tables(task, model, data, some, {})["curvature"] for some in (samples[:2], samples[2:])]
    both = pd.concat(pieces)
    weighted = (both["trace"] * both["images"]).groupby(both["layer"], sort=False).sum() / 6
    whole = results["curvature"]
    assert weighted.tolist() == pytest.approx(whole["trace"].tolist(), rel=1e-5)


def test_other_settings_are_other_units() -> None:
    def keys(settings: CurvatureSettings) -> dict[str, str]:
        plan = plan_of(replace(SUITE, measurements={"curvature": (settings,)}))
        return {f"{unit.part} {unit.first}": unit.key for unit in plan.units if unit.part.startswith("curvature")}

    before, stronger, estimated = keys(SETTINGS), keys(replace(SETTINGS, epsilon=0.1)), keys(replace(SETTINGS, probes=9))
    assert not set(before.values()) & set(stronger.values())
    assert before["curvature 0"] != estimated["curvature 0"]
    assert before["curvature test 0"] == estimated["curvature test 0"]


def test_a_model_whose_training_is_unknown_needs_a_data_set() -> None:
    with pytest.raises(SuiteError) as caught:
        make_plan(replace(SUITE, models=(ModelChoice("steady", STEADY),)))
    assert "steady` cannot be measured: `curvature.train` must be given: no card says what steady was trained on" in str(
        caught.value
    )
    told = replace(
        SUITE, models=(ModelChoice("steady", STEADY),), measurements={"curvature": (replace(SETTINGS, train="shapes"),)}
    )
    assert len(make_plan(told).units) == 5


def test_mistakes(tmp_path: Path) -> None:
    suite = tmp_path / "wrong.toml"
    suite.write_text('models = ["shapes_cnn"]\ncurvature = { epsilon = 8, steps = 0, probes = 0, method = "exactly" }\n')
    problems = [str(problem) for problem in draft_suite(suite).problems]
    assert problems[0].startswith("`curvature.method` must be one of auto, exact, sampled, probed, got 'exactly'")
    assert any(problem.startswith("`curvature.epsilon` must be at most 1") or "8/255" in problem for problem in problems)
    assert "`curvature.steps` must be at least 1, got 0" in problems
    assert "`curvature.probes` must be at least 1, got 0" in problems


def test_the_dry_run_counts_backward_passes_of_weights(tmp_path: Path) -> None:
    suite = tmp_path / "curved.toml"
    suite.write_text(
        'models = ["shapes_cnn"]\nmethods = ["SM"]\nsearch = "none"\n'
        'data = { name = "shapes", limit = 4, options = { count = 20 } }\n'
        "curvature = { steps = 2, limit = 4 }\n"
    )
    done = CliRunner().invoke(app, ["bench", str(suite), "--out", str(tmp_path / "out"), "--dry-run", "--processes", "0"])
    assert done.exit_code == 0, done.output
    line = next(line.split() for line in done.stdout.splitlines() if line.startswith(" curvature ") and " test " not in line)
    assert float(line[4]) == pytest.approx(2 + 10)  # two steps of the attack, a backward pass per class
    plan = plan_of(SUITE)
    work = [MEASUREMENTS["curvature"].work(SUITE, part).gradients for part in plan.parts.values() if "curv" in part.name]
    assert work == [12, 2]
