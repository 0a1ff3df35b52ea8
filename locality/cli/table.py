"""`locality table`: the numbers of a benchmark, for the terminal or for a paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locality.cli.options import check_folder
from locality.cli.options import method_names as names_between_commas
from locality.cli.printing import print_table, printable, say

if TYPE_CHECKING:
    from locality.report.tables.table import Table
    from locality.results.results import Results as Measured

RESULTS_HELP = "The folder that `locality bench` wrote."
Results = Annotated[Path, typer.Argument(metavar="RESULTS", help=RESULTS_HELP)]
OneData = Annotated[str | None, typer.Option("--data", help="Only what was measured on this one of several data sets.")]


def read(results: Path, data: str | None) -> Measured:
    """The results behind the two options above; where more are to come, a line on standard error says so."""
    from locality.report.findings import unfinished_sentence
    from locality.results.folder import read_results
    from locality.results.results import of_data

    found = read_results(results)
    missing = unfinished_sentence(found)
    if missing is not None:
        say(f"locality: {missing}", error=True)
    return found if data is None else of_data(found, data)


def table(
    results: Results,
    which: Annotated[
        str | None,
        typer.Option(help="Tables, with commas: overview,locality,twins,robust,similarity,searches,faithfulness,faults."),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="text, csv, markdown or latex.")] = "text",
    out: Annotated[
        Path | None, typer.Option(help="Folder for one file a table; CSV, Markdown and LaTeX unless --format is given.")
    ] = None,
    data: OneData = None,
) -> None:
    """Print the tables of a benchmark: locality of each model and method, robust accuracy, similarity, searches."""
    from locality.report.tables.build import tables
    from locality.report.tables.formats import FORMATS

    if form not in ("text", *FORMATS):
        raise ValueError(f"`--format` must be text, {', '.join(FORMATS)}, got {form!r}")
    check_folder(out)
    found = tables(read(results, data), names_between_commas(which) if which else None)
    if not found:
        raise ValueError(f"`{results}` holds nothing that was measured: has `locality bench` run?")
    if out is not None:
        for path in _written(found, list(FORMATS) if form == "text" else [form], out):
            say(str(path))
    elif form == "text":
        for each in found:
            _print(each)
    else:
        typer.echo("\n".join(FORMATS[form][0](each) for each in found), nl=False)


def _written(found: tuple[Table, ...], forms: list[str], folder: Path) -> list[Path]:
    """Each table in each form, each file whole or not at all."""
    from locality.files import write_atomically
    from locality.report.tables.formats import FORMATS

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for each in found:
        for form in forms:
            write, suffix = FORMATS[form]
            path = folder / f"{each.name}{suffix}"
            write_atomically(path, write(each))
            paths.append(path)
    return paths


def _print(each: Table) -> None:
    """Bold and underlined on a terminal; elsewhere the best is followed by * and what is near it by ~."""
    from locality.report.tables.formats import terminal_rows

    terminal = sys.stdout.isatty()
    header, rows = terminal_rows(each, signs=not terminal)
    styles = {"": "", "best": "bold", "near": "underline"}
    numbers = [place for place, column in enumerate(each.columns) if column.form != "text"]
    typer.secho(printable(each.title), bold=True)
    print_table(
        header,
        rows,
        styles=[[styles[cell.mark] for cell in cells] for cells in each.rows],
        leave_out=["trained", *(header[place] for place in numbers[:0:-1])],  # the first number is what it is about
        right=numbers,
    )
    signs = () if terminal else ("* best, ~ not to be told from it",)
    for note in (*(each.notes), *(signs if any(cell.mark for cells in each.rows for cell in cells) else ())):
        say(note)
    say("")
