"""What commands print: sentences and tables, in which names from strangers cannot move the cursor."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import typer

PROSE = 40  # a column with longer cells holds sentences, which may be folded between words; names and numbers may not
LEAST_PROSE = 24  # the width it may be folded to
INTERVAL = re.compile(r"\[([+−-]?)0(\.\d+), ([+−-]?)0(\.\d+)\]")


@dataclass(frozen=True)
class Fitted:
    """A table as a terminal has room for it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = ()  # titles of columns
    kept: tuple[int, ...] = ()  # places of the others, where some are left out


def say(text: str, error: bool = False) -> None:
    """One line on standard output, or on standard error."""
    typer.echo(printable(text), err=error)


def printable(text: str) -> str:
    """The text with control characters replaced."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def print_table(
    header: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    leave_out: Sequence[str] = (),
    styles: Sequence[Sequence[str]] | None = None,
    right: Collection[int] = (),
) -> None:
    """A table on standard output; without a terminal nothing is folded or left out, so that it can be searched.

    `leave_out` are the columns that a narrow terminal goes without first; `styles` are Rich's, one a cell; `right` are the
    places of columns that are aligned to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000)
    whole = Fitted(tuple(map(printable, header)), tuple(tuple(map(printable, row)) for row in rows))
    shown = fitted(whole, console.width, leave_out) if sys.stdout.isatty() else whole
    places = shown.kept or range(len(header))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column, (place, name) in enumerate(zip(places, shown.header, strict=True)):
        justify: Literal["left", "right"] = "right" if place in right else "left"
        table.add_column(Text(name), overflow="fold", no_wrap=not _is_prose(shown, column), justify=justify)
    for number, row in enumerate(shown.rows):
        looks = ["" if styles is None else styles[number][place] for place in places]
        table.add_row(*map(Text, row, looks))
    console.print(table)
    if shown.left_out:
        say(f"left out for want of room: {', '.join(shown.left_out)}; a wider terminal shows all, and so does `| cat`")


def fitted(table: Fitted, width: int, leave_out: Sequence[str] = ()) -> Fitted:
    """The table with as little taken away as fits: titles go over two lines, intervals lose zeros, then columns go.

    >>> wide = Fitted(("method", "F1 of the first"), (("BIG", "0.883 [0.861, 0.904]"),))
    >>> fitted(wide, 31).rows, fitted(wide, 28).rows, fitted(wide, 20).left_out
    ((('BIG', '0.883 [0.861, 0.904]'),), (('BIG', '0.883 [.861 .904]'),), ('F1 of the first',))
    """
    return next((one for one in _narrower(table, leave_out) if _room(one) <= width), table)


def _narrower(table: Fitted, leave_out: Sequence[str]) -> Iterator[Fitted]:
    yield table
    titles = table.header
    yield Fitted(_over_lines(titles, table.rows), table.rows)
    rows = tuple(tuple(INTERVAL.sub(r"[\1\2 \3\4]", cell) for cell in row) for row in table.rows)
    header = _over_lines(titles, rows)
    yield Fitted(header, rows)
    first = [column for name in leave_out for column, title in enumerate(titles) if title == name]
    gone: list[int] = []
    for column in dict.fromkeys((*first, *range(len(header) - 1, 0, -1))):  # the first one says what a row is about
        gone.append(column)
        kept = [place for place in range(len(header)) if place not in gone]
        fewer = tuple(tuple(row[place] for place in kept) for row in rows)
        yield Fitted(
            tuple(header[place] for place in kept), fewer, tuple(titles[place] for place in sorted(gone)), tuple(kept)
        )


def _over_lines(titles: Sequence[str], rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The titles, a line a word where they are wider than what is under them."""
    widest = [max((_cells(row[column]) for row in rows), default=0) for column in range(len(titles))]
    return tuple(
        title if _cells(title) <= width else title.replace(" ", "\n") for title, width in zip(titles, widest, strict=True)
    )


def _is_prose(table: Fitted, column: int) -> bool:
    return any(_cells(row[column]) > PROSE for row in table.rows)


def _room(table: Fitted) -> int:
    """The columns of a terminal that it needs: a space on either side of each, and one between them."""
    widths = []
    for column, title in enumerate(table.header):
        texts = [*title.split("\n"), *(row[column] for row in table.rows)]
        if _is_prose(table, column):
            # Whole words, but for paths and the like, which may be longer than any terminal.
            texts = [" " * LEAST_PROSE, *(word[:PROSE] for text in texts for word in text.split())]
        widths.append(max(map(_cells, texts)))
    return sum(widths) + 3 * len(widths) - 1


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
