"""Table B.2: success, distance and cost of boundary searches, one row per model and search."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import boundary_distances, estimates, floats
from locality.report.models import models_of
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
    number_cell,
)
from locality.results.results import Results


def searches_table(results: Results) -> Table:
    """Distances of all images with a boundary, and of those where every search found one."""
    if "searches" not in results:
        raise NotMeasuredError("boundary searches were not compared")
    columns = (
        *MODEL_COLUMNS,
        Column("search", "search", "text"),
        Column("ℓ2 distance", "distance", "interval"),
        Column("on common images", "distance_common", "interval"),
        Column("success", "success"),
        Column("gradients", "gradients"),
        Column("forwards", "forwards"),
        Column("s per image", "seconds"),
        Column("images", "images"),
    )
    rows: list[list[Cell]] = []
    groups: list[Hashable] = []
    table = results["searches"]
    for model in models_of(results):
        own = table[table["model"] == model.name]
        parts = {str(name): part for name, part in own.groupby("search", sort=False)}
        # A search that fails on difficult images has a smaller mean because of it: compare where all succeed, too.
        successes = [set(part["image_id"][floats(part["found"]) == 1]) for part in parts.values()]
        common = set.intersection(*successes) if successes else set()
        distances = estimates([boundary_distances(part) for part in parts.values()])
        shared = estimates([boundary_distances(part[part["image_id"].isin(common)]) for part in parts.values()])
        for (name, part), distance, same in zip(parts.items(), distances, shared, strict=True):
            success, gradients, forwards, seconds = (
                float(np.nanmean(floats(part[key]))) for key in ("found", "gradients", "forwards", "seconds")
            )
            rows.append(
                [
                    *model_cells(model),
                    Cell(name),
                    number_cell(distance),
                    number_cell(same),
                    Cell(f"{success:.1%}", success),
                    Cell(f"{gradients:,.0f}", gradients),
                    Cell(f"{forwards:,.0f}", forwards),
                    Cell(f"{seconds:.3g}", seconds),
                    count_cell(len(part)),
                ]
            )
            groups.append(model.name)
    notes = (
        BOOTSTRAP,
        "Distances are means over images where a boundary was found; common images are those where every search found one.",
        "Gradients and forwards are counted per image.",
        MarkNote("Smallest mean distance on common images"),
    )
    return Table("searches", "Boundary searches (Table B.2)", columns, marked(rows, groups, (4,), lower=(4,)), notes)
