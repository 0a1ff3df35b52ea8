"""The command line: one file per command; it parses, calls and prints. torch is imported by the commands that need it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from locality import __version__
from locality.cli import bench, certify, compare, data, eval, explain, figures, models, report, robust, table, train
from locality.cli.printing import say

app = typer.Typer(
    name="locality",
    help="Does an image classifier look at the object?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command("eval")(eval.evaluate)
app.command("compare")(compare.compare)
app.command("robust")(robust.robust)
app.command("certify")(certify.command)
app.command("bench")(bench.bench)
app.command("table")(table.table)
app.command("figures")(figures.figures)
app.command("report")(report.report)
app.command("explain")(explain.explain)
app.command("train")(train.train)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"locality {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error is one sentence on standard error and exit code 2."""
    try:
        code = app(prog_name="locality", standalone_mode=False)
    except typer.TyperException as error:
        sentence = _usage_sentence(error)
        if sentence:
            say(f"locality: {sentence}", error=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(1)
    except (ValueError, OSError) as error:
        if os.environ.get("LOCALITY_DEBUG"):
            raise
        say(f"locality: {error}", error=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _usage_sentence(error: typer.TyperException) -> str:
    """What is wrong with the words after `locality`, and where they are explained; empty if the help was printed instead."""
    problem = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{problem}: see `{context.command_path} --help`" if problem and context is not None else problem
