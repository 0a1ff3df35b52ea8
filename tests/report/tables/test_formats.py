"""Tables as text, with hostile names."""

import csv
import io
import re

import pytest

from locality.report.tables.formats import (
    csv_text,
    latex_escaped,
    latex_text,
    markdown_escaped,
    markdown_text,
    terminal_rows,
)
from locality.report.tables.table import Cell, Column, Table

COLUMNS = (Column("model", "model", "text"), Column("F1", "f1", "interval"), Column("images", "images"))
HOSTILE = [
    "<script>alert(1)</script>",
    "a_b%&",
    "x|y",
    "[click](http://evil)",
    r"\input{/etc/passwd}",
    "a\nb",
    "$1$ #2 ~^{}",
]


def table(*names: str) -> Table:
    rows = tuple((Cell(name), Cell("−0.5 [−0.6, 0.1]", -0.5, -0.6, 0.1, mark="best"), Cell("1,000", 1000)) for name in names)
    return Table("a table", "Title with a_b", COLUMNS, rows, ("A note: 95 %.",))


def test_csv_is_read_back_unchanged() -> None:
    names = [*HOSTILE, 'say "hi", twice']
    rows = list(csv.reader(io.StringIO(csv_text(table(*names)))))
    assert rows[0] == ["model", "f1", "f1_low", "f1_high", "images"]
    assert [row[0] for row in rows[1:]] == names
    assert [float(field) for field in rows[1][1:]] == [-0.5, -0.6, 0.1, 1000]


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "@SUM(A1)", "-2", "\tx"])
def test_csv_names_are_no_formulas_but_numbers_stay_numbers(name: str) -> None:
    [_, row] = list(csv.reader(io.StringIO(csv_text(table(name)))))
    assert row[0] == f"'{name}"
    assert row[1] == "-0.5"


def test_csv_is_empty_where_undefined() -> None:
    undefined = Table("t", "T", COLUMNS, ((Cell("a"), Cell("undefined"), Cell("0", 0)),))
    assert csv_text(undefined).splitlines()[1] == "a,,,,0"


def test_markdown_has_as_many_columns_in_every_row_and_no_live_markup() -> None:
    text = markdown_text(table(*HOSTILE))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(HOSTILE)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    assert "<script" not in text
    assert "script>" not in text
    assert "**−0.5 \\[−0.6, 0.1\\]**" in text
    assert not re.search(r"(?<!\\)\[click", text)
    assert "http://evil" not in text
    assert markdown_escaped("www.evil.com a@b") == "www\\.evil.com a\\@b"
    assert text.startswith("### Title with a\\_b\n")


def test_latex_has_no_live_commands() -> None:
    text = latex_text(table(*HOSTILE))
    rows = text.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().splitlines()
    assert len(rows) == len(HOSTILE)
    for line in rows:
        assert line.endswith(r" \\")
        # Unescaped & separates fields; nothing else of LaTeX's is left bare.
        assert len(re.findall(r"(?<!\\)&", line)) == 2
        name = line.split(" & ")[0]
        assert not re.search(r"(?<!\\)[%#_$]", name.replace(r"\textbackslash{}", ""))
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"\textbf{$-$0.5 [$-$0.6, 0.1]}" in text
    assert r"\begin{tabular}{lrr}" in text
    assert r"\label{tab:a-table}" in text
    assert "95 \\%." in text


def test_a_field_that_starts_with_a_bracket_or_a_star_is_no_part_of_a_command() -> None:
    odd = Table("t", "T", (Column("model", "model", "text"),), ((Cell("a"),), (Cell("[2cm]"),), (Cell("*"),)))
    assert "\n{[2cm]} \\\\\n{*} \\\\\n" in latex_text(odd)


def test_signs_of_papers_are_latex_ones() -> None:
    assert latex_escaped("AT ℓ∞ 4/255, ℓ2 0.5, SM–BSM") == r"AT $\ell_\infty$ 4/255, $\ell_2$ 0.5, SM--BSM"


def test_terminal_rows_mark_the_best() -> None:
    header, [row] = terminal_rows(table("a"))
    assert header == ["model", "F1", "images"]
    assert row == ("a", "−0.5 [−0.6, 0.1]*", "1,000")
    assert terminal_rows(table("a"), signs=False)[1][0][1] == "−0.5 [−0.6, 0.1]"
