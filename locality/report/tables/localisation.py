"""MaxBoxAccV2 and PxAP, one row per model and method, and per model-free map."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError
from locality.report.models import models_of
from locality.report.tables.table import MODEL_COLUMNS, Cell, Column, Table, count_cell, model_cells
from locality.results.localisation import pooled_scores, region_share
from locality.results.results import Results
from locality.statistics import Summary


def localisation_table(results: Results) -> Table:
    """Both scores belong to all images together; their intervals are those of the basic bootstrap."""
    if "localisation" not in results:
        raise NotMeasuredError("localisation was not measured")
    table = results["localisation"]
    columns = (
        *MODEL_COLUMNS,
        Column("method", "method", "text"),
        Column("MaxBoxAccV2", "max_box_acc_v2", "interval"),
        Column("PxAP", "px_ap", "interval"),
        Column("chance", "px_ap_chance"),
        Column("images", "images"),
        Column("no box", "undefined"),
    )
    rows = []
    for model in models_of(results):
        own = table[table["model"] == model.name]
        for method, scores in pooled_scores(own, ["max_box_acc_v2", "px_ap"]).items():
            boxes, pixels = scores["max_box_acc_v2"], scores["px_ap"]
            share = region_share(own[own["method"] == method])
            cells = [Cell(method), _cell(boxes), _cell(pixels), _number(share), count_cell(pixels.used)]
            rows.append((*model_cells(model), *cells, count_cell(boxes.undefined)))
    notes = (
        "Intervals are 95 % basic bootstrap intervals over images; the best threshold is chosen anew in each resample.",
        "Chance of PxAP is the share of pixels inside; that of MaxBoxAccV2 is the row of the random map.",
    )
    return Table("localisation", "Weakly supervised localisation", columns, tuple(rows), notes)


def _cell(value: Summary) -> Cell:
    if value.used == 0 or value.mean != value.mean:
        return Cell("undefined")
    if value.used == 1:
        return Cell(f"{value.mean:.3f}", value.mean)
    return Cell(f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]", value.mean, value.low, value.high)


def _number(value: float) -> Cell:
    return Cell(f"{value:.3f}", value) if value == value else Cell("undefined")
