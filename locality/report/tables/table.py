"""Table, Column and Cell; marks for the best value and for values statistically tied with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from locality.errors import ArgumentError
from locality.report.estimates import Estimate
from locality.report.models import Model

Mark = Literal["", "best", "tied"]
ColumnType = Literal["text", "number", "interval"]
TINY = 1e-4  # smaller numbers are printed with a power of ten
BOOTSTRAP = "Intervals are 95 % bootstrap intervals over images."
WILSON = "Intervals are 95 % Wilson intervals."


@dataclass(frozen=True, slots=True)
class Cell:
    """A field: its text, and its number if it has one."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None  # decides whether it is tied with the best
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, its key in CSV files and what it holds."""

    title: str
    key: str
    type: ColumnType = "number"


MODEL_COLUMNS = (Column("model", "model", "text"), Column("training", "training", "text"))


@dataclass(frozen=True, slots=True)
class MarkNote:
    """The note about marks. How the best value and those tied with it look depends on the format."""

    best: str  # what is best of what
    rule: str = ""  # more about the standard errors

    def text(self, best: str = "bold", tied: str = "underlined") -> str:
        """The sentence for a format in which marks look like that.

        >>> MarkNote("Best of each method").text()
        'Best of each method bold; underlined where standard errors overlap.'
        """
        return f"{self.best} {best}; {tied} where standard errors overlap{self.rule}."


@dataclass(frozen=True)
class Table:
    """A table, independent of the format that `formats` writes it in. `notes` are printed below it.

    `main` is the key of the column that the table is for, which a narrow terminal shows longest; "": its first number.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str | MarkNote, ...] = ()
    main: str = ""

    def __post_init__(self) -> None:
        if self.main and self.main not in {column.key for column in self.columns}:
            raise ArgumentError("main", "the key of a column", self.main)

    def hidden_first(self) -> list[int]:
        """Indices of columns in the order in which a narrow terminal hides them, without the one that the table is for."""
        numbers = [index for index, column in enumerate(self.columns) if column.type != "text"]
        main = next((index for index in numbers if self.columns[index].key == self.main), numbers[0] if numbers else None)
        training = [index for index, column in enumerate(self.columns) if column.key == "training"]
        return [*training, *(index for index in reversed(numbers) if index != main)]

    def note_texts(self, best: str = "bold", tied: str = "underlined") -> list[str]:
        """The notes for a format in which marks look like that."""
        return [note if isinstance(note, str) else note.text(best, tied) for note in self.notes]


def per_data(data: Iterable[str], words: str = " and") -> str:
    """Says that each data set has its own best, where there are several: two bests in a column would look like an error."""
    return f"{words} data set" if len(set(data)) > 1 else ""


def model_cells(model: Model) -> list[Cell]:
    """Name and training of a model, under MODEL_COLUMNS."""
    return [Cell(model.name), Cell(model.training_text)]


def score_cell(mean: Estimate | None, interval: bool = True) -> Cell:
    """A mean with three decimals."""
    return _cell(mean, lambda value: f"{round(value, 3) + 0.0:.3f}", interval)  # + 0.0: no minus sign before 0.000


def number_cell(mean: Estimate | None) -> Cell:
    """A mean of any size with three digits, and as many decimals for its interval; tiny ones as 2.0e-7."""
    if mean is not None and 0 < abs(mean.mean) < TINY:
        return _cell(mean, tiny_text, True)
    size = 0.0 if mean is None or not abs(mean.mean) > 0 else math.log10(abs(mean.mean))
    decimals = max(0, 2 - math.floor(size))
    return _cell(mean, lambda value: f"{round(value, decimals) + 0.0:,.{decimals}f}", True)


def share_cell(share: Estimate | None, interval: bool = True) -> Cell:
    """A share in per cent. It is tied with the best by the largest standard error that a share can have, √(0.25/n)."""
    cell = _cell(share, lambda value: f"{value:.1%}", interval)
    largest = None if share is None or share.used == 0 else math.sqrt(0.25 / share.used)
    return replace(cell, standard_error=largest)


def median_cell(values: NDArray[np.float64]) -> Cell:
    """The median of the defined values."""
    middle = float(np.median(values[~np.isnan(values)])) if (~np.isnan(values)).any() else math.nan
    if math.isnan(middle):
        return Cell("–")
    return Cell(tiny_text(middle) if 0 < abs(middle) < TINY else _three_digits(middle), middle)


def count_cell(number: int) -> Cell:
    """A count."""
    return Cell(f"{number:,}", number)


def tiny_text(value: float) -> str:
    """Two digits and a power of ten.

    >>> tiny_text(2.02e-7), tiny_text(0.0)
    ('2.0e-7', '0')
    """
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}" if value else "0"


def _cell(mean: Estimate | None, written: Callable[[float], str], interval: bool) -> Cell:
    if mean is None:
        return Cell("–")
    if mean.used == 0:
        return Cell("undefined")
    # Only the sign in front becomes a minus: a power of ten is copied into programs.
    middle, low, high = (re.sub("^-", "−", written(value)) for value in (mean.mean, mean.low, mean.high))
    if not interval or mean.used == 1:
        return Cell(middle, mean.mean, standard_error=mean.standard_error)
    return Cell(f"{middle} [{low}, {high}]", mean.mean, mean.low, mean.high, mean.standard_error)


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
