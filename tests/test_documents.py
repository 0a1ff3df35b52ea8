"""No number of a document's tables is older than its result."""

import importlib
import importlib.util
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from report.made_up_results import MODELS, made_up_results
from typer.main import get_command

from locality.cli import app

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
        "docs/certified.md",
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


def test_trends_are_over_standard_models_and_corrected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    writer()  # so that its modules are found
    first = next(model for model in MODELS if model.training == "standard")
    shares = (0.2, 0.4, 0.6, 0.8, 0.95)
    models = [replace(first, name=f"net{index}", accuracy=share) for index, share in enumerate(shares)]
    random = next(model for model in MODELS if model.training == "random")
    results = made_up_results(40, 0, (*models, random))
    order = results.rows["model"].str.removeprefix("net").where(results.rows["model"] != random.name, "9").astype(int)
    rising = results.rows["method"] == "BIG"
    rows = results.rows.assign(f1=(0.3 + 0.05 * order).where(rising, 0.5 - 0.05 * order))
    tables = importlib.import_module("suite_tables")
    monkeypatch.setattr(tables, "suite", lambda name: results.with_tables(rows=rows))
    lines = tables.trends("any")().splitlines()
    assert lines[0] == "| over 5 networks | precision | recall | F1 | lift |"
    # 2 of the 5! orders are as strong: p = 1/60, twelve times it for the smallest of twelve.
    assert [line.split(" | ")[3] for line in lines[2:]] == ["-1.00 (p = 0.2)", "-1.00 (p = 0.2)", "+1.00 (p = 0.2)"]


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


def shell_lines(text: str) -> list[str]:
    """The lines of the document's blocks for a shell."""
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def parsed(words: list[str]) -> None:
    """Parse the words after `locality` as the command line would; an unknown option or a wrong value raises."""
    command: Any = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("locality", words)


def test_commands_of_the_readme_can_be_pasted() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = shell_lines(text)
    assert [line for line in lines if line.split()[0] not in ("make", "source", "locality", "pip")] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert all(line.split()[1:] in [[target] for target in targets] for line in lines if line.startswith("make "))
    commands = [*lines, *re.findall(r"^\| `(locality .*?)` \|", text, re.MULTILINE)]
    own = [shlex.split(line)[1:] for line in commands if line.startswith("locality ")]
    assert len(own) >= 14
    for words in own:
        parsed(words)
    with pytest.raises(typer.TyperException):
        parsed(["eval", "--model", "shapes_cnn", "one", "model:", "accuracy"])
