"""Progress of long work on standard error: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

Progress = Callable[[int, int | None], None]  # (done, total); total is None where it is not known
OpenProgress = Callable[[str], AbstractContextManager[Progress]]  # the progress of one thing of several, by its title
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BEFORE_FIRST_LINE = 2.0  # shorter work is finished before a line is read
SECONDS_BETWEEN_SIGNS = 0.5  # at which a sign may be due
SECONDS_BEFORE_SIGN = 5.0  # after which a line says that the work goes on, though nothing is finished yet
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def printable(text: str) -> str:
    """The text with control characters replaced: a name may move the cursor or set the title of a terminal.

    >>> printable("a\\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def no_progress(done: int, total: int | None) -> None:
    """Show nothing: the default of `progress` arguments."""


def open_no_progress(title: str) -> AbstractContextManager[Progress]:
    """Show nothing: the default of `OpenProgress` arguments."""
    return nullcontext(no_progress)


@contextmanager
def quietly() -> Iterator[None]:
    """Inside the block, `progress` shows nothing and `is_quiet` is true."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether progress and notes are left out.

    >>> with quietly():
    ...     is_quiet()
    True
    """
    return _quiet.get()


@dataclass(frozen=True)
class Report:
    """How much was done at which time."""

    at: float  # seconds of a monotonic clock
    done: int
    total: int | None


def nothing_more() -> str:
    """The default of `more` arguments: nothing."""
    return ""


@contextmanager
def progress(title: str, unit: str = "images", more: Callable[[], str] = nothing_more) -> Iterator[Progress]:
    """Show the progress of what is titled `title`; yields the function to report it with.

    `more` gives what is to be read after the counts at each moment, such as the current loss.
    """
    title = printable(title)
    if is_quiet():
        yield no_progress
    elif sys.stderr.isatty():
        with _bar(title, unit, more) as report:
            yield report
    else:
        with _lines(title, unit, more) as report:
            yield report


@contextmanager
def _bar(title: str, unit: str, more: Callable[[], str]) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar
    from rich.text import Text

    start = time.monotonic()
    reports: list[Report] = []  # the first and the last

    class Pace(ProgressColumn):
        """Rate and time left, or the time since the start while nothing is finished.

        rich's own columns forget reports older than 30 seconds; a unit may take minutes.
        """

        def render(self, task: Task) -> Text:
            now = time.monotonic()
            pace = (pace_text(reports[0], reports[-1], now) if reports else "") or f"{time_text(now - start)} so far"
            return Text(", ".join(filter(None, (more(), pace))))

    counts = (
        [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        if unit == "bytes"
        else [MofNCompleteColumn(), TextColumn(unit), Pace()]
    )
    with Bar(TextColumn("{task.description}", markup=False), BarColumn(20), *counts, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)

        def report(done: int, total: int | None) -> None:
            reports[1:] = [Report(time.monotonic(), done, total)]
            bar.update(task, completed=done, total=total)

        yield report


@contextmanager
def _lines(title: str, unit: str, more: Callable[[], str]) -> Iterator[Progress]:
    lines = _Lines(title, unit, time.monotonic(), more)
    stop = threading.Event()

    def show_signs() -> None:
        while not stop.wait(SECONDS_BETWEEN_SIGNS):
            lines.sign()

    # A thread, because the first batch alone may take minutes. torch computes without holding Python's lock.
    thread = threading.Thread(target=show_signs, daemon=True)
    thread.start()
    try:
        yield lines.report
    finally:
        stop.set()
        thread.join()


class _Lines:
    """A line every few seconds: what is finished, or how long the work has taken while nothing is."""

    def __init__(self, title: str, unit: str, start: float, more: Callable[[], str] = nothing_more) -> None:
        self.title, self.unit, self.start, self.more = title, unit, start, more
        self.last = start  # when a line was printed
        self.wait = SECONDS_BEFORE_FIRST_LINE
        self.first: Report | None = None
        self.now: Report | None = None
        self.lock = threading.Lock()

    def report(self, done: int, total: int | None) -> None:
        with self.lock:
            self.now = Report(time.monotonic(), done, total)
            self.first = self.first or self.now
            pace = self._pace(self.now.at)
            if self.now.at - self.last >= (self.wait if pace and done != total else SECONDS_BETWEEN_LINES):
                self._print(self.now.at, pace)

    def sign(self) -> None:
        """Print a line if none was printed for a while."""
        with self.lock:
            at = time.monotonic()
            if at - self.last >= (SECONDS_BEFORE_SIGN if self.last == self.start else SECONDS_BETWEEN_LINES):
                self._print(at, self._pace(at) or f"{time_text(at - self.start)} so far")

    def _pace(self, at: float) -> str:
        if self.first is None or self.now is None or self.unit == "bytes":
            return ""
        return pace_text(self.first, self.now, at)

    def _print(self, at: float, pace: str) -> None:
        self.last, self.wait = at, SECONDS_BETWEEN_LINES
        counted = (
            []
            if self.now is None
            else [f"{self.now.done:,}{f' of {self.now.total:,}' if self.now.total else ''} {self.unit}"]
        )
        parts = filter(None, [*counted, self.more(), pace])
        print(f"{self.title}: {', '.join(parts)}", file=sys.stderr, flush=True)


def pace_text(first: Report, last: Report, now: float) -> str:
    """The rate between two reports and the time left at time `now`; empty if nothing was done between them.

    >>> pace_text(Report(0, 0, 10), Report(120, 2, 10), 130)
    '1.0 per minute, 7:50 left'
    """
    if last.at <= first.at or last.done <= first.done:
        return ""
    rate = (last.done - first.done) / (last.at - first.at)
    if last.total is None or last.done >= last.total:
        return rate_text(rate)
    left = (last.total - last.done) / rate - (now - last.at)
    return f"{rate_text(rate)}, {time_text(max(0.0, left))} left"


def rate_text(rate: float) -> str:
    """A rate per second, or per minute if it is below one per second.

    >>> rate_text(12.34), rate_text(0.05)
    ('12.3 per second', '3.0 per minute')
    """
    return f"{rate:.1f} per second" if rate >= 1 else f"{60 * rate:.1f} per minute"


def time_text(seconds: float) -> str:
    """Hours, minutes and seconds as a clock shows them.

    >>> time_text(75), time_text(4000)
    ('1:15', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration_text(seconds: float) -> str:
    """Seconds in words, with the two largest units.

    >>> duration_text(75), duration_text(4000), duration_text(0.3), duration_text(400_000)
    ('1 min 15 s', '1 h 6 min', '0.3 s', '4 days 15 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    units: Sequence[tuple[int, str]] = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
    left = round(seconds)
    index, (size, name) = next((index, unit) for index, unit in enumerate(units) if left >= unit[0])
    count, rest = divmod(left, size)
    if size == 1:
        return f"{count} {name}"
    smaller, smaller_name = units[index + 1]
    return f"{count} {'day' if (name, count) == ('days', 1) else name} {rest // smaller} {smaller_name}"
