"""Help lists the choices, does not wait for torch, and mistakes in the words are one sentence."""

import re
import subprocess
import sys
from typing import get_args

import pytest
from typer.testing import CliRunner

from locality.attribution import METHODS
from locality.certified import CERTIFICATES
from locality.cli import app, main
from locality.data.kinds import KINDS
from locality.results.localisation import POOLED_SCORES
from locality.robustness import ATTACK_NAMES
from locality.scores import SCORES
from locality.scores.model_scores import MODEL_SCORES
from locality.types import NORMS, Norm

COMMANDS = [
    "bench",
    "calibrate",
    "certify",
    "compare",
    "curvature",
    "data",
    "eval",
    "explain",
    "figures",
    "landscape",
    "models",
    "report",
    "robust",
    "table",
    "train",
]
CHOICES = [
    ("eval", "target", "predicted|label"),
    ("eval", "channels", "all|sum"),
    ("eval", "cue", "none|sticker|swapped"),
    ("eval", "region", "box|object|cue"),
    ("calibrate", "region", "box|object"),
    ("compare", "target", "predicted|label"),
    ("robust", "norm", "l2|linf"),
    ("robust", "attack", "|".join(ATTACK_NAMES)),
    ("curvature", "norm", "l2|linf"),
    ("curvature", "method", "auto|exact|sampled|probed"),
    ("certify", "by", "|".join(CERTIFICATES)),
    ("bench", "engine", "local|ray"),
    ("table", "format", "text|csv|markdown|latex"),
    ("figures", "width", "page|column"),
    ("figures", "score", "f1|precision|recall|lift"),
    ("data check", "split", "eval|train"),
    ("data build", "split", "eval|train"),
    ("data show", "split", "eval|train"),
]
BY_DEFAULT = ["precision", "recall", "f1"]  # scores that `eval` always prints, with lift


def help_of(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return re.sub(r"[\s│]+", " ", result.stdout)


def test_help_lists_the_commands() -> None:
    text = help_of()
    for command in COMMANDS:
        assert f" {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert f" {command} [OPTIONS]" in help_of(command)


@pytest.mark.parametrize(("command", "option", "choices"), CHOICES)
def test_help_lists_the_choices_of_an_option(command: str, option: str, choices: str) -> None:
    assert f"--{option} <{choices}>" in help_of(*command.split())


@pytest.mark.parametrize(
    "command",
    ["eval", "calibrate", "compare", "robust", "certify", "curvature", "landscape", "bench", "data check", "data build"],
)
def test_help_lists_every_source(command: str) -> None:
    text = help_of(*command.split())
    for kind in KINDS.values():
        assert kind.written in text


@pytest.mark.parametrize("command", ["eval", "calibrate", "compare", "explain"])
def test_help_lists_every_method(command: str) -> None:
    text = help_of(command)
    assert [name for name in METHODS if not re.search(rf"\b{name}\b", text)] == []


def test_help_lists_every_score() -> None:
    text = help_of("eval")
    assert [name for name in (*SCORES, *MODEL_SCORES, *POOLED_SCORES) if not re.search(rf"\b{name}\b", text)] == BY_DEFAULT


def test_the_choices_are_the_tables() -> None:
    assert list(NORMS) == list(get_args(Norm))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_does_not_import_torch(command: str) -> None:
    heavy = "{'torch', 'pandas', 'matplotlib', 'numpy', 'scipy'} & set(sys.modules)"
    code = (
        f"import sys; sys.argv = ['locality', '{command}', '--help']\nfrom locality.cli import main\n"
        f"try: main()\nexcept SystemExit: pass\nassert not {heavy}, {heavy}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["foo"], "locality: No such command 'foo': see `locality --help`"),
        (["robust"], "locality: Missing option '--model': see `locality robust --help`"),
        (["robust", "--modl", "x"], "--modl"),
        (["robust", "--model", "x", "--norm", "l1"], "'l1' is not one of 'l2', 'linf': see `locality robust --help`"),
        (["robust", "--model", "shapes_cnn", "--eps", "four"], "locality: `--eps` must be a distance such as 4/255 or 0.5"),
        (["certify", "--model", "x", "--by", "y"], "'y' is not one of"),
        (["certify", "--model", "x", "--sigma", "y"], "a number such as 0.25 or 1/4 is expected, got 'y'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["locality", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    output = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in output.err
    assert output.err.startswith("locality: ")
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_without_words_the_help_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["locality"])
    with pytest.raises(SystemExit):
        main()
    output = capsys.readouterr()
    assert "certify" in output.out
    assert output.err == ""


def test_the_version_is_a_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["locality", "--version"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("locality ")
