"""Progress of long work: a bar on a terminal, a plain line every few seconds elsewhere; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress(title: str, unit: str = "images") -> Iterator[Callable[[int, int | None], None]]:
    """Gives a function to call with (done, total)."""
    if sys.stderr.isatty():
        with _bar(title, unit) as report:
            yield report
    else:
        yield _lines(title, unit)


@contextmanager
def _bar(title: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    columns = [TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, unit: str) -> Callable[[int, int | None], None]:
    last = time.monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            print(f"{title}: {done:,}{f' of {total:,}' if total else ''} {unit}", file=sys.stderr, flush=True)

    return report
