"""Region tests of a suite: the known answer on `shapes`, donors of the whole part, and settings out of range."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from suite_examples import EVERYTHING

from locality.data.dataset import load_dataset
from locality.results.region_tests import REGIONS, followed, relative_core_sensitivity, reliance
from locality.runner.measurement import Part
from locality.runner.measurements.regions import REGION_TESTS, RegionsSettings
from locality.runner.plan import make_plan
from locality.runner.plan_problems import grouped_parts
from locality.runner.region_rows import region_rows
from locality.runner.suite import Suite
from locality.runner.suite_file import problems_of
from locality.runner.unit import measure
from locality.scores.region_tests import RegionSettings
from locality.zoo.load import load_model

IMAGES = 60


@pytest.fixture(scope="module")
def tests() -> dict[str, pd.DataFrame]:
    data = load_dataset("shapes", limit=IMAGES, count=200)
    batch = data.batch(range(IMAGES))
    names = ("shapes_cnn", "shapes_cnn_robust")
    return {name: region_rows(load_model(name), batch, data, name, RegionSettings(), 0) for name in names}


def accuracy(tests: pd.DataFrame, column: str = "correct") -> pd.Series:
    return tests.groupby("test")[column].mean()


def test_the_cue_network_needs_the_background_and_follows_another_one(tests: dict[str, pd.DataFrame]) -> None:
    table = tests["shapes_cnn"]
    assert table["before"].all()
    right = accuracy(table)
    assert right[["inside_greyed", "inside_blurred"]].min() == 1
    assert right[["outside_greyed", "outside_blurred", "outside_swapped"]].max() < 0.25
    assert np.nanmean(followed(table)) > 0.95  # it reads the cue of the other image's class
    assert reliance(table).mean() < -0.1
    assert relative_core_sensitivity(table).value == pytest.approx(-1)


def test_the_robust_network_needs_the_object(tests: dict[str, pd.DataFrame]) -> None:
    table = tests["shapes_cnn_robust"]
    right = accuracy(table)
    assert right[["inside_greyed", "inside_blurred"]].max() < 0.35
    assert right[["outside_greyed", "outside_blurred"]].min() > 0.9
    assert right["outside_swapped"] > 0.6
    assert np.nanmean(followed(table)) < 0.1
    elsewhere = accuracy(table, "correct_elsewhere")
    assert elsewhere["inside_greyed"] > 0.9  # the same area elsewhere does nothing
    assert elsewhere["outside_greyed"] < 0.5
    assert reliance(table).mean() > 0.6
    assert relative_core_sensitivity(table).value > 0.3  # few images are lost to either noise, so one more counts a lot


def test_rows_record_the_donor_of_the_swap_alone(tests: dict[str, pd.DataFrame]) -> None:
    table = tests["shapes_cnn"]
    assert tuple(table.columns) == tuple(REGIONS)
    swapped = table["test"] == "outside_swapped"
    assert (table["donor_label"] >= 0).tolist() == table["donor"].notna().tolist() == swapped.tolist()
    label = {sample.id: sample.label for sample in load_dataset("shapes", limit=IMAGES, count=200)}
    assert (table[swapped]["image_id"].map(label) != table[swapped]["donor_label"]).all()
    assert (table[swapped]["donor"].map(label) == table[swapped]["donor_label"]).all()
    assert set(table["region"]) == {"box"}


def regions_part(suite: Suite) -> Part:
    [part] = [group[0] for group in grouped_parts(suite) if group[0].name == "regions"]
    return part


def test_a_unit_depends_on_every_image_of_the_part() -> None:
    """Any of them may lend its background: other images, other keys."""
    keys = []
    for limit in (2, 3):
        suite = replace(EVERYTHING, measurements={"regions": (RegionsSettings(draws=1, limit=limit),)})
        plan = make_plan(suite)
        [first] = [unit for unit in plan.units if (unit.part, unit.model, unit.first) == ("regions", "steady", 0)]
        assert len(first) == 2
        keys.append(first.key)
    assert keys[0] != keys[1]


def test_units_give_rows_of_the_schema_whatever_their_size() -> None:
    tables = []
    for block in (1, 3):
        suite = replace(EVERYTHING, block=block, measurements={"regions": (RegionsSettings(draws=1),)})
        plan = make_plan(suite)
        units = [unit for unit in plan.units if (unit.part, unit.model) == ("regions", "steady")]
        tables.append(pd.concat([measure(plan.task(unit, 1)).tables["regions"] for unit in units], ignore_index=True))
    assert len(tables[0]) == 3 * 7
    pd.testing.assert_frame_equal(*tables, rtol=1e-4, atol=1e-5)


def test_work_and_problems() -> None:
    suite = replace(EVERYTHING, measurements={"regions": (RegionsSettings(draws=2),)})
    assert REGION_TESTS.work(suite, regions_part(suite)).forwards == 19
    wrong = replace(EVERYTHING, measurements={"regions": (RegionsSettings(sigma=0.0, limit=0),)})
    assert [str(problem) for problem in problems_of(wrong, check_models=False)] == [
        "`regions.limit` must be at least 1, got 0",
        "`regions.sigma` must be above 0, got 0.0",
    ]
