"""Imports go left only: data → zoo → boundary → attribution → robustness → scores → runner → report → cli."""

import ast
from pathlib import Path

import pytest

import locality

PACKAGE = Path(locality.__file__).parent
ORDER = [
    {"errors", "torchvision_shim"},
    {"progress", "toml_settings"},
    {"types"},
    {"files", "statistics", "imagenet_classes"},
    {"download"},
    {"model_calls", "perturbation"},
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
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_rooms(source: str) -> set[str]:
    """Rooms of locality that a file imports, anywhere in it."""
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports in full, so that this test can read them"
            names = [node.module or ""]
            if node.module == "locality":
                names = [f"locality.{alias.name}" for alias in node.names if alias.name != "__version__"]
        rooms |= {name.split(".")[1] for name in names if name.startswith("locality.")}
        assert not any(name.split(".")[0] in {"bench", "figures", "tests"} for name in names)
    return rooms


def broken_rules(room: str, source: str) -> list[str]:
    return [other for other in sorted(imported_rooms(source)) if other != room and not RANK[other] < RANK[room]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_left(path: Path) -> None:
    assert room_of(path) in RANK, "a new room: add it to the design and to ORDER"
    assert broken_rules(room_of(path), path.read_text(encoding="utf-8")) == []


def test_the_rule_sees_what_it_forbids() -> None:
    assert broken_rules("data", "def f():\n    from locality.report.tables.build import table") == ["report"]
    assert broken_rules("data", "import locality.zoo.load") == ["zoo"]
    assert broken_rules("types", "from locality import download") == ["download"]
    assert broken_rules("scores", "from locality.attribution import BIG\nfrom locality.scores.locality import x") == []


def test_names_and_sizes_of_files() -> None:
    assert not [path for path in FILES if path.stem in {"utils", "helpers", "base", "common", "misc"}]
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not {name: count for name, count in lines.items() if count > 320}
