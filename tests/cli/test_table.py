"""`locality table`: tables of stored results, printed or written."""

import csv
import io
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from cli.imported_modules import imported_modules
from report.made_up_results import nothing_measured, small_results, write_results
from typer.testing import CliRunner

from locality.cli.table import WHICH_HELP, TableFormat, table
from locality.report.tables.build import TABLES
from locality.report.tables.formats import FORMATS

app = typer.Typer()
app.command()(table)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(small_results(), tmp_path_factory.mktemp("results") / "made up")


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_every_table_is_printed_with_signs_where_there_is_no_terminal(folder: Path) -> None:
    text = run(folder)
    for words in (
        "Accuracy and locality",
        "Table 3.1",
        "Table B.2",
        "Robust accuracy",
        "Faithfulness",
        "could not be measured",
    ):
        assert words in text
    [line] = [line for line in text.splitlines() if line.lstrip().startswith("tiny_resnet_robust8") and "%" in line][:1]
    assert "*" in line
    assert "Best of each method marked *; ~ where standard errors overlap." in text
    assert "bold" not in text
    assert "\x1b" not in text


def test_one_table_in_every_form(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(folder, "--which", "locality", "--format", "csv"))))
    own = small_results().rows
    picked = own[(own["model"] == "tiny_vgg") & (own["method"] == "SM")]
    [row] = [row for row in rows if row["model"] == "tiny_vgg" and row["method"] == "SM"]
    assert float(row["f1"]) == pytest.approx(picked["f1"].mean())
    assert float(row["f1_low"]) < float(row["f1"]) < float(row["f1_high"])
    assert run(folder, "--which", "robust", "--format", "markdown").startswith("### Robust accuracy\n")
    assert r"\begin{tabular}" in run(folder, "--which", "overview,similarity", "--format", "latex")


def test_files_are_written(folder: Path, tmp_path: Path) -> None:
    text = run(folder, "--out", tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        f"{name}{suffix}" for name in TABLES for suffix in (".csv", ".md", ".tex")
    )
    assert str(tmp_path / "new" / "locality.tex") in text
    run(folder, "--which", "locality", "--format", "csv", "--out", tmp_path / "one")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["locality.csv"]


def test_mistakes_are_named(folder: Path, tmp_path: Path) -> None:
    empty = write_results(nothing_measured(), tmp_path / "empty")
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "nowhere"], "holds no results"),
        ([empty], "holds no measurements"),
        ([folder, "--which", "localitee"], "`which` must be one of overview"),
        ([empty, "--which", "robust"], "accuracy under attack was not measured"),
    ]
    for words, problem in cases:
        with pytest.raises(ValueError, match=problem):
            run(*words)


def test_one_of_several_data_sets(folder: Path) -> None:
    assert "tiny_vgg" in run(folder, "--which", "locality", "--data", "tiny-imagenet")
    with pytest.raises(ValueError, match="`data` must be one of tiny-imagenet, got 'shapes'"):
        run(folder, "--data", "shapes")


def test_unfinished_results_are_reported_on_standard_error(tmp_path: Path) -> None:
    from locality.cli.figures import figures
    from locality.cli.report import report

    units = {"planned": 15, "finished": 4, "with faults": 0}
    stopped = write_results(replace(small_results(), provenance={"units": units}), tmp_path / "stopped")
    commands: list[tuple[Callable[..., None], list[str]]] = [
        (table, ["--which", "robust"]),
        (figures, ["--which", "3.3", "--format", "png", "--out", str(tmp_path)]),
        (report, ["--out", str(tmp_path / "page.html")]),
    ]
    for command, words in commands:
        alone = typer.Typer()
        alone.command()(command)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("locality.report.page.html.SHOWN_FIGURES", ())
            done = CliRunner().invoke(alone, [str(stopped), *words], catch_exceptions=False)
        assert done.exit_code == 0
        assert done.stderr.startswith("locality: Unfinished: 4 of 15 units ")
        assert done.stderr.count("\n") == 1
        assert "Unfinished" not in done.stdout


def test_complete_results_say_nothing_on_standard_error(folder: Path) -> None:
    assert CliRunner().invoke(app, [str(folder), "--which", "robust"], catch_exceptions=False).stderr == ""


def test_on_a_narrow_terminal_names_stay_whole_and_what_a_table_is_about_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    table(folder, which="locality")
    text = terminal.getvalue()
    shown = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert {word for line in shown if "tiny" in line for word in line.split() if "tiny" in word} <= set(
        small_results().rows["model"]
    )
    assert shown[1].split() == ["model", "method", "F1", "lift"]
    assert any(line.startswith("columns hidden: training, ") for line in shown)
    assert "\x1b[1m0." in text  # the best is bold
    assert "Best of each method bold; underlined where standard errors overlap." in shown


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="`--out` must be a folder"):
        CliRunner().invoke(app, ["no results", "--out", str(tmp_path / "file")], catch_exceptions=False)


def test_torch_is_not_imported(folder: Path) -> None:
    modules = imported_modules("table", folder)
    assert "pandas" in modules  # it has run
    assert not modules & {"torch", "torchvision", "captum", "foolbox", "timm", "matplotlib", "scipy"}


def test_the_choices_are_those_of_the_report() -> None:
    assert [form.value for form in TableFormat] == ["text", *FORMATS]
    assert all(f"{name}," in WHICH_HELP for name in TABLES)
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["--help"], catch_exceptions=False)
    assert "text|csv|markdown|latex" in done.stdout
    done = CliRunner().invoke(app, ["results", "--format", "pdf"], catch_exceptions=False)
    assert done.exit_code == 2
