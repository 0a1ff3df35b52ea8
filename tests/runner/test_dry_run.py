"""What a plan costs, against what is counted when it is done."""

import functools
import itertools
import time
from dataclasses import replace

import pytest
import torch

from locality.attribution import attribute_all
from locality.boundary import find_boundary
from locality.runner.dry_run import Counted, Speed, _makespan, estimate, nominal_work
from locality.runner.measurement import Block, Tables
from locality.runner.measurements import MEASUREMENTS
from locality.runner.measurements.faithfulness import FaithfulnessSettings
from locality.runner.measurements.robust import RobustSettings
from locality.runner.measurements.similarity import SimilaritySettings
from locality.runner.plan import Unit, images_of, make_plan
from locality.runner.run import Machine
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.unit import block_tables
from locality.runner.work import Work, method_work
from locality.zoo.load import load_model

OURS = ("SM", "InputXGradient", "IG", "BSM", "BIG", "BSG", "BDeepLIFT", "SmoothGrad")


@pytest.fixture(scope="module")
def counted() -> Counted:
    return Counted(load_model("suite_models:steady"))


def test_methods_cost_what_the_table_says(counted: Counted) -> None:
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    edge = find_boundary(counted, images)
    assert edge.found.all()
    for count in (1, 2, len(OURS)):
        for methods in itertools.combinations(OURS, count):
            before = counted.tally.gradients
            attribute_all(counted, images, methods, boundary=edge)
            assert (counted.tally.gradients - before) / 2 == method_work(methods).gradients, methods


def test_parts_cost_what_is_predicted() -> None:
    suite = Suite(
        "cost",
        (ModelChoice("steady", "suite_models:steady"),),
        DataChoice("shapes", limit=3, options=(("count", 20),)),
        ("SM", "IG"),
        search="none",
        measurements={
            "faithfulness": (FaithfulnessSettings(samples=7),),
            "robust": (RobustSettings("linf", 1e-9, "pgd20"),),
        },
    )
    plan = make_plan(suite)
    tasks = {unit.part: plan.task(unit, 1) for unit in plan.units}
    assert set(tasks) == {"locality", "faithfulness", "robust 1"}
    for name, task in tasks.items():
        model = Counted(load_model("suite_models:steady"))
        data = images_of(suite, task.part, plan.models[0])
        block_tables(task, model, data, [data[index] for index in range(3)], {})
        measured, expected = Work(model.tally.gradients, model.tally.forwards).times(1 / 3), nominal_work(task)
        if name == "robust 1":  # an upper bound: images that are wrong already are not attacked
            assert 0 < measured.gradients <= expected.gradients
        else:
            assert measured.gradients == expected.gradients
            assert measured.forwards == pytest.approx(expected.forwards, abs=2)


def test_similarity_shares_the_maps_of_locality() -> None:
    """It adds BSM's and BIG's gradients to those of SM and IG, but neither a search nor a forward pass."""
    models = (ModelChoice("steady", "suite_models:steady"),)
    data = DataChoice("shapes", limit=2, options=(("count", 20),))
    counts = []
    for measurements in ({}, {"similarity": (SimilaritySettings(),)}):
        plan = make_plan(Suite("cost", models, data, ("SM", "IG"), measurements=measurements))
        (unit,) = plan.units
        task = plan.task(unit, 1)
        model = Counted(load_model("suite_models:steady"))
        images = images_of(plan.suite, task.part, plan.models[0])
        tables = block_tables(task, model, images, [images[0], images[1]], {})
        assert list(tables) == ["rows", "model_free", *measurements]
        assert tables["rows"]["method"].tolist() == ["SM", "IG"] * 2
        counts.append((model.tally.gradients / 2, model.tally.forwards / 2, nominal_work(task)))
    (alone, forwards, nominal), (both, forwards_of_both, nominal_of_both) = counts
    assert both - alone == 19 == nominal_of_both.gradients - nominal.gradients
    assert forwards_of_both == forwards


def test_an_error_while_calibrating_is_reported_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    locality = MEASUREMENTS["locality"]

    def fails_for_other(block: Block) -> Tables:
        if block.name == "other":
            raise MemoryError("no room for it")
        return locality.rows(block)

    models = ModelChoice("steady", "suite_models:steady"), ModelChoice("other", "suite_models:other")
    data = DataChoice("shapes", limit=2, options=(("count", 20),))
    plan = make_plan(Suite("cost", models, data, ("SM",), search="none"))
    monkeypatch.setitem(MEASUREMENTS, "locality", replace(locality, rows=fails_for_other))
    found = estimate(plan, Machine(processes=0), plan.units)
    assert found.failed == {("other", "locality"): "MemoryError: no room for it"}
    assert found.speeds["other", "locality"] == Speed(Work(1, 1), 0.0, 0, 0.0)
    known = found.speeds["steady", "locality"]
    assert found.seconds == pytest.approx(2 * known.seconds + known.opening)


def test_the_last_unit_decides() -> None:
    def unit(model: str, images: int) -> Unit:
        return Unit(model, "locality", 0, images, "", "")

    speeds = {(model, "locality"): Speed(Work(), 1.0, 1, 5.0) for model in ("a", "b")}
    units = [unit("a", 10), unit("a", 10), unit("a", 4), unit("b", 10)]
    assert _makespan(units, speeds, 1) == 5 + 10 + 10 + 4 + 5 + 10
    # Both open a; the first goes on with a's last unit until 19, the second opens b and takes until 30.
    assert _makespan(units, speeds, 2) == 15 + 5 + 10


def test_a_few_images_are_not_taken_for_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that takes as long for one image as for many: what is measured on a few is scaled to a whole unit."""

    class Slow(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            time.sleep(0.02)
            return images.flatten(2).mean(2)

    monkeypatch.setattr("locality.runner.dry_run.loaded", functools.cache(lambda model, device: Slow()))
    data = DataChoice("shapes", limit=16, options=(("count", 20),))
    plan = make_plan(Suite("cost", (ModelChoice("steady", "suite_models:steady"),), data, ("SM",), search="none", block=16))
    few = estimate(plan, Machine(processes=0), plan.units, 0.005).speeds["steady", "locality"]
    many = estimate(plan, Machine(processes=0), plan.units, 2.0).speeds["steady", "locality"]
    assert few.images < 4 < many.images
    assert few.seconds < 3 * many.seconds  # unscaled it is more than four times as long


def test_estimates_are_of_what_is_left() -> None:
    suite = Suite(
        "left",
        (ModelChoice("steady", "suite_models:steady"),),
        DataChoice("shapes", limit=4, options=(("count", 20),)),
        block=2,
    )
    plan = make_plan(suite)
    reported: list[tuple[int, int | None]] = []
    found = estimate(plan, Machine(processes=0), plan.units[1:], 0.5, lambda done, total: reported.append((done, total)))
    assert reported == [(1, 1)]
    speed = found.speeds["steady", "locality"]
    assert speed.images >= 1
    assert 39 < speed.work.gradients < 39 + 110
    assert found.work_of(found.left).gradients == pytest.approx(2 * speed.work.gradients)
    assert found.seconds == pytest.approx(2 * speed.seconds + speed.opening)
    assert found.seconds_of(found.left) == pytest.approx(2 * speed.seconds)
    dear = replace(plan, suite=replace(suite, search="paper"))
    nominal = estimate(dear, Machine(processes=0), plan.units[:1], 1e-9).speeds["steady", "locality"]
    assert (nominal.images, nominal.work) == (0, Work(1040.0, 15.0))
