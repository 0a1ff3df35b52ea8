"""What could not be measured, and why: one row per fault."""

from __future__ import annotations

import numpy as np

from locality.report.aggregates import NotMeasuredError
from locality.report.tables.table import Cell, Column, Table
from locality.results.results import Results

SHOWN = {"model": "model", "unit": "unit", "image_ids": "images", "problem": "problem"}


def faults_table(results: Results) -> Table:
    """Model, unit, images and problem."""
    if not len(results.faults):
        raise NotMeasuredError("nothing failed")
    columns = tuple(Column(title, key, "text") for key, title in SHOWN.items())
    rows = tuple(tuple(Cell(_text(row[key])) for key in SHOWN) for row in results.faults.to_dict("records"))
    return Table("faults", "What could not be measured", columns, rows)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple | np.ndarray) else str(value)
