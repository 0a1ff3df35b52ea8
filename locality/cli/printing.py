"""What commands print: lines and tables; control characters in names cannot move the cursor."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import typer

from locality import __version__
from locality.cli.encodings import can_show_all, in_ascii
from locality.progress import is_quiet, printable

if TYPE_CHECKING:
    from locality.statistics import Summary

PROSE = 40  # a column with longer cells holds sentences, which may be wrapped between words; names and numbers may not
LEAST_PROSE = 24  # the narrowest width of such a column
INTERVAL = re.compile(r"\[([+−-]?)0(\.\d+), ([+−-]?)0(\.\d+)\]")


@dataclass(frozen=True)
class Fitted:
    """A table that fits a terminal."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    hidden: tuple[str, ...] = ()  # titles of columns
    shown: tuple[int, ...] = ()  # indices of the others, if some are hidden


def say(text: str, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    # To the stream itself: in place of one in ASCII, click would write UTF-8.
    typer.echo(printable(text), file=sys.stderr if error else sys.stdout)


def note(text: str) -> None:
    """Print one line that explains something, unless `--quiet` was given."""
    if not is_quiet():
        say(text)


def say_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; unprintable characters are escaped, and others that the output cannot show.

    What has no provenance of its own gets the version of locality.
    """
    stamped = {**value, "provenance": value.get("provenance", {"locality": __version__})}
    text = json.dumps(stamped, ensure_ascii=not can_show_all(sys.stdout), allow_nan=False)
    typer.echo("".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text))


def with_interval(value: Summary, decimals: int = 3) -> str:
    """The mean and its 95 % interval."""
    if value.used == 0:
        return "undefined"
    if value.used == 1:
        return f"{value.mean:.{decimals}f}"
    return f"{value.mean:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


def print_table(
    header: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    leave_out: Sequence[str] = (),
    styles: Sequence[Sequence[str]] | None = None,
    right: Collection[int] = (),
) -> None:
    """Print a table on standard output; if that is not a terminal, nothing is wrapped or hidden.

    `leave_out` are the columns that are hidden first on a narrow terminal; `styles` are Rich's, one per cell; `right` are
    the indices of columns that are aligned to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000)
    shown = printable if can_show_all(sys.stdout) else lambda text: in_ascii(printable(text))  # before widths are measured
    whole = Fitted(tuple(map(shown, header)), tuple(tuple(map(shown, row)) for row in rows))
    fit = fitted(whole, console.width, leave_out) if sys.stdout.isatty() else whole
    indices = fit.shown or range(len(header))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column, (index, name) in enumerate(zip(indices, fit.header, strict=True)):
        justify: Literal["left", "right"] = "right" if index in right else "left"
        table.add_column(Text(name), overflow="fold", no_wrap=not _is_prose(fit, column), justify=justify)
    for number, row in enumerate(fit.rows):
        looks = ["" if styles is None else styles[number][index] for index in indices]
        table.add_row(*map(Text, row, looks))
    console.print(table)
    if fit.hidden:
        say(f"columns hidden: {', '.join(fit.hidden)} (terminal too narrow; `| cat` shows all)")


def fitted(table: Fitted, width: int, leave_out: Sequence[str] = ()) -> Fitted:
    """The table shortened until it fits: titles over several lines, intervals without zeros, then fewer columns.

    >>> wide = Fitted(("method", "F1 of the first"), (("BIG", "0.883 [0.861, 0.904]"),))
    >>> fitted(wide, 31).rows, fitted(wide, 28).rows, fitted(wide, 20).hidden
    ((('BIG', '0.883 [0.861, 0.904]'),), (('BIG', '0.883 [.861 .904]'),), ('F1 of the first',))
    """
    return next((narrower for narrower in _narrower(table, leave_out) if _width(narrower) <= width), table)


def _narrower(table: Fitted, leave_out: Sequence[str]) -> Iterator[Fitted]:
    yield table
    titles = table.header
    yield Fitted(_over_lines(titles, table.rows), table.rows)
    rows = tuple(tuple(INTERVAL.sub(r"[\1\2 \3\4]", cell) for cell in row) for row in table.rows)
    header = _over_lines(titles, rows)
    yield Fitted(header, rows)
    first = [column for name in leave_out for column, title in enumerate(titles) if title == name]
    hidden: list[int] = []
    for column in dict.fromkeys((*first, *range(len(header) - 1, 0, -1))):  # the first column names the row
        hidden.append(column)
        shown = tuple(index for index in range(len(header)) if index not in hidden)
        fewer = tuple(tuple(row[index] for index in shown) for row in rows)
        hidden_titles = tuple(titles[index] for index in sorted(hidden))
        yield Fitted(tuple(header[index] for index in shown), fewer, hidden_titles, shown)


def _over_lines(titles: Sequence[str], rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The titles; one line per word where a title is wider than its column."""
    widest = [max((_cells(row[column]) for row in rows), default=0) for column in range(len(titles))]
    return tuple(
        title if _cells(title) <= width else title.replace(" ", "\n") for title, width in zip(titles, widest, strict=True)
    )


def _is_prose(table: Fitted, column: int) -> bool:
    return any(_cells(row[column]) > PROSE for row in table.rows)


def _width(table: Fitted) -> int:
    """The width in characters: a space on either side of each column, and one between columns."""
    widths = []
    for column, title in enumerate(table.header):
        texts = [*title.split("\n"), *(row[column] for row in table.rows)]
        if _is_prose(table, column):
            # Words stay whole, except very long ones such as paths.
            texts = [" " * LEAST_PROSE, *(word[:PROSE] for text in texts for word in text.split())]
        widths.append(max(map(_cells, texts)))
    return sum(widths) + 3 * len(widths) - 1


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
