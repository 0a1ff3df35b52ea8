"""Transfer attacks as a measurement of suites: rows of the function, keys that depend on the surrogate, and mistakes."""

from dataclasses import replace
from pathlib import Path

import pytest

from locality.data.dataset import load_dataset
from locality.errors import Problem
from locality.report.tables.build import tables
from locality.results.folder import read_results
from locality.robustness.transfer import transfer_accuracy
from locality.runner.measurements.robust import RobustSettings
from locality.runner.measurements.robust import problems as robust_problems
from locality.runner.plan import make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import SuiteError, read_suite
from locality.zoo.load import load_model

DIRECT = RobustSettings(epsilon=8 / 255, attack="pgd3", limit=6, batch_size=4)
TRANSFER = replace(DIRECT, surrogate="shapes_cnn", models=("shapes_cnn_robust",))
SUITE = Suite(
    "transfer",
    (ModelChoice("shapes_cnn"), ModelChoice("shapes_cnn_robust")),
    DataChoice("shapes", limit=6, options=(("count", 40),)),
    methods=("SM",),
    measurements={"robust": (DIRECT, TRANSFER)},
)


def keys(suite: Suite) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for unit in make_plan(suite).units:
        found.setdefault(unit.part, set()).add(unit.key)
    return found


def test_the_rows_are_those_of_the_function(tmp_path: Path) -> None:
    run_suite(SUITE, tmp_path, Machine(processes=0))
    results = read_results(tmp_path)
    rows = results["robust"]
    own = rows[rows["attack"] == "pgd3 from shapes_cnn"]
    assert own["model"].unique().tolist() == ["shapes_cnn_robust"]
    model, surrogate = load_model("shapes_cnn_robust"), load_model("shapes_cnn")
    data = load_dataset("shapes", limit=6, count=40, spec=model.spec)
    for part in (range(4), range(4, 6)):
        expected = transfer_accuracy(model, surrogate, data.batch(part), epsilon=8 / 255, attack="pgd3", batch_size=4).rows
        seen = own[own["image_id"].isin(expected["image_id"])]
        assert seen["robust"].tolist() == expected["robust"].tolist()
        assert seen["clean"].tolist() == expected["correct"].tolist()
    # What transfers is weaker than the attack on the model itself, and both are rows of the table.
    direct = rows[(rows["attack"] == "pgd3") & (rows["model"] == "shapes_cnn_robust")]
    assert own["robust"].sum() >= direct["robust"].sum()
    (table,) = tables(results, ["robust"])
    assert any("PGD-3 from shapes_cnn" in cell.text for row in table.rows for cell in row)


def test_keys_depend_on_the_surrogate_and_on_nothing_else() -> None:
    before = keys(SUITE)
    other = replace(SUITE, models=(ModelChoice("shapes_cnn", load="shapes_cnn_robust"), SUITE.models[1]))
    after = keys(other)
    assert before["robust 2"].isdisjoint(after["robust 2"])  # the same model, attacked on another surrogate
    assert before["robust 1"] & after["robust 1"]  # the robust model, attacked directly
    without = keys(replace(SUITE, measurements={"robust": (DIRECT,)}))
    assert without["robust 1"] == before["robust 1"]


def test_mistakes_are_listed_before_the_run() -> None:
    wrong = replace(
        SUITE,
        measurements={
            "robust": (
                replace(TRANSFER, surrogate="shapes_cn"),
                replace(TRANSFER, attack="paper"),
                TRANSFER,
                replace(TRANSFER, models=()),
            )
        },
    )
    listed = {(problem.where, problem.text.split(":")[0]) for problem in robust_problems(wrong)}
    assert listed == {
        ("robust[0].surrogate", "must be one of shapes_cnn, shapes_cnn_robust, got 'shapes_cn'"),
        ("robust[1].attack", "must be pgdN or cwN with a surrogate, got 'paper'"),
        ("robust[3]", "must not repeat the attack of `robust[2]`"),
    }
    assert robust_problems(SUITE) == []


def test_a_surrogate_that_sees_other_pixels() -> None:
    larger = ModelChoice("larger", "shapes_cnn", input_size=96)
    suite = replace(SUITE, models=(*SUITE.models, larger), measurements={"robust": (replace(TRANSFER, models=("larger",)),)})
    with pytest.raises(SuiteError) as caught:
        make_plan(suite)
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert problem.where == "robust 1"
    assert problem.text.startswith("cannot be measured for larger: `surrogate` must be a model of the same `input_size`")


def test_it_is_read_from_toml(tmp_path: Path) -> None:
    text = 'models = ["shapes_cnn", "shapes_cnn_robust"]\ndata = { name = "shapes" }\n'
    text += '[robust]\nattack = "pgd20"\nsurrogate = "shapes_cnn"\nmodels = ["shapes_cnn_robust"]\n'
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    (settings,) = read_suite(tmp_path / "mine.toml").requested("robust")
    assert settings == RobustSettings(attack="pgd20", surrogate="shapes_cnn", models=("shapes_cnn_robust",))
