"""The documentation site is complete. `make docs` builds it; this checks its sources without Sphinx."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import locality

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def configuration() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert sorted(listed) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")


def test_the_api_page_shows_every_public_name() -> None:
    """Autodoc lists the classes and functions among the members of the package; it needs to be told of plain values."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert ".. automodule:: locality\n   :members:\n   :imported-members:\n   :undoc-members:\n" in page
    assert ":exclude-members:" not in page
    values = [name for name in locality.__all__ if not callable(getattr(locality, name))]
    assert sorted(re.findall(r"^\.\. py:data:: (\w+)$", page, re.MULTILINE)) == sorted(values)


def test_the_gallery_shows_every_committed_figure() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(\.\./figures/rendered/(.*?)\)", page)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "figures/rendered").glob("*.png"))


def test_docstrings_are_plain_text_to_sphinx(configuration: ModuleType) -> None:
    lines = ["The mean of |A| and *all* of x_ in `a_ | b*`.", ">>> f(*args)  # |a|"]
    configuration.plain_text(None, "function", "f", None, None, lines)
    assert lines == [r"The mean of \|A| and \*all* of x\_ in `a_ | b*`.", ">>> f(*args)  # |a|"]


def test_lists_of_docstrings_are_set_apart(configuration: ModuleType) -> None:
    lines = ["One of", "- a", "  and b", "- c", "More."]
    configuration.plain_text(None, "function", "f", None, None, lines)
    assert lines == ["One of", "", "- a", "  and b", "- c", "", "More."]


def test_links_out_of_the_site_stay_readable(configuration: ModuleType) -> None:
    source = ["[how](../CONTRIBUTING.md), [tests](../tests/curvature), [x](../bench/results/data.json), [y](data.md)"]
    configuration.inside_the_site(None, "page", source)
    assert source == ["[how](contributing.md), tests (`tests/curvature`), [x](../bench/results/data.json), [y](data.md)"]


def test_make_docs_takes_warnings_for_errors() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^docs: \.venv\n\t.*sphinx --fail-on-warning .* docs docs/_build/html$", makefile, re.MULTILINE)


def test_hooks_and_workflows_run_what_make_test_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    tests = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    for tool in ("ruff format", "ruff check", "mypy"):
        assert f".venv/bin/{tool}" in hooks
        assert f".venv/bin/{tool}" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "- run: make test\n" in tests
    assert "- run: make docs\n" in tests
