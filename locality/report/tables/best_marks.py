"""Marks in a table: the best value of a column, and values statistically tied with it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from locality.report.tables.table import Cell, Mark


def marks(values: Sequence[float], errors: Sequence[float], lower: bool = False) -> list[Mark]:
    """Mark the best value, and values tied with it: best − SE ≤ value + SE, as in the thesis. `lower`: smaller is better.

    >>> marks([0.5, 0.7, 0.68, float("nan")], [0.01, 0.02, 0.01, 0.01])
    ['', 'best', 'tied', '']
    """
    sign = -1 if lower else 1
    defined = [index for index, value in enumerate(values) if not math.isnan(value)]
    if not defined:
        return [""] * len(values)
    best = max(defined, key=lambda index: sign * values[index])
    found: list[Mark] = []
    for value, error in zip(values, errors, strict=True):
        margin = sum(0.0 if math.isnan(one) else one for one in (errors[best], error))
        if value == values[best]:
            found.append("best")
        else:
            found.append("tied" if sign * (values[best] - value) <= margin else "")
    return found


def marked(
    rows: Sequence[Sequence[Cell]], groups: Sequence[Hashable], columns: Iterable[int], lower: Sequence[int] = ()
) -> tuple[tuple[Cell, ...], ...]:
    """The rows with the best of each group marked in the given columns; a group of one row has no best."""
    result = [list(row) for row in rows]
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    chosen = list(columns)
    for indices in members.values():
        for column in chosen if len(indices) > 1 else ():
            cells = [result[index][column] for index in indices]
            values = [math.nan if cell.value is None else cell.value for cell in cells]
            errors = [math.nan if cell.standard_error is None else cell.standard_error for cell in cells]
            for index, cell, mark in zip(indices, cells, marks(values, errors, column in lower), strict=True):
                result[index][column] = replace(cell, mark=mark)
    return tuple(tuple(row) for row in result)
