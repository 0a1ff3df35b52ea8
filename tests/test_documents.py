"""No number of a document's tables is older than its result."""

import importlib.util
import re
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


@pytest.mark.parametrize(
    "name",
    [
        "docs/speed.md",
        "docs/models.md",
        "docs/reproduction.md",
        "docs/scaling.md",
        "docs/scores.md",
        "docs/curvature.md",
        "docs/training_study.md",
        "CONTRIBUTING.md",
    ],
)
def test_tables_are_as_the_results_have_them(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert writer().updated(name) == text, "run python bench/documents.py"


def test_old_numbers_are_replaced_and_places_must_be_there() -> None:
    documents = writer()
    text, tables = (ROOT / "docs/models.md").read_text(encoding="utf-8"), documents.DOCUMENTS["docs/models.md"]
    changed = text.replace("`shapes_cnn`", "`shapes_cmm`")
    assert documents.written(changed, tables) != changed
    with pytest.raises(ValueError, match="must mark the table models"):
        documents.written(text.replace("<!-- models -->", ""), tables)


def test_links_lead_up_from_a_folder() -> None:
    text = "# Title\n<!-- a -->\nold\n<!-- end -->\nend\n"
    tables = {"a": lambda: "[x](bench/x.json)"}
    assert writer().written(text, tables, 1) == "# Title\n<!-- a -->\n[x](../bench/x.json)\n<!-- end -->\nend\n"


def test_no_placeholder_is_left_in_the_documents() -> None:
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        assert "@@" not in path.read_text(encoding="utf-8"), path.name


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_python_example_of_the_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = text.split("```python\n")[1].split("```")[0], text.split("```text\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {})
    printed, numbers = capsys.readouterr().out, re.compile(r"\d+\.\d+")
    assert numbers.sub("", printed) == numbers.sub("", output)
    expected = [float(number) for number in numbers.findall(output)]
    assert [float(number) for number in numbers.findall(printed)] == pytest.approx(expected, abs=0.02)  # other processors


def test_links_between_documents_lead_somewhere() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
