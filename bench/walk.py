"""The files of locality that a command passes through, in the order of their first call.

    python bench/walk.py eval --model shapes_cnn --limit 8

What runs while modules are imported (tables, decorators) does not count. One line per file: its path, the first function
called in it, and the first line of its docstring.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import sys
from pathlib import Path
from types import FrameType

import locality
from locality.cli import main

PACKAGE = Path(locality.__file__).parent


def first_calls(arguments: list[str]) -> dict[str, str]:
    """File below the package ↦ the first function called in it."""
    called: dict[str, str] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{PACKAGE}/") or code.co_name.startswith("<"):
            return
        path = code.co_filename.removeprefix(f"{PACKAGE}/")
        if path not in called and code.co_name not in ("__getattr__", "__dir__") and not while_importing(frame):
            called[path] = code.co_name

    sys.argv = ["locality", *arguments]
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        sys.setprofile(note)
        main()
    sys.setprofile(None)
    return called


def while_importing(frame: FrameType | None) -> bool:
    """Whether a module or a class of locality is being made further up the stack."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(f"{PACKAGE}/") and not code.co_flags & inspect.CO_OPTIMIZED:  # not a function
            return True
        frame = frame.f_back
    return False


def summary_of(path: str) -> str:
    """The first line of a file's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0]


if __name__ == "__main__":
    for index, (file, function) in enumerate(first_calls(sys.argv[1:]).items(), 1):
        print(f"{index}. `{file}` ({function}): {summary_of(file)}")
