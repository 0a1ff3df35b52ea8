"""Locality: one row per model and method, and the uniform map to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.estimates import Estimate
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    BOOTSTRAP,
    MODEL_COLUMNS,
    Cell,
    Column,
    MarkNote,
    Table,
    count_cell,
    model_cells,
    per_data,
    score_cell,
)
from locality.report.views import place
from locality.results.results import Results

SHOWN = {"f1": "F1", "lift": "lift", "precision": "precision", "recall": "recall"}


def locality_table(results: Results) -> Table:
    """F1, lift, precision and recall with their intervals, and the number of undefined scores."""
    means = aggregate(results)
    if not means.scores:
        raise NotMeasuredError("locality was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("method", "method", "text"),
        *(Column(title, score, "interval") for score, title in SHOWN.items()),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    rows, groups = [], []
    for method in means.methods:
        for model in means.models:
            if (model.name, method, "f1") in means.scores:
                scores = [means.scores[model.name, method, score] for score in SHOWN]
                rows.append([*model_cells(model), Cell(method), *_score_cells(scores)])
                groups.append((model.data, method))
    views = list(dict.fromkeys(view for view, _ in means.uniform))
    for view in views:
        scores = [means.uniform[view, score] for score in SHOWN]
        title = f"uniform map{place(view, views)}"
        rows.append([Cell("–"), Cell("–"), Cell(title), *_score_cells(scores)])
        groups.append((view.data, title))  # a group of its own, so that it is never marked as the best
    notes = (
        BOOTSTRAP,
        MarkNote(f"Best of each method{per_data(model.data for model in means.models)}"),
        "Lift: 0 is the score of the same attribution values shuffled over the image, 1 is perfect.",
        "uniform map: a map of ones, independent of model and image; its F1 is 2a/(1 + a) for a box of share a.",
    )
    return Table("locality", "Locality", columns, marked(rows, groups, range(3, 7)), notes)


def _score_cells(scores: Sequence[Estimate]) -> list[Cell]:
    return [*map(score_cell, scores), count_cell(scores[0].used), count_cell(scores[0].undefined)]
