"""What the shell completes: names of models, data sets, methods, searches, suites and recipes, without importing torch."""

from __future__ import annotations

from collections.abc import Iterable

from locality.cli.table_names import table_names
from locality.files import PACKAGE, PACKAGED


def models(incomplete: str) -> list[str]:
    """Names in the catalog."""
    from locality.zoo.catalog import model_cards

    return _starting(incomplete, model_cards())


def data(incomplete: str) -> list[str]:
    """Names of data sets."""
    return _starting(incomplete, table_names("data.sources", "SOURCES"))


def methods(incomplete: str) -> list[str]:
    """Lists of methods, separated by commas; the last one is completed.

    >>> methods("SM,I")
    ['SM,InputXGradient', 'SM,IG']
    """
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    left = [name for name in table_names("attribution.methods", "METHODS") if name not in given]
    return [f"{before}{comma}{name}" for name in _starting(last, left)]


def searches(incomplete: str) -> list[str]:
    """Names of boundary searches."""
    return _starting(incomplete, table_names("boundary", "SEARCHES"))


def suites(incomplete: str) -> list[str]:
    """Names of the suites that ship with locality."""
    folders = PACKAGE / "shipped_files/suites", PACKAGE.parent / PACKAGED["suites"]
    return _starting(incomplete, sorted({path.stem for folder in folders for path in folder.glob("*.toml")}))


def recipes(incomplete: str) -> list[str]:
    """Names of the recipes that ship with locality."""
    return _starting(incomplete, sorted(path.stem for path in (PACKAGE / "training/recipes").glob("*.toml")))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
