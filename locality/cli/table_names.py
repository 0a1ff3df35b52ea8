"""The names in a table such as `METHODS`, without importing torch."""

from __future__ import annotations

import ast
import functools
import sys

from locality.files import PACKAGE


def table_names(module: str, table: str) -> list[str]:
    """The names in a table of a module or package; read from its source where importing it would import torch.

    >>> table_names("boundary", "SEARCHES")
    ['fast', 'thorough', 'paper', 'autopgd', 'rays']
    """
    loaded = sys.modules.get(f"locality.{module}")
    return list(getattr(loaded, table, None) or _names_in_source(module, table))  # a partly imported module has no table


@functools.cache
def _names_in_source(module: str, table: str) -> tuple[str, ...]:
    place = PACKAGE.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    source = file.read_text(encoding="utf-8")
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.target.id == table:
            assert isinstance(statement.value, ast.Dict)
            return tuple(ast.literal_eval(key) for key in statement.value.keys if key is not None)
    raise LookupError(f"locality.{module} has no {table}")
