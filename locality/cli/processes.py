"""Several processes of one command, as torch's launcher starts them: only the first one prints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from locality.cli.warnings_as_lines import warnings_as_lines
from locality.progress import quietly


def is_main_process() -> bool:
    """Whether this is the only process, or the first of several."""
    return os.environ.get("RANK", "0") == "0"  # set by torch's launcher


@contextmanager
def printing_once() -> Iterator[None]:
    """Inside the block the main process prints warnings as lines; others print neither warnings nor progress."""
    if is_main_process():
        with warnings_as_lines():
            yield
        return
    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
