"""The notebooks of the documentation run from top to bottom, and what they display can be displayed."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "docs/notebooks").glob("*.ipynb"))


def displayed(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last expression is what it displays."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        last = ast.Expr(ast.Constant(None))
        tree.body.append(last)
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.fix_missing_locations(ast.Expression(last.value)), "cell", "eval"), names)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    values = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # they would be stale, and large
            values.append(displayed("".join(cell["source"]), names))
    forms = [form for value in values for form in ("_repr_html_", "_repr_png_") if hasattr(value, form)]
    assert forms, "a notebook that shows nothing"
    for value in values:
        for form in ("_repr_html_", "_repr_png_"):
            assert not hasattr(value, form) or len(getattr(value, form)()) > 100


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["benchmark", "one_photo", "two_checkpoints"]
