"""Completion, short options, `--quiet`, `--json`, narrow terminals and any encoding, in every command."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from typer.main import get_command

from locality.cli import app, completion, main, table
from locality.cli.encodings import in_ascii
from locality.report.tables.build import tables
from locality.report.tables.table import Cell, Column, Table
from locality.results.folder import read_results

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ["--model", "shapes_cnn", "--limit", "4"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["locality", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code, *capsys.readouterr()


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, groups included."""
    below = getattr(command, "commands", {})
    return [path, *(leaf for name, child in below.items() for leaf in leaves(child, (*path, name)))]


COMMANDS = leaves(get_command(app))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_h_is_help(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, short, _ = run(monkeypatch, capsys, *path, "-h")
    assert (code, short) == (0, run(monkeypatch, capsys, *path, "--help")[1])
    assert "Usage: locality" in short


def test_v_is_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, capsys, "-V") == run(monkeypatch, capsys, "--version")


def completed(line: str) -> tuple[list[str], bool]:
    """What bash would show after the line, and whether torch was imported for it."""
    code = (
        "import sys\nfrom locality.cli import main\nsys.argv = ['locality']\n"
        "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules or 'pandas' in sys.modules, file=sys.stderr)"
    )
    words = line.split(" ")
    environment = os.environ | {"_LOCALITY_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr.split()[-1] == "True"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("locality com", ["compare"]),
        ("locality compare shapes_cnn tiny_vgg_", ["tiny_vgg_robust"]),
        ("locality eval --methods SM,BI", ["SM,BIG"]),
        ("locality bench dem", ["demo"]),
    ],
)
def test_the_shell_completes_names_without_torch(line: str, expected: list[str]) -> None:
    assert completed(line) == (expected, False)


@pytest.mark.parametrize(
    ("path", "name", "complete"),
    [
        ("eval", "model", completion.models),
        ("eval", "data", completion.data),
        ("eval", "methods", completion.methods),
        ("eval", "search", completion.searches),
        ("explain", "model", completion.models),
        ("robust", "surrogate", completion.models),
        ("landscape", "against", completion.models),
        ("curvature", "train", completion.data),
        ("certify", "model", completion.models),
        ("train", "recipe", completion.recipes),
        ("bench", "suite", completion.suites),
        ("models show", "name", completion.models),
        ("data check", "source", completion.data),
    ],
)
def test_names_are_completed_where_they_are_expected(path: str, name: str, complete: Callable[[str], list[str]]) -> None:
    command: Any = get_command(app)
    for word in path.split():
        command = command.commands[word]
    (parameter,) = [parameter for parameter in command.params if parameter.name == name]
    offered = parameter.shell_complete(typer.Context(command), "")
    assert [item.value for item in offered] == complete("")
    assert len(offered) > 3


def test_what_is_completed() -> None:
    assert completion.models("shapes_cnn_") == ["shapes_cnn_robust"]
    assert completion.data("tiny") == ["tiny-imagenet"]
    assert completion.searches("tho") == ["thorough"]
    assert "tiny_resnet_trades" in completion.recipes("tiny_resnet_t")
    assert completion.suites("dem") == ["demo"]


def test_quiet_leaves_out_progress_and_notes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("locality.progress.SECONDS_BEFORE_FIRST_LINE", 0.0)
    monkeypatch.setattr("locality.progress.SECONDS_BETWEEN_LINES", 0.0)
    words = ["eval", *SHAPES, "--methods", "SM", "--batch-size", "1"]
    _, loud, progress = run(monkeypatch, capsys, *words)
    code, quiet, nothing = run(monkeypatch, capsys, *words, "-q")
    assert code == 0
    assert "images" in progress
    assert nothing == ""
    assert "lift: 0 is the score" in loud
    assert "lift: 0 is the score" not in quiet
    assert [line for line in loud.splitlines() if line in quiet.splitlines()] == quiet.splitlines()
    assert "SM" in quiet


CALIBRATED = ("--data", "shapes:none", "--limit", "4", "--train-limit", "20", "--data-option", "count=40")
JSON: dict[str, list[Any]] = {
    "models": [],
    "models show": ["shapes_cnn"],
    "data list": [],
    "data check": ["photos"],
    "eval": [*SHAPES, "--methods", "SM"],
    "compare": ["shapes_cnn", "shapes_cnn_robust", "--limit", "4", "--methods", "SM"],
    "calibrate": ["--model", "shapes_cnn", *CALIBRATED, "--epochs", "0", "--methods", "SM"],
    "robust": [*SHAPES, "--attack", "pgd1"],
    "certify": [*SHAPES, "--by", "smoothing", "--samples", "8", "--selection-samples", "8"],
    "landscape": [*SHAPES, "--points", "3"],
    "curvature": [*SHAPES, "--steps", "1"],
    "table": [ROOT / "bench/results/similarity", "--which", "similarity"],
    "bench": ["suite.toml", "--dry-run", "--processes", "0", "--out", "nowhere"],
    "explain": ["image.png", "--model", "shapes_cnn", "--methods", "SM"],
}
SUITE = """
name = "small"
models = ["shapes_cnn"]
methods = ["SM"]
search = "fast"

[data]
name = "shapes"
limit = 1
"""
WITHOUT_DATA = ("models", "models show")


@pytest.mark.parametrize("command", JSON)
def test_json_says_what_was_measured_and_where_it_comes_from(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), (120, 30, 200)).save("image.png")
    Path("suite.toml").write_text(SUITE, encoding="utf-8")
    code, out, _ = run(monkeypatch, capsys, *command.split(), *JSON[command], "--json")
    content = json.loads(out)
    assert code == 0
    assert content["provenance"]
    assert "n" in content or command == "models show"
    assert "data" in content or command in WITHOUT_DATA or {"train", "test"} <= set(content)


def test_every_command_that_prints_a_table_has_json() -> None:
    paths = {" ".join(path): path for path in COMMANDS}
    writes_files_only = {"", "data", "data get", "data build", "data show", "models fetch", "models convert"}
    writes_files_only |= {"models card", "figures", "report", "train"}
    assert set(paths) - writes_files_only == set(JSON)


def test_the_json_of_tables_has_their_numbers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "bench/results/similarity"
    code, out, error = run(monkeypatch, capsys, "table", folder, "--which", "locality", "--json")
    assert code == 0, error
    content, results = json.loads(out), read_results(folder)
    row = content["tables"]["locality"]["rows"][0]
    own = results.rows[(results.rows["model"] == row["model"]) & (results.rows["method"] == row["method"])]
    assert row["f1"] == pytest.approx(own["f1"].mean())
    assert row["f1_low"] < row["f1"] < row["f1_high"]
    assert content["n"] == results.rows["image_id"].nunique()
    assert content["provenance"] == json.loads(json.dumps(dict(results.provenance)))


# The column that each table is for.
MAIN = {
    "overview": "F1 BIG",
    "locality": "F1",
    "pairs": "F1 difference",
    "robust": "under attack",
    "similarity": "SM–BSM ℓ2",
    "searches": "ℓ2 distance",
    "faithfulness": "INFD",
    "curvature": "WCI",
}


@pytest.mark.parametrize("suite", ["tiny", "similarity", "curvature"])
def test_at_80_columns_tables_keep_the_column_they_are_for(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for one in tables(read_results(ROOT / "bench/results" / suite)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        table._print(one)
        text = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
        titles = [column.title for column in one.columns]
        assert MAIN[one.name] in titles
        hidden = re.search(r"columns hidden: (.*) \(terminal", text)
        assert MAIN[one.name] not in (hidden[1].split(", ") if hidden else [])
        rule = next(line for line in text.splitlines() if line.startswith("──"))
        assert len(rule) <= 80


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["models"], "weights"),
        (["data", "list"], "location"),
        (["landscape", *SHAPES, "--against", "shapes_cnn_robust", "--points", "3"], "difference"),
        (["curvature", *SHAPES, "--steps", "1"], "robust error"),
    ],
)
def test_at_80_columns_commands_keep_the_column_they_are_for(
    words: list[str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "argv", ["locality", *words])
    with pytest.raises(SystemExit):
        main()
    text = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    hidden = [name for line in re.findall(r"columns hidden: (.*) \(terminal", text) for name in line.split(", ")]
    assert kept not in hidden
    assert all(word in text for word in kept.split())


def test_a_table_for_a_column_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="`main` must be the key of a column"):
        Table("a", "A", (Column("F1", "f1"),), ((Cell("0.5", 0.5),),), main="f2")


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("ascii", ["models"]),
        ("latin-1", ["models"]),
        ("ascii", ["eval", "--help"]),
        ("ascii", ["models", "show", "shapes_cnn"]),
        ("cp1252", ["models", "show", "vit_b16_robust", "--json"]),
    ],
)
def test_any_encoding_is_good_enough(encoding: str, words: list[str]) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-m", "locality", *words], env=environment, capture_output=True, check=False)
    text = done.stdout.decode(encoding)
    assert done.returncode == 0, done.stderr
    if words == ["models"]:
        assert "AT linf 4/255" in text
        rows = [line for line in text.splitlines() if line.count("|") > 3]
        assert len({tuple(match.start() for match in re.finditer(r"\|", line)) for line in rows}) == 1  # aligned
    if "--json" in words:
        assert "×" not in text
        assert json.loads(text)["threat"] == {"norm": "linf", "radius": 4 / 255}


def test_signs_in_ascii() -> None:
    assert in_ascii("‖W‖√trace × ℓ2 … –") == "||W||sqrttrace x l2 ... -"


def test_options_of_every_command_are_named_in_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(app, typer.Typer)
    for command in ("eval", "bench", "train"):
        _, text, _ = run(monkeypatch, capsys, command, "-h")
        assert "--quiet" in text
