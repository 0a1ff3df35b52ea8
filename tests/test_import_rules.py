"""Imports go left only between rooms, and without cycles inside each room, sub-rooms included."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import locality

PACKAGE = Path(locality.__file__).parent
ORDER = [
    {"errors", "torchvision_shim"},
    {"progress", "toml_settings", "intervals", "pictures"},
    {"types"},
    {"files", "statistics", "imagenet_classes", "connection"},
    {"download", "pooled_scores"},
    {"model_calls", "operator_norms", "perturbation"},
    {"conv_norms"},
    {"data", "zoo"},
    {"boundary"},
    {"attribution"},
    {"robustness", "certified", "curvature"},
    {"scores"},
    {"training", "results"},
    {"runner"},
    {"report"},
    {"cli"},
    {"__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
# A room's own `__init__.py` shows its table and imports what the table names, so it comes last in the room.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in FILES if len(path.relative_to(PACKAGE).parts) > 1})
# Reading results needs neither a network nor a figure.
WITHOUT_TORCH = (
    "results",
    "statistics",
    "pooled_scores",
    "intervals",
    "toml_settings",
    "errors",
    "files",
    "types",
    "pictures",
    "progress",
    "connection",
    "download",
)
HEAVY = {"torch", "torchvision", "captum", "timm", "foolbox", "matplotlib", "skimage"}
LONGEST = 300


def module_parts(path: Path) -> tuple[str, ...]:
    """A file as the parts of its module's name below `locality`.

    >>> module_parts(PACKAGE / "boundary/fast/__init__.py")
    ('boundary', 'fast', '__init__')
    """
    return path.relative_to(PACKAGE).with_suffix("").parts


def imported_modules(source: str, at_start: bool = False) -> set[str]:
    """Modules that a file imports, anywhere in it or `at_start` only; `from package import name` gives `package.name`, too.

    At the start means: when the file itself is imported, not in functions and not for type checkers.
    """
    modules: set[str] = set()
    tree = ast.parse(source)
    for node in tree.body if at_start else ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full, so that this test can read them"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        assert not any(name.split(".")[0] in {"bench", "figures", "tests"} for name in names)
        modules |= set(names)
    return modules


def imported_rooms(source: str) -> set[str]:
    """Rooms of locality that a file imports."""
    parts = [name.split(".") for name in imported_modules(source) if name.startswith("locality.")]
    return {part[1] for part in parts if part[1] in RANK}


def broken_rules(room: str, source: str) -> list[str]:
    return [other for other in sorted(imported_rooms(source)) if other != room and not RANK[other] < RANK[room]]


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def neighbours(folder: Path) -> dict[str, set[str]]:
    """What each file and sub-room of a folder imports from the same folder."""
    prefix = ".".join(("locality", *folder.relative_to(PACKAGE).parts))
    graph: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        own = path.relative_to(folder).with_suffix("").parts[0]
        graph.setdefault(own, set())
        for name in imported_modules(path.read_text(encoding="utf-8"), at_start=True):
            if name != prefix and not name.startswith(f"{prefix}."):
                continue
            if name == prefix:
                continue  # the names behind it are looked at one by one
            leaf = name.removeprefix(f"{prefix}.").split(".")[0]
            other = leaf if is_module(f"{prefix}.{leaf}") else "__init__"
            if other != own:
                graph[own].add(other)
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_left(path: Path) -> None:
    room = module_parts(path)[0]
    assert room in RANK, "a new room: add it to the design and to ORDER"
    assert broken_rules(room, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_has_a_cycle(room: str) -> None:
    assert cycle_in(neighbours(PACKAGE / room)) == []


@pytest.mark.parametrize("folder", [path for path in PACKAGE.glob("*/*") if (path / "__init__.py").is_file()], ids=str)
def test_no_sub_room_has_a_cycle(folder: Path) -> None:
    assert cycle_in(neighbours(folder)) == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if module_parts(path)[0] in WITHOUT_TORCH], ids=lambda path: path.name
)
def test_rooms_that_read_results_do_without_torch(path: Path) -> None:
    modules = imported_modules(path.read_text(encoding="utf-8"), at_start=True)
    assert not {name.split(".")[0] for name in modules} & HEAVY


def test_the_rules_see_what_they_forbid() -> None:
    assert broken_rules("data", "def f():\n    from locality.report.tables import table") == ["report"]
    assert broken_rules("data", "import locality.zoo.load") == ["zoo"]
    assert broken_rules("types", "from locality import download") == ["download"]
    assert broken_rules("scores", "from locality.attribution import BIG\nfrom locality.scores.locality import x") == []
    assert cycle_in({"tables": {"aggregates"}, "aggregates": {"tables"}})
    assert not cycle_in({"tables": {"aggregates"}, "aggregates": set()})
    assert "fast" in neighbours(PACKAGE / "boundary")["__init__"] | neighbours(PACKAGE / "boundary")["thorough"]


def test_names_and_sizes_of_files() -> None:
    assert not [path for path in FILES if path.stem in {"utils", "helpers", "base", "common", "misc"}]
    lines = {path.relative_to(PACKAGE): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {str(path): count for path, count in lines.items() if count > LONGEST}
