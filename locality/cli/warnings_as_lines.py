"""Warnings of commands: one line each on standard error, without file and line number."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from locality.cli.printing import say


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings as lines inside the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"locality: warning: {message}", error=True)
        yield
