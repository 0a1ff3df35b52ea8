"""Faithfulness: infidelity and completeness gap, one row per model, noise and method."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import estimates, floats
from locality.report.models import models_of
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    MODEL_COLUMNS,
    Cell,
    Column,
    MarkNote,
    Table,
    count_cell,
    median_cell,
    model_cells,
    number_cell,
)
from locality.results.results import Results


def faithfulness_table(results: Results) -> Table:
    """Median INFD and completeness gap, and mean INFD relative to the variance of the output."""
    if "faithfulness" not in results:
        raise NotMeasuredError("faithfulness was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("noise", "noise", "text"),
        Column("method", "method", "text"),
        Column("INFD", "infidelity_median"),
        Column("INFD / variance", "normalised", "interval"),
        Column("gap", "gap_median"),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    table = results["faithfulness"]
    parts = dict(iter(table.groupby(["model", "noise", "method"], sort=False)))
    models = {model.name: model for model in models_of(results)}
    order, noises = list(models), list(table["noise"].unique())
    keys = sorted(parts, key=lambda key: (order.index(key[0]), noises.index(key[1])))
    rows, groups = [], []
    for key, mean in zip(keys, estimates([floats(parts[key]["normalised"]) for key in keys]), strict=True):
        name, noise, method = key
        infidelity, gap = (median_cell(floats(parts[key][column])) for column in ("raw", "gap"))
        cells = [Cell(str(noise)), Cell(str(method)), infidelity, number_cell(mean), gap]
        rows.append([*model_cells(models[name]), *cells, count_cell(mean.used), count_cell(mean.undefined)])
        groups.append((name, noise))
    notes = (
        "INFD and gap: medians over images. INFD / variance: mean and 95 % bootstrap interval. Smaller is better.",
        MarkNote("Best method of each model and noise"),
    )
    return Table("faithfulness", "Faithfulness", columns, marked(rows, groups, (5,), lower=(5,)), notes)
