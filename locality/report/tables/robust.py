"""Robust accuracy: one row per model and attack."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    MODEL_COLUMNS,
    WILSON,
    Cell,
    Column,
    MarkNote,
    Table,
    count_cell,
    model_cells,
    per_data,
    share_cell,
)
from locality.results.results import Results


def robust_table(results: Results) -> Table:
    """Accuracy without and under attack."""
    means = aggregate(results)
    if not means.robust:
        raise NotMeasuredError("accuracy under attack was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("attack", "attack", "text"),
        Column("accuracy", "clean", "interval"),
        Column("under attack", "robust", "interval"),
        Column("images", "images"),
    )
    rows, groups = [], []
    for budget in sorted({budget for _, budget in means.robust}):
        for model in means.models:
            if (model.name, budget) in means.robust:
                clean, robust = means.clean[model.name, budget], means.robust[model.name, budget]
                accuracies = [share_cell(clean), share_cell(robust)]
                rows.append([*model_cells(model), Cell(str(budget)), *accuracies, count_cell(robust.used)])
                groups.append((model.data, budget))
    best = f"Best of each attack{per_data(data for data, _ in groups)}"
    note = MarkNote(best, ", with the largest possible standard error, √(0.25/n)")
    return Table("robust", "Robust accuracy", columns, marked(rows, groups, (3, 4)), (WILSON, note), main="robust")
