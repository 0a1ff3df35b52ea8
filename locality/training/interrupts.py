"""Ctrl-C during a run: the step under way is finished, so that the state can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Inside the block Ctrl-C is only noted; the function that it yields says whether there was one.

    A second Ctrl-C interrupts at once. Only main threads get signals; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts(worker: int) -> None:
    """For processes that load images: the terminal sends Ctrl-C to them, too, and the step under way needs them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
