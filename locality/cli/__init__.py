"""The command line: one file per command; it parses, calls and prints. torch is imported by the commands that need it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from locality import __version__
from locality.cli import (
    bench,
    calibrate,
    certify,
    compare,
    curvature,
    data,
    eval,
    explain,
    figures,
    landscape,
    models,
    report,
    robust,
    table,
    train,
)
from locality.cli.encodings import show_in_any_encoding
from locality.cli.measuring import MeasuringCommand
from locality.cli.printing import say
from locality.errors import needing
from locality.files import PACKAGE
from locality.progress import quietly

MAX_SENTENCE = 10_000  # characters: a hostile file may have names of any length

EVERY_COMMAND = "Every command also takes --quiet (no progress and no notes) and --debug."

app = typer.Typer(
    name="locality",
    help="Does an image classifier look at the object?",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command("eval", epilog=EVERY_COMMAND)(MeasuringCommand(eval.evaluate))
app.command("compare", epilog=EVERY_COMMAND)(MeasuringCommand(compare.compare))
app.command("calibrate", epilog=EVERY_COMMAND)(MeasuringCommand(calibrate.calibrate))
app.command("robust", epilog=EVERY_COMMAND)(MeasuringCommand(robust.robust))
app.command("certify", epilog=EVERY_COMMAND)(MeasuringCommand(certify.command))
app.command("curvature", epilog=EVERY_COMMAND)(MeasuringCommand(curvature.curvature))
app.command("landscape", epilog=EVERY_COMMAND)(MeasuringCommand(landscape.landscape))
app.command("bench", epilog=EVERY_COMMAND)(bench.bench)
app.command("table", epilog=EVERY_COMMAND)(table.table)
app.command("figures", epilog=EVERY_COMMAND)(figures.figures)
app.command("report", epilog=EVERY_COMMAND)(report.report)
app.command("explain", epilog=EVERY_COMMAND)(MeasuringCommand(explain.explain))
app.command("train", epilog=EVERY_COMMAND)(train.train)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"locality {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no notes; may also follow the command.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error arose; may also follow the command.")] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; whatever goes wrong is one sentence on standard error and exit code 2.

    With `--debug` anywhere, or LOCALITY_DEBUG in the environment, the traceback comes first. With `--quiet` anywhere, there
    is no progress.
    """
    show_in_any_encoding()
    arguments, debug = _without(sys.argv[1:], "--debug")
    arguments, quiet = _without(arguments, "--quiet", "-q")
    debug = debug or bool(os.environ.get("LOCALITY_DEBUG"))
    try:
        with _orderly_end(), needing("this command"), quietly() if quiet else nullcontext():
            code = app(arguments, prog_name="locality", standalone_mode=False)
    except typer.TyperException as error:
        sentence = _usage_sentence(error)
        if sentence:
            say(f"locality: {sentence}", error=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(1)
    except Exception as error:
        if debug:
            traceback.print_exc()
        say(f"locality: {_sentence(error)}", error=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _without(arguments: list[str], *names: str) -> tuple[list[str], bool]:
    """The arguments without an option of every command, which may stand anywhere before `--`, and whether it was there.

    >>> _without(["models", "-q", "--", "-q"], "--quiet", "-q")
    (['models', '--', '-q'], True)
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word not in names]
    return kept + arguments[end:], len(kept) < end


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Inside the block SIGTERM is an exception, so that unfinished files are removed; only main threads get signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: Exception) -> str:
    """What went wrong. Errors that name the user's mistake speak for themselves; others also say where they arose."""
    text = str(error).strip()
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text if len(text) <= MAX_SENTENCE else f"{text[:MAX_SENTENCE]}…"
    first = text.partition("\n")[0].rstrip(".:")
    frames = traceback.extract_tb(error.__traceback__)
    own = next((frame for frame in reversed(frames) if Path(frame.filename).is_relative_to(PACKAGE)), None)
    where = "" if own is None else f" in {Path(own.filename).relative_to(PACKAGE.parent)}, line {own.lineno}"
    kind = "not enough memory" if isinstance(error, MemoryError) else f"unexpected {type(error).__name__}"
    return f"{kind}{where}{first and f': {first}'} (--debug shows more)"


def _usage_sentence(error: typer.TyperException) -> str:
    """What is wrong with the words after `locality`, and where they are explained; empty if the help was printed instead."""
    problem = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{problem}: see `{context.command_path} --help`" if problem and context is not None else problem
