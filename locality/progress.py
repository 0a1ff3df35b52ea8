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
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if not speed else rate_text(speed))

    counts = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit), Rate()]
    )
    columns = [TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, unit: str) -> Callable[[int, int | None], None]:
    first: tuple[float, int] | None = None  # when the first report came, and what was done by then
    last = time.monotonic()

    def report(done: int, total: int | None) -> None:
        nonlocal first, last
        now = time.monotonic()
        first = first or (now, done)
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            rate = (done - first[1]) / (now - first[0]) if now > first[0] else 0.0
            left = (
                f", {rate_text(rate)}, {time_text((total - done) / rate)} left" if total and rate and unit != "bytes" else ""
            )
            print(f"{title}: {done:,}{f' of {total:,}' if total else ''} {unit}{left}", file=sys.stderr, flush=True)

    return report


def rate_text(rate: float) -> str:
    """How many a second, or a minute where that is below one.

    >>> rate_text(12.34), rate_text(0.05)
    ('12.3 a second', '3.0 a minute')
    """
    return f"{rate:.1f} a second" if rate >= 1 else f"{60 * rate:.1f} a minute"


def time_text(seconds: float) -> str:
    """Hours, minutes and seconds, as clocks show them.

    >>> time_text(75), time_text(4000)
    ('1:15', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
