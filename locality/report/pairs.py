"""Robust models against the standard ones they are compared with, image by image: Finding I of the thesis."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from locality.report.aggregates import Measure, Model, NotMeasuredError, floats, measured, measures
from locality.report.tables.table import Cell, Column, Table, count_cell, score_cell
from locality.results.results import Results

SCORES = {"f1": "F1", "lift": "lift"}


def twins_table(results: Results) -> Table:
    """One row a pair × method: F1 and lift of both, and the mean difference over images with its interval."""
    found = measured(results)
    columns = [
        Column("standard", "standard", "text"),
        Column("robust", "robust", "text"),
        Column("method", "method", "text"),
    ]
    for key, title in SCORES.items():
        columns += [
            Column(f"{title} standard", f"{key}_standard"),
            Column(f"{title} robust", f"{key}_robust"),
            Column(f"{title} difference", f"{key}_difference", "interval"),
        ]
    columns += [Column("images", "images"), Column("undefined", "undefined")]
    rows = []
    for method in found.methods:
        part = results.rows[results.rows["method"] == method]
        changed = {score: changes(part, score, found.pairs()) for score in SCORES}
        for standard, robust in changed["f1"]:
            cells = [Cell(standard.name), Cell(robust.name), Cell(method)]
            for score, by_pair in changed.items():
                cells += [score_cell(found.scores[model.name, method, score], False) for model in (standard, robust)]
                cells.append(score_cell(by_pair.get((standard, robust))))
            change = changed["f1"][standard, robust]
            rows.append((*cells, count_cell(change.used), count_cell(change.undefined)))
    if not rows:
        raise NotMeasuredError("no robust model has its standard twin beside it")
    notes = (
        "Differences are robust − standard on the same images, with 95 % bootstrap intervals over images.",
        "Means are over all images on which that model's score is defined, differences over those where both are.",
    )
    return Table("twins", "Robust models and their standard twins", tuple(columns), tuple(rows), notes)


def changes(rows: pd.DataFrame, column: str, pairs: Sequence[tuple[Model, Model]]) -> dict[tuple[Model, Model], Measure]:
    """Robust minus standard on the images that both have, for each pair that has any where both are defined."""
    parts = {str(name): part.set_index("image_id") for name, part in rows.groupby("model", sort=False)}
    differences = {}
    for standard, robust in pairs:
        if standard.name in parts and robust.name in parts:
            one, other = parts[standard.name], parts[robust.name]
            shared = one.index[one.index.isin(other.index)]
            differences[standard, robust] = floats(other.loc[shared, column]) - floats(one.loc[shared, column])
    found = zip(differences, measures(list(differences.values())), strict=True)
    return {pair: measure for pair, measure in found if measure.used}
