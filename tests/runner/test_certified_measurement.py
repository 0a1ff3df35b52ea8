"""Certified radii as a measurement of suites: rows of the function, several certificates, and networks without a bound."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from suite_models import lipschitz

from locality.certified.lipschitz import Lipschitz, certify
from locality.certified.smoothing import Smoothing
from locality.data.dataset import load_dataset
from locality.report.certified import certificates
from locality.report.figures.catalogue import draw_figures
from locality.report.tables.build import tables
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.measurements import MEASUREMENTS
from locality.runner.measurements.certified import CertifiedSettings, recorded
from locality.runner.measurements.robust import RobustSettings
from locality.runner.plan import make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import draft_suite

SHORT = {"sigma": 0.1, "samples": 20, "selection_samples": 5}
SUITE = Suite(
    "certified",
    (
        ModelChoice("lip", "suite_models:lipschitz", training="certified", norm="l2", epsilon=36 / 255),
        ModelChoice("steady", "suite_models:steady"),
    ),
    DataChoice("shapes", limit=6, options=(("count", 40),)),
    methods=("SM",),
    block=4,
    measurements={
        "certified": (
            CertifiedSettings(radii=(0.01, 0.02)),
            CertifiedSettings(by="smoothing", options=SHORT, limit=4, models=("lip",)),
        ),
        "robust": (RobustSettings("l2", 0.02, "pgd5"),),
    },
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    out = tmp_path_factory.mktemp("certified")
    run_suite(SUITE, out, Machine(processes=0))
    return read_results(out)


def test_the_rows_are_those_of_the_function(results: Results) -> None:
    batch = load_dataset("shapes", limit=6, count=40, spec=lipschitz().spec).batch(range(6))
    expected = certify(lipschitz(), batch.images)
    rows = results["certified"]
    own = rows[rows["by"] == "lipschitz"]
    assert own["model"].unique().tolist() == ["lip"]
    assert own["image_id"].tolist() == list(batch.ids)
    assert own["radius"].tolist() == pytest.approx(expected.radius.tolist(), abs=1e-12)
    assert own["prediction"].tolist() == expected.prediction.tolist()
    assert own["correct"].tolist() == (expected.prediction == batch.labels).tolist()
    assert own["lipschitz"].nunique() == 1
    assert own["radii"].unique().tolist() == ["0.01 0.02"]
    smoothed = rows[rows["by"] == "smoothing"]
    some = load_dataset("shapes", limit=4, count=40, spec=lipschitz().spec).batch(range(4))
    votes = Smoothing(sigma=0.1, samples=20, selection_samples=5)(lipschitz(), some.images)
    assert smoothed["radius"].tolist() == pytest.approx(votes.radius.tolist())
    assert smoothed["abstained"].tolist() == votes.abstained.tolist()
    assert smoothed["lipschitz"].isna().all()
    assert json.loads(smoothed["settings"].iloc[0])["sigma"] == 0.1


def test_a_network_without_a_bound_is_a_fault_that_names_the_layer(results: Results) -> None:
    [fault] = results.faults[results.faults["model"] == "steady"]["problem"].unique()
    assert "made of layers with a Lipschitz bound, got 'Little (model)'" in fault
    assert "smoothing" in fault


def test_verified_is_below_attacked_is_below_clean_image_by_image(results: Results) -> None:
    one, smoothed = certificates(results)
    assert (one.model, one.by, smoothed.by) == ("lip", "lipschitz", "smoothing, σ 0.1, n 20")
    attacked = one.attacked(results, 0.02)
    assert attacked is not None
    assert one.verified(0.02).mean <= attacked.mean <= float(one.correct.mean())
    assert one.violations(results) == 0
    assert smoothed.violations(results) is None
    assert 0.05 < one.tightness(results) < 1
    [table] = tables(results, ["certified"])
    assert [[cell.text for cell in row[2:4]] for row in table.rows[:2]] == [
        ["lipschitz", "ℓ2 0.01"],
        ["lipschitz", "ℓ2 0.02"],
    ]
    assert [row[9].text for row in table.rows] == ["0", "0", "–", "–", "–"]


def test_the_figure_is_drawn(results: Results, tmp_path: Path) -> None:
    drawn = draw_figures(results, tmp_path, ["vra"], ["png"])
    assert [path.name for path in drawn.files["vra"]] == ["verified_over_radius.png"]


def test_other_settings_are_other_units_and_work_is_counted() -> None:
    def keys(settings: CertifiedSettings) -> set[str]:
        plan = make_plan(replace(SUITE, measurements={"certified": (settings,)}))
        return {unit.key for unit in plan.units if unit.part.startswith("certified")}

    smoothing = CertifiedSettings(by="smoothing", options=SHORT)
    assert keys(CertifiedSettings()) == keys(CertifiedSettings())
    assert not keys(smoothing) & keys(CertifiedSettings(by="smoothing", options=SHORT | {"sigma": 0.2}))
    plan = make_plan(SUITE)
    work = {name: MEASUREMENTS["certified"].work(SUITE, part) for name, part in plan.parts.items() if "certified" in name}
    assert [one.forwards for one in work.values()] == [5, 25]


def test_tight_proofs_are_other_units_and_plain_ones_keep_their_settings() -> None:
    """The option came later: rows and keys from before it stay valid."""
    assert recorded(Lipschitz()) == {"slack": 0.0}
    assert recorded(Lipschitz(tight=True)) == {"slack": 0.0, "tight": True}
    assert "tight" not in recorded(Smoothing())


def test_mistakes(tmp_path: Path) -> None:
    suite = tmp_path / "wrong.toml"
    suite.write_text(
        'models = ["shapes_cnn"]\n'
        '[[certified]]\nby = "lipshitz"\n'
        "[[certified]]\noptions = { sigma = 1 }\n"
        '[[certified]]\nby = "smoothing"\noptions = { sigma = -1 }\n'
        "[[certified]]\nradii = [-1]\n"
        '[[certified]]\n[[certified]]\nradii = ["1/2"]\n'
    )
    problems = [str(problem) for problem in draft_suite(suite).problems]
    for index, sentence in enumerate(
        [
            "`certified[0].by` must be one of lipschitz, ",
            "`certified[1].options` must be one of slack, tight, got 'sigma'",
            "`certified[2].sigma` must be",
            "`certified[3].radii` must be distances",
            "`certified[5]` must not repeat the certificate of `certified[4]`",
        ]
    ):
        assert any(problem.startswith(sentence) for problem in problems), (index, problems)
