"""Tables on terminals of any width: names and numbers stay whole, and hidden columns are named."""

import io
import json
import re
import sys

import pytest

from locality import __version__
from locality.cli.printing import Fitted, fitted, print_table, say_json

HEADER = ["method", "F1 shapes_cnn", "F1 shapes_cnn_robust", "F1 difference", "lift difference", "higher F1", "p"]
ROWS = [
    (
        "SM",
        "0.257 [0.240, 0.275]",
        "0.544 [0.521, 0.566]",
        "+0.287 [+0.261, +0.313]",
        "−0.1 [−0.2, −0.05]",
        "98%",
        "1.7e-11",
    ),
    (
        "BIG",
        "0.210 [0.190, 0.231]",
        "0.883 [0.861, 0.904]",
        "+0.673 [+0.643, +0.702]",
        "+0.9 [+0.8, +0.95]",
        "100%",
        "2e-12",
    ),
]
FIRST = ["higher F1", "p", "lift difference"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, width: int, *table: object, **options: object) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    print_table(*table, **options)  # type: ignore[arg-type]
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize(
    ("width", "hidden"),
    [
        (130, []),
        (122, []),  # titles over two lines
        (110, []),  # intervals without zeros
        (100, ["higher F1"]),
        (90, ["higher F1", "p"]),
        (80, ["lift difference", "higher F1", "p"]),
        (40, HEADER[2:]),
    ],
)
def test_names_and_numbers_stay_whole_at_any_width(monkeypatch: pytest.MonkeyPatch, width: int, hidden: list[str]) -> None:
    lines = printed(monkeypatch, width, HEADER, ROWS, leave_out=FIRST)
    rows = [line for line in lines if line.startswith((" SM", " BIG"))]
    assert [line.split()[1] for line in rows] == ["0.257", "0.210"]
    assert lines.index(rows[1]) == lines.index(rows[0]) + 1  # one line each
    assert max(map(len, lines[: lines.index(rows[1]) + 1])) <= width
    assert ("0.257 [0.240, 0.275]" if width > 120 else "0.257 [.240 .275]") in rows[0]
    if width <= 100 and "lift difference" not in hidden:
        assert "−0.1 [−.2 −.05]" in rows[0]
    note = f"columns hidden: {', '.join(hidden)} (terminal too narrow; `| cat` shows all)"
    assert lines[lines.index(rows[1]) + 1 :] == ([note] if hidden else [])


def test_names_stay_whole_and_sentences_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("shapes_cnn_robust", "networks for ten shapes, trained adversarially at 8/255 with a planted cue outside the box")
    lines = printed(monkeypatch, 60, ["name", "what"], [row])
    assert lines[2].startswith(" shapes_cnn_robust   networks for ten shapes,")
    words = " ".join(lines[2:]).split()
    assert words == [row[0], *row[1].split()]


def test_without_a_terminal_nothing_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADER, ROWS, leave_out=FIRST)
    text = capsys.readouterr().out
    assert all(part in text for part in (*HEADER, *(cell for row in ROWS for cell in row)))


def test_columns_with_equal_titles() -> None:
    table = Fitted(("m", "F1", "F1"), (("a", "1" * 10, "2" * 10),))
    assert fitted(table, 20) == Fitted(("m", "F1"), (("a", "1" * 10),), ("F1",), (0, 1))
    assert fitted(table, 3) == Fitted(("m",), (("a",),), ("F1", "F1"), (0,))
    assert fitted(table, 2) == table  # impossible: the terminal wraps it


def test_json_is_unchanged_to_its_reader_and_harmless_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"model": "é\x1b]0;x\x07\x9b2J\u202e\udc9b\U000e0001", "score": 0.5, "provenance": {"seed": 0}}
    say_json(value)
    line = capsys.readouterr().out
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "é" in line
    assert json.loads(line) == value


def test_json_without_provenance_gets_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"n": 1})
    assert json.loads(capsys.readouterr().out) == {"n": 1, "provenance": {"locality": __version__}}
