"""Robust and certified models beside their standard counterparts: one row per pair and method."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.models import KINDS
from locality.report.pairs import NO_PAIRS
from locality.report.tables.table import Cell, Column, Table, count_cell, score_cell
from locality.results.results import Results

SHOWN = {"f1": "F1", "lift": "lift"}


def pairs_table(results: Results) -> Table:
    """F1 and lift of both models, and the mean difference over images with its interval."""
    means = aggregate(results)
    pairs = means.pairs()
    present = {model.kind for _, model in pairs}
    kind = " or ".join(kind for kind in KINDS if kind in present)
    columns = [Column("standard", "standard", "text"), Column(kind, "compared", "text"), Column("method", "method", "text")]
    for score, title in SHOWN.items():
        columns += [
            Column(f"{title} standard", f"{score}_standard"),
            Column(f"{title} {kind}", f"{score}_compared"),
            Column(f"{title} difference", f"{score}_difference", "interval"),
        ]
    columns += [Column("images", "images"), Column("undefined", "undefined")]
    rows = []
    for method in means.methods:
        for pair in pairs:
            difference = means.differences.get((pair, method, "f1"))
            if difference is None:
                continue
            cells = [*(Cell(model.name) for model in pair), Cell(method)]
            for score in SHOWN:
                cells += [score_cell(means.scores[model.name, method, score], interval=False) for model in pair]
                cells.append(score_cell(means.differences.get((pair, method, score))))
            rows.append((*cells, count_cell(difference.used), count_cell(difference.undefined)))
    if not rows:
        raise NotMeasuredError(NO_PAIRS)
    notes = (
        f"Differences are {kind} − standard on the same images, with 95 % bootstrap intervals over images.",
        "Means are over all images where the model's score is defined, differences over those where both are.",
    )
    title = f"{kind.capitalize()} models and their standard counterparts"
    return Table("pairs", title, tuple(columns), tuple(rows), notes, main="f1_difference")
