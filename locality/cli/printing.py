"""What commands print: sentences and tables, in which names from strangers cannot move the cursor."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer


def say(text: str, error: bool = False) -> None:
    """One line on standard output, or on standard error."""
    typer.echo(printable(text), err=error)


def printable(text: str) -> str:
    """The text with control characters replaced."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def print_table(header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """A table on standard output; without a terminal nothing is folded, so that it can be searched."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(field)) for field in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000).print(table)
