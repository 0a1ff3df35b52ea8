"""Curvature: one row per model, with the weight-curvature index, the top layer's trace and the robust gap."""

from __future__ import annotations

from dataclasses import replace

from locality.report.curvature import Curved, curvatures
from locality.report.models import models_of
from locality.report.tables.table import MODEL_COLUMNS, Cell, Column, Table, count_cell, model_cells, number_cell, score_cell
from locality.results.results import Results

NOTES = (
    "WCI = Σ ‖W‖ √trace over the layers; its interval is that of random probes and says nothing about other images.",
    "TrH: the top layer's trace. Robust loss: cross-entropy of the attacked training images.",
    "Gaps are test − train under attack. Intervals of TrH, loss and gaps are 95 % intervals over images.",
)
EXACT = "Exact traces have no such interval."
CLIPPED = "Negative traces count as 0: where most are, WCI says nothing."
FLAT = "A model that is wrong with confidence is flat, too: compare WCI and TrH of models with similar losses under attack."


def curvature_table(results: Results) -> Table:
    """WCI, its bound, TrH, and gaps of loss and error."""
    curved = curvatures(results)
    columns = (
        *MODEL_COLUMNS,
        Column("WCI", "wci", "interval"),
        Column("upper", "upper"),
        Column("TrH", "trh", "interval"),
        Column("robust loss", "robust loss", "interval"),
        Column("gap of the loss", "loss gap", "interval"),
        Column("gap of the error", "error gap", "interval"),
        Column("traces", "traces", "text"),
        Column("negative", "negative"),
        Column("images", "images"),
    )
    rows = []
    for model in models_of(results):
        if model.name in curved:
            one = curved[model.name]
            cells = [_index_cell(one), Cell(f"{one.upper:.4g}", one.upper), number_cell(one.top_trace)]
            cells += [number_cell(one.train_loss), score_cell(one.loss_gap), score_cell(one.error_gap)]
            cells += [Cell(one.method), Cell(f"{one.clipped} of {one.layers}", one.clipped), count_cell(one.images)]
            rows.append((*model_cells(model), *cells))
    notes = [*dict.fromkeys(f"Attack: {one.threat}, PGD with {one.steps} steps." for one in curved.values()), *NOTES]
    notes += [EXACT] if any(one.method == "exact" for one in curved.values()) else []
    notes += [CLIPPED] if any(one.clipped for one in curved.values()) else []
    notes.append(FLAT)
    return Table("curvature", "Curvature and robust gap", columns, tuple(rows), tuple(notes))


def _index_cell(one: Curved) -> Cell:
    """WCI with the interval of its probes, if there is one."""
    cell = number_cell(one.index)
    text = f"{one.index.mean:.4g}"
    if one.method == "exact" or one.index.standard_error == 0:
        return Cell(text, one.index.mean)
    return replace(cell, text=text) if cell.low is None else cell
