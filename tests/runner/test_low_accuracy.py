"""A suite's model that is far less accurate than it should be is a warning, and no number changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from locality.runner.plan import make_plan
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.runner.suite_file import SuiteError, read_suite

HERE = Machine(processes=0)
GUESSES = ModelChoice("guesses", "suite_models:steady")  # random weights
SUITE = Suite("low", (GUESSES,), DataChoice("shapes", limit=20, options=(("count", 40),)), ("SM", "IG"), "none")


def with_model(**settings: object) -> Suite:
    return replace(SUITE, models=(replace(GUESSES, **settings),))  # type: ignore[arg-type]


def test_what_the_suite_expects_is_compared_with_each_image_once(tmp_path: Path) -> None:
    quiet = run_suite(SUITE, tmp_path, HERE)
    assert quiet.notes == ()
    expecting = run_suite(with_model(expect_accuracy=0.9), tmp_path, HERE)
    assert (expecting.kept, expecting.units) == (quiet.units, quiet.units)  # nothing is measured again
    [note] = expecting.notes
    assert "% on 20 images, far below the 90.0% of `expect_accuracy`: check the preprocessing" in note
    assert note.startswith("guesses has an accuracy of ")
    assert run_suite(with_model(expect_accuracy=0.15), tmp_path, HERE).notes == ()


def test_a_card_is_compared_too_unless_the_suite_says_otherwise(tmp_path: Path) -> None:
    choice = ModelChoice("shapes_cnn", mean=(1.0, 1.0, 1.0), std=(1.0, 1.0, 1.0))
    [note] = run_suite(replace(SUITE, models=(choice,)), tmp_path, HERE).notes
    assert "far below the 100.0% of its card" in note
    low = replace(choice, expect_accuracy=0.05)
    assert run_suite(replace(SUITE, models=(low,)), tmp_path, HERE).notes == ()


def test_the_expected_accuracy_is_no_part_of_a_key() -> None:
    assert make_plan(with_model(expect_accuracy=0.5)).units == make_plan(SUITE).units


def test_an_impossible_share_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('models = [{ name = "shapes_cnn", expect_accuracy = 76 }]\nmethods = ["XX"]')
    with pytest.raises(SuiteError, match=r"2 problems: .*must have an `expect_accuracy` such as 0.76, got 76"):
        read_suite(path)
