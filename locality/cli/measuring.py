"""What commands that measure a model share: wrong names are reported before torch is imported, and `--threads`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from locality.cli.options import method_names
from locality.cli.table_names import table_names
from locality.data.kinds import check_name
from locality.errors import unknown_choice

# Read by the libraries under torch, numpy and scipy when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
THREADS_HELP = (
    "Threads on the CPU. Default: OMP_NUM_THREADS, else 1, as in bench; more help large networks on an idle machine. "
    "Results with another number of threads differ by rounding."
)
Threads = Annotated[int | None, typer.Option(min=1, help=THREADS_HELP)]


class MeasuringCommand:
    """`function` as typer reads it, with the option `--threads`; its names are checked first."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        # What typer reads besides the signature.
        self.__name__, self.__doc__, self.__annotations__ = function.__name__, function.__doc__, {}

    def __call__(self, threads: int | None = None, **given: Any) -> None:
        check_names(given)
        with cpu_threads(threads):
            self.function(**given)

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(self.function, eval_str=True).parameters.values()
        threads = inspect.Parameter("threads", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Threads)
        return inspect.Signature([*own, threads])


def check_names(given: Mapping[str, Any]) -> None:
    """Raise for names of models, methods, searches and data that cannot be right; loading them checks the rest."""
    for option in ("model", "first", "second", "surrogate", "against"):
        _check_model(given.get(option) or "")
    for name in method_names(given.get("methods") or ""):
        methods = table_names("attribution.methods", "METHODS")
        if name not in methods and not name.startswith("captum:"):
            raise unknown_choice("method", name, methods, also="captum:NAME")
    search, searches = given.get("search"), table_names("boundary", "SEARCHES")
    if search and search not in searches and not search.startswith("foolbox:"):
        raise unknown_choice("search", search, searches, also="foolbox:NAME")
    for option in ("data", "train"):
        if given.get(option):
            check_name(given[option], option)


def _check_model(name: str) -> None:
    """Raise if it is a plain word, but neither a model of the catalog nor a file."""
    from locality.zoo.catalog import model_cards, unknown_model

    if name and not set(":/.\\") & set(name) and not Path(name).exists():
        known = model_cards()
        if name not in known:
            raise unknown_model(name, known)


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Set the number of threads inside the block, without importing torch; None: OMP_NUM_THREADS, else 1."""
    environment = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    own = environment["OMP_NUM_THREADS"] or ""
    threads = count or (int(own) if own.isdigit() and int(own) else 1)
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    if torch is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        for name, value in environment.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if torch is not None:
            torch.set_num_threads(before)
