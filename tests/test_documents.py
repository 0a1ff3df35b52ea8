"""No number of the README's tables is older than its result."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "bench/readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_as_the_results_have_them() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert writer().written(text) == text, "run python bench/readme.py"


def test_old_numbers_are_replaced_and_places_must_be_there() -> None:
    readme = writer()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.written(text.replace("`shapes_cnn`", "`shapes_cmm`")) != text.replace("`shapes_cnn`", "`shapes_cmm`")
    with pytest.raises(ValueError, match="place for the table models"):
        readme.written(text.replace("<!-- models -->", ""))


def test_no_placeholder_is_left_in_the_documents() -> None:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert "@@" not in path.read_text(encoding="utf-8"), path.name
