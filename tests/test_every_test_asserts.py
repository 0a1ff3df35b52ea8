"""A test that asserts nothing cannot fail for the right reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))
CHECKING_CALLS = ("raises", "warns", "fail")  # of pytest


def checks(function: ast.AST, helpers: dict[str, ast.FunctionDef], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a function asserts, expects an error or a warning, or calls a helper of its file that does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CHECKING_CALLS or name.startswith("assert_"):
            return True
        if name in helpers and name not in seen and checks(helpers[name], helpers, seen | {name}):
            return True
    return False


def silent_tests(source: str) -> list[str]:
    """The tests of a file that check nothing.

    >>> silent_tests("def test_a(): run()")
    ['test_a']
    """
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    return [name for name, node in functions.items() if name.startswith("test_") and not checks(node, functions)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_test_asserts(path: Path) -> None:
    assert silent_tests(path.read_text(encoding="utf-8")) == []


def test_the_check_sees_silence_and_helpers() -> None:
    assert silent_tests("def test_a(): run()\ndef test_b(): assert run()") == ["test_a"]
    assert silent_tests("def same(a): assert a\ndef test_a(): same(1)") == []
    assert silent_tests("def test_a():\n    with pytest.raises(ValueError): run()") == []
