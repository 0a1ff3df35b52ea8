"""`locality table`: print or write the tables of a benchmark."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locality.cli.options import AsJson, check_folder
from locality.cli.options import method_names as names_between_commas
from locality.cli.printing import note as explain
from locality.cli.printing import print_table, say, say_json
from locality.progress import printable

if TYPE_CHECKING:
    from locality.report.tables.table import Table
    from locality.results.results import Results as ResultTables

RESULTS_HELP = "Folder that `locality bench` or `locality eval --out` wrote."
WHICH_HELP = (
    "Tables, separated by commas: overview, locality, pairs, robust, regions, region_tests, certified, similarity, "
    "searches, faithfulness, removal, sensitivity, localisation, curvature, faults, "
    "or the table of a measurement of your own. Default: all that were measured."
)
Results = Annotated[Path, typer.Argument(metavar="RESULTS", help=RESULTS_HELP)]
OneData = Annotated[str | None, typer.Option("--data", help="Only the results on this data set, if there are several.")]


class TableFormat(StrEnum):
    """How tables are written: text, or a format of `report.tables.formats`."""

    text = "text"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


def read(results: Path, data: str | None) -> ResultTables:
    """The results behind the two options above; a line on standard error says if they are incomplete."""
    from locality.report.findings import unfinished_sentence
    from locality.results.folder import read_results
    from locality.results.results import of_data

    tables = read_results(results)
    incomplete = unfinished_sentence(tables)
    if incomplete is not None:
        say(f"locality: {incomplete}", error=True)
    return tables if data is None else of_data(tables, data)


def table(
    results: Results,
    which: Annotated[str | None, typer.Option(help=WHICH_HELP)] = None,
    form: Annotated[TableFormat, typer.Option("--format", help="Format of the tables.")] = TableFormat.text,
    out: Annotated[
        Path | None,
        typer.Option(help="Write one file per table into this folder: CSV, Markdown and LaTeX unless --format is given."),
    ] = None,
    data: OneData = None,
    as_json: AsJson = False,
) -> None:
    """Print the tables of a benchmark: accuracy, locality, robustness, certificates, similarity, searches, curvature."""
    from locality.report.tables.build import tables
    from locality.report.tables.formats import FORMATS, plain_table

    check_folder(out)
    found = read(results, data)
    built = tables(found, names_between_commas(which) if which else None)
    if not built:
        raise ValueError(f"`{results}` holds no measurements: has `locality bench` run?")
    if as_json:
        say_json(
            {
                "suite": found.name,
                "data": sorted(set(map(str, found.models["data"]))),
                "n": int(found.rows["image_id"].nunique()),
                "tables": {one.name: plain_table(one) for one in built},
                "provenance": found.provenance,
            }
        )
    if out is not None:
        for path in _written(built, list(FORMATS) if form is TableFormat.text else [form.value], out):
            say(str(path), error=as_json)
    elif as_json:
        return
    elif form is TableFormat.text:
        for one in built:
            _print(one)
    else:
        write, _ = FORMATS[form.value]
        text = "\n".join(map(write, built))
        typer.echo("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text, nl=False)


def _written(tables: tuple[Table, ...], forms: list[str], folder: Path) -> list[Path]:
    """Write each table in each format."""
    from locality.files import write_atomically
    from locality.report.tables.formats import FORMATS

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for one in tables:
        for form in forms:
            write, suffix = FORMATS[form]
            path = folder / f"{one.name}{suffix}"
            write_atomically(path, write(one))
            paths.append(path)
    return paths


def _print(table: Table) -> None:
    """Bold and underlined on a terminal; elsewhere * follows the best value and ~ values tied with it."""
    from locality.report.tables.formats import terminal_rows

    terminal = sys.stdout.isatty()
    header, rows = terminal_rows(table, signs=not terminal)
    styles = {"": "", "best": "bold", "tied": "underline"}
    numbers = [index for index, column in enumerate(table.columns) if column.type != "text"]
    typer.secho(printable(table.title), bold=True)
    print_table(
        header,
        rows,
        styles=[[styles[cell.mark] for cell in row] for row in table.rows],
        leave_out=[header[index] for index in table.hidden_first()],
        right=numbers,
    )
    for note in table.note_texts() if terminal else table.note_texts("marked *", "~"):
        explain(note)
    say("")
