"""The table of measurements: what each record must hold, and that one line adds a new one to everything."""

from dataclasses import is_dataclass
from pathlib import Path

import pytest
from suite_examples import EVERYTHING
from toy_measurement import BRIGHTNESS
from typer.testing import CliRunner

from locality.cli import app
from locality.data.dataset import load_dataset
from locality.results.folder import read_results
from locality.runner.measurements import MEASUREMENTS
from locality.runner.plan_problems import grouped_parts
from locality.runner.suite_file import SuiteError, read_suite

SUITE = """
models = ["suite_models:steady"]
methods = ["SM"]
search = "none"
data = { name = "shapes", limit = 4, options = { count = 20 } }
brightness = { threshold = 0.4, limit = 3 }
"""


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_record_agrees_with_itself(name: str) -> None:
    measurement = MEASUREMENTS[name]
    assert measurement.name == name
    assert is_dataclass(measurement.settings)
    assert measurement.settings.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert isinstance(measurement.settings(), measurement.settings)  # `name = true` needs defaults
    parts = [part for group in grouped_parts(EVERYTHING) for part in group if part.measurement == name]
    assert parts, "EVERYTHING must have it"
    assert all(measurement.work(EVERYTHING, part).gradients >= 0 for part in parts)
    assert measurement.problems(EVERYTHING) == []


def test_no_two_measurements_write_the_same_table() -> None:
    tables = [name for measurement in MEASUREMENTS.values() for name in measurement.tables]
    assert len(tables) == len(set(tables))


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_line_adds_a_measurement_to_suites_results_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setitem(MEASUREMENTS, "brightness", BRIGHTNESS)
    suite, out = tmp_path / "toy.toml", tmp_path / "out"
    suite.write_text(SUITE)
    command = ["bench", str(suite), "--out", str(out), "--processes", str(processes)]
    estimated = CliRunner().invoke(app, [*command, "--dry-run"])
    assert estimated.exit_code == 0, estimated.output
    assert any(line.split()[:4] == ["brightness", "1", "0", "3"] for line in estimated.stdout.splitlines())
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    monkeypatch.delitem(MEASUREMENTS, "brightness")  # results are read without it
    for folder in (out, out / "tables"):
        table = read_results(folder)["brightness"]
        data = load_dataset("shapes", limit=3, count=20)
        expected = [float(data[index].image.mean()) for index in range(3)]
        assert table["brightness"].tolist() == pytest.approx([mean for mean in expected for _ in range(2)], rel=1e-4)
        assert table["bright"].tolist() == [mean > 0.4 for mean in expected for _ in range(2)]
        assert table["half"].tolist() == ["left", "right"] * 3
    printed = CliRunner().invoke(app, ["table", str(out), "--which", "brightness", "--format", "csv"])
    assert printed.exit_code == 0, printed.output
    assert "left" in printed.stdout
    assert f"{sum(expected) / 3:.3f}"[:4] in printed.stdout


def test_the_settings_of_an_added_measurement_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASUREMENTS, "brightness", BRIGHTNESS)
    suite = tmp_path / "toy.toml"
    suite.write_text(SUITE.replace("threshold = 0.4, limit = 3", "threshold = 2, limit = 0, treshold = 1"))
    with pytest.raises(SuiteError) as caught:
        read_suite(suite)
    assert [str(problem) for problem in caught.value.problems] == [
        "`brightness` has an unknown key 'treshold': did you mean 'threshold'?",
        "`brightness.limit` must be at least 1, got 0",
        "`brightness.threshold` must lie in [0, 1], got 2.0",
    ]
    monkeypatch.delitem(MEASUREMENTS, "brightness")
    with pytest.raises(SuiteError, match="has an unknown key 'brightness'"):
        read_suite(suite)
