"""Accuracy and locality: one row per model."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    MODEL_COLUMNS,
    Column,
    MarkNote,
    Table,
    model_cells,
    per_data,
    score_cell,
    share_cell,
)
from locality.results.results import Results

ABSTAINED_NOTE = "abstained: share of images on which the model abstained; accuracy is correct / all images."


def overview_table(results: Results) -> Table:
    """Accuracy, abstentions if there are any, accuracy under each attack, and F1 of each method."""
    means = aggregate(results)
    if not means.scores:
        raise NotMeasuredError("locality was not measured")
    budgets = sorted({budget for _, budget in means.robust})
    abstained = [Column("abstained", "abstained")] if means.abstained else []
    columns = [*MODEL_COLUMNS, Column("accuracy", "accuracy"), *abstained]
    columns += [
        Column(f"under {budget}", f"robust {budget.attack} {budget.threat.norm} {budget.threat.radius:.4g}")
        for budget in budgets
    ]
    columns += [Column(f"F1 {method}", f"f1 {method}") for method in means.methods]
    rows = [
        [
            *model_cells(model),
            share_cell(means.accuracy.get(model.name), interval=False),
            *(share_cell(means.abstained.get(model.name), interval=False) for _ in abstained),
            *(share_cell(means.robust.get((model.name, budget)), interval=False) for budget in budgets),
            *(score_cell(means.scores.get((model.name, method, "f1")), interval=False) for method in means.methods),
        ]
        for model in means.models
    ]
    data = [model.data for model in means.models]
    # Abstaining more often is neither better nor worse.
    compared = [index for index, column in enumerate(columns) if column.type != "text" and column not in abstained]
    notes: list[str | MarkNote] = [MarkNote(f"Best of each column{per_data(data)}")]
    notes += [ABSTAINED_NOTE] if abstained else []
    return Table("overview", "Accuracy and locality", tuple(columns), marked(rows, data, compared), tuple(notes))
