"""What tables are made of: cells that know their number, and the marks of the best and of what cannot be told from it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from locality.report.aggregates import Measure

Mark = Literal["", "best", "near"]
Form = Literal["text", "number", "interval"]
TINY = 1e-4  # below it, zeros hide how small a number is


@dataclass(frozen=True, slots=True)
class Cell:
    """One field: as it is printed, and as a number where it is one."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None  # what decides whether it is near the best
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A title for people, a key for CSV files, and what stands in it."""

    title: str
    key: str
    form: Form = "number"


@dataclass(frozen=True)
class Table:
    """A table in its plainest form; `table_formats` writes it. `notes` stand under it."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def marks(values: Sequence[float], errors: Sequence[float], lower: bool = False) -> list[Mark]:
    """Which values are the best, and which cannot be told from it: best − SE ≤ value + SE (for `lower`, mirrored).

    >>> marks([0.5, 0.7, 0.68, float("nan")], [0.01, 0.02, 0.01, 0.01])
    ['', 'best', 'near', '']
    """
    sign = -1 if lower else 1
    defined = [place for place, value in enumerate(values) if not math.isnan(value)]
    if not defined:
        return [""] * len(values)
    top = max(defined, key=lambda place: sign * values[place])
    found: list[Mark] = []
    for place, value in enumerate(values):
        reach = sum(0.0 if math.isnan(errors[each]) else errors[each] for each in (top, place))
        if value == values[top]:
            found.append("best")
        else:
            found.append("near" if sign * (values[top] - value) <= reach else "")
    return found


def marked(
    rows: Sequence[Sequence[Cell]], groups: Sequence[Hashable], columns: Sequence[int], lower: Sequence[int] = ()
) -> tuple[tuple[Cell, ...], ...]:
    """The rows with the best of each group marked, column by column; a group of one has no best."""
    found = [list(row) for row in rows]
    members: dict[Hashable, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    for places in members.values():
        for column in columns if len(places) > 1 else ():
            cells = [found[place][column] for place in places]
            values = [math.nan if cell.value is None else cell.value for cell in cells]
            errors = [math.nan if cell.error is None else cell.error for cell in cells]
            for place, cell, mark in zip(places, cells, marks(values, errors, column in lower), strict=True):
                found[place][column] = replace(cell, mark=mark)
    return tuple(tuple(row) for row in found)


def score_cell(measure: Measure | None, interval: bool = True) -> Cell:
    """A mean with three decimals."""
    return _cell(measure, lambda value: f"{round(value, 3) + 0.0:.3f}", interval)  # + 0.0: no minus sign before 0.000


def distance_cell(measure: Measure | None) -> Cell:
    """A mean of any size: three digits of it, and as many decimals for the ends of its interval; tiny ones as 2.0e-7."""
    if measure is not None and 0 < measure.mean < TINY:
        return _cell(measure, tiny_text, True)
    size = 0.0 if measure is None or not measure.mean > 0 else math.log10(measure.mean)
    decimals = max(0, 2 - math.floor(size))
    return _cell(measure, lambda value: f"{value:,.{decimals}f}", True)


def share_cell(measure: Measure | None, interval: bool = True) -> Cell:
    """A share in per cent; whether it is near the best is decided by the largest standard error a share can have."""
    cell = _cell(measure, lambda value: f"{value:.1%}", interval)
    largest = None if measure is None or measure.used == 0 else math.sqrt(0.25 / measure.used)
    return replace(cell, error=largest)


def _cell(measure: Measure | None, written: Callable[[float], str], interval: bool) -> Cell:
    if measure is None:
        return Cell("–")
    if measure.used == 0:
        return Cell("undefined")
    # Only the sign in front becomes a minus: a power of ten is copied into programs.
    mean, low, high = (re.sub("^-", "−", written(value)) for value in (measure.mean, measure.low, measure.high))
    if not interval or measure.used == 1:
        return Cell(mean, measure.mean, error=measure.error)
    text = f"{mean} [{low}, {high}]"
    return Cell(text, measure.mean, measure.low, measure.high, measure.error)


def median_cell(values: NDArray[np.float64]) -> Cell:
    """The median of the defined values."""
    middle = float(np.median(values[~np.isnan(values)])) if (~np.isnan(values)).any() else math.nan
    if math.isnan(middle):
        return Cell("–")
    return Cell(tiny_text(middle) if 0 < abs(middle) < TINY else _three_digits(middle), middle)


def tiny_text(value: float) -> str:
    """Two digits and a power of ten.

    >>> tiny_text(2.02e-7), tiny_text(0.0)
    ('2.0e-7', '0')
    """
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}" if value else "0"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def count_cell(number: int) -> Cell:
    """A number of things."""
    return Cell(f"{number:,}", number)
