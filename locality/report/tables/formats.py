"""Tables as text: for a terminal, CSV, Markdown and LaTeX. Names may contain anything and are escaped in each."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from typing import Any

from locality.files import spreadsheet_text
from locality.report.tables.table import Cell, Table

SIGNS = {"": "", "best": "*", "tied": "~"}  # in place of bold and underline
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{''}",
    "ℓ∞": r"$\ell_\infty$",
    "ℓ2": r"$\ell_2$",
    "ℓ": r"$\ell$",
    "∞": r"$\infty$",
    "ε": r"$\epsilon$",
    "≤": r"$\leq$",
    "√": r"$\surd$",
    "−": r"$-$",
    "–": "--",
    "…": r"\dots{}",
    "×": r"$\times$",
}
LATEX_PATTERN = re.compile("|".join(re.escape(sign) for sign in sorted(LATEX, key=len, reverse=True)))
MARKDOWN_PATTERN = re.compile(r"([\\`*_{}\[\]|~$!#^@]|(?<=www)\.|:(?=//))")


def terminal_rows(table: Table, signs: bool = True) -> tuple[list[str], list[tuple[str, ...]]]:
    """Header and rows as text; with `signs`, * follows the best value and ~ values tied with it.

    >>> from locality.report.tables.table import Column
    >>> terminal_rows(Table("a", "A", (Column("F1", "f1"),), ((Cell("0.5", 0.5, mark="best"),),)))
    (['F1'], [('0.5*',)])
    """
    rows = [tuple(cell.text + (SIGNS[cell.mark] if signs else "") for cell in row) for row in table.rows]
    return [column.title for column in table.columns], rows


def csv_text(table: Table) -> str:
    """Numbers in full precision: `key`, and `key_low`, `key_high` where there is an interval; empty where undefined.

    A name that a spreadsheet would run as a formula is prefixed with an apostrophe.

    >>> from locality.report.tables.table import Column
    >>> rows = ((Cell("=1+1"), Cell("0.50 [0.40, 0.60]", 0.5, 0.4, 0.6)),)
    >>> csv_text(Table("a", "A", (Column("model", "model", "text"), Column("F1", "f1", "interval")), rows)).split()
    ['model,f1,f1_low,f1_high', "'=1+1,0.5,0.4,0.6"]
    """
    keys, rows = plain_rows(table)
    guarded = ((spreadsheet_text(field) if isinstance(field, str) else field for field in row) for row in rows)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([keys, *guarded])
    return buffer.getvalue()


def plain_rows(table: Table) -> tuple[list[str], list[list[str | float | None]]]:
    """Keys and values for programs: numbers in full precision, with `key_low` and `key_high` where there is an interval."""
    keys: list[str] = []
    for column in table.columns:
        keys += [column.key, f"{column.key}_low", f"{column.key}_high"] if column.type == "interval" else [column.key]
    rows = []
    for row in table.rows:
        fields: list[str | float | None] = []
        for column, cell in zip(table.columns, row, strict=True):
            if column.type == "text":
                fields.append(cell.text)
            else:
                fields += [cell.value, cell.low, cell.high] if column.type == "interval" else [cell.value]
        rows.append(fields)
    return keys, rows


def plain_table(table: Table) -> dict[str, Any]:
    """The table as plain values; undefined is None.

    >>> from locality.report.tables.table import Column
    >>> plain_table(Table("a", "A", (Column("F1", "f1"),), ((Cell("0.5", 0.5),), (Cell("undefined"),))))
    {'title': 'A', 'rows': [{'f1': 0.5}, {'f1': None}], 'notes': []}
    """
    keys, rows = plain_rows(table)
    defined = ([None if isinstance(field, float) and math.isnan(field) else field for field in row] for row in rows)
    return {
        "title": table.title,
        "rows": [dict(zip(keys, row, strict=True)) for row in defined],
        "notes": table.note_texts("best", "tied"),
    }


def markdown_text(table: Table) -> str:
    """A GitHub table under a heading; the best value is bold, values tied with it are underlined.

    >>> from locality.report.tables.table import Column
    >>> rows = ((Cell("a_b"), Cell("0.5", 0.5, mark="best")),)
    >>> print(markdown_text(Table("a", "A", (Column("model", "model", "text"), Column("F1", "f1")), rows)))
    ### A
    <BLANKLINE>
    | model | F1 |
    |---|---:|
    | a\\_b | **0.5** |
    <BLANKLINE>
    """
    titles = " | ".join(markdown_escaped(column.title) for column in table.columns)
    rule = "|".join("---" if column.type == "text" else "---:" for column in table.columns)
    lines = [f"### {markdown_escaped(table.title)}", "", f"| {titles} |", f"|{rule}|"]
    for row in table.rows:
        lines.append(f"| {' | '.join(_markdown_cell(cell) for cell in row)} |")
    lines += ["", *(markdown_escaped(note) + "  " for note in table.note_texts())]
    return "\n".join(lines).rstrip() + "\n"


def latex_text(table: Table) -> str:
    r"""A `table` environment for booktabs; the best value is bold, values tied with it are underlined.

    >>> from locality.report.tables.table import Column
    >>> rows = ((Cell("a_b%&"), Cell("0.5", 0.5, mark="tied")),)
    >>> text = latex_text(Table("a", "A", (Column("model", "model", "text"), Column("F1", "f1")), rows))
    >>> text.splitlines()[-4]
    'a\\_b\\%\\& & \\underline{0.5} \\\\'
    """
    alignment = "".join("l" if column.type == "text" else "r" for column in table.columns)
    caption = " ".join([f"{table.title}.", *table.note_texts()])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{latex_escaped(caption)}}}",
        f"\\label{{tab:{re.sub('[^a-z0-9-]', '-', table.name.lower())}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(latex_escaped(column.title) for column in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, tuple[Callable[[Table], str], str]] = {
    "csv": (csv_text, ".csv"),
    "markdown": (markdown_text, ".md"),
    "latex": (latex_text, ".tex"),
}


def markdown_escaped(text: str) -> str:
    r"""The text on one line, escaped for Markdown.

    >>> markdown_escaped("<b> a_b | [x](y) & more")
    '&lt;b&gt; a\\_b \\| \\[x\\](y) &amp; more'
    """
    safe = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return MARKDOWN_PATTERN.sub(r"\\\1", safe)


def latex_escaped(text: str) -> str:
    r"""The text on one line, escaped for LaTeX.

    >>> latex_escaped("50 % of a_b at ℓ∞ 4/255")
    '50 \\% of a\\_b at $\\ell_\\infty$ 4/255'
    """
    return LATEX_PATTERN.sub(lambda match: LATEX[match[0]], one_line(text))


def one_line(text: str) -> str:
    """The text with control characters, line breaks among them, replaced.

    >>> one_line("a\\nb")
    'a�b'
    """
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def signed_text(value: float) -> str:
    """Two decimals with a true minus sign; a value that rounds to 0 has none.

    >>> signed_text(-0.456), signed_text(-1e-17)
    ('−0.46', '0.00')
    """
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _markdown_cell(cell: Cell) -> str:
    text = markdown_escaped(cell.text)
    return {"": text, "best": f"**{text}**", "tied": f"<u>{text}</u>"}[cell.mark]


def _latex_cell(cell: Cell) -> str:
    text = latex_escaped(cell.text)
    marked = {"": text, "best": f"\\textbf{{{text}}}", "tied": f"\\underline{{{text}}}"}[cell.mark]
    # After the \\ of the previous line, LaTeX would read a bracket as a length and a star as part of the command.
    return f"{{{marked}}}" if marked.startswith(("[", "*")) else marked
