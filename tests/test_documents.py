"""No number of a document's tables is older than its result."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documents", ROOT / "bench/documents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["README.md", "docs/reproduction.md", "docs/scaling.md"])
def test_tables_are_as_the_results_have_them(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert writer().updated(name) == text, "run python bench/documents.py"


def test_old_numbers_are_replaced_and_places_must_be_there() -> None:
    documents = writer()
    text, tables = (ROOT / "README.md").read_text(encoding="utf-8"), documents.DOCUMENTS["README.md"]
    changed = text.replace("`shapes_cnn`", "`shapes_cmm`")
    assert documents.written(changed, tables) != changed
    with pytest.raises(ValueError, match="must mark the table models"):
        documents.written(text.replace("<!-- models -->", ""), tables)


def test_links_lead_up_from_a_folder() -> None:
    text = "# Title\n<!-- a -->\nold\n<!-- end -->\nend\n"
    tables = {"a": lambda: "[x](bench/x.json)"}
    assert writer().written(text, tables, 1) == "# Title\n<!-- a -->\n[x](../bench/x.json)\n<!-- end -->\nend\n"


def test_no_placeholder_is_left_in_the_documents() -> None:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert "@@" not in path.read_text(encoding="utf-8"), path.name
