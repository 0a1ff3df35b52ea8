"""A table of results that has no layout of its own, such as that of a measurement added by a user."""

from __future__ import annotations

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import estimates, floats, share_estimate
from locality.report.models import models_of
from locality.report.tables.table import (
    BOOTSTRAP,
    MODEL_COLUMNS,
    WILSON,
    Cell,
    Column,
    Table,
    count_cell,
    model_cells,
    number_cell,
    share_cell,
)
from locality.results.results import Results

KEYS = ("model", "image_id")


def generic_table(results: Results, name: str) -> Table:
    """The mean of every number with its interval, one row per model and combination of the text columns."""
    if name not in results:
        raise NotMeasuredError(f"{name} was not measured")
    table = results[name]
    shares = [str(column) for column in table.columns if is_bool_dtype(table[column])]
    numbers = [str(column) for column in table.columns if is_numeric_dtype(table[column]) and column not in shares]
    texts = [column for column in _texts(table) if column not in KEYS]
    models = {model.name: model for model in models_of(results)}
    parts = dict(iter(table.groupby(["model", *texts], sort=False, dropna=False)))
    keys = sorted(parts, key=lambda key: list(models).index(key[0]))
    means = {column: estimates([floats(parts[key][column]) for key in keys]) for column in numbers}
    rows = []
    for index, key in enumerate(keys):
        part = parts[key]
        cells = [*model_cells(models[key[0]]), *(Cell(str(value)) for value in key[1:])]
        cells += [number_cell(means[column][index]) for column in numbers]
        cells += [share_cell(share_estimate(floats(part[column]))) for column in shares]
        rows.append((*cells, count_cell(part["image_id"].nunique() if "image_id" in part else len(part))))
    columns = (
        *MODEL_COLUMNS,
        *(Column(column.replace("_", " "), column, "text") for column in texts),
        *(Column(column.replace("_", " "), column, "interval") for column in (*numbers, *shares)),
        Column("images", "images"),
    )
    notes = [*([BOOTSTRAP] if numbers else []), *([_shares_note(shares, bool(numbers))] if shares else [])]
    return Table(name, name.replace("_", " ").capitalize(), columns, tuple(rows), tuple(notes))


def _texts(table: pd.DataFrame) -> list[str]:
    """Columns of text. Bytes, which a table cannot show, are left out."""
    texts = []
    for column in table.columns:
        values = table[column].dropna()
        if len(values) and isinstance(values.iloc[0], str):
            texts.append(str(column))
    return texts


def _shares_note(shares: list[str], others: bool) -> str:
    return (
        f"Those of {', '.join(share.replace('_', ' ') for share in shares)} are 95 % Wilson intervals." if others else WILSON
    )
