"""Verified accuracy: one row per model, certificate and radius."""

from __future__ import annotations

import math

from locality.certified.certificate import radius_text
from locality.report.certified import CertifiedImages, certificates
from locality.report.estimates import share_estimate
from locality.report.models import models_of
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
from locality.types import NORMS, Norm

NOTES = (
    "verified: decided correctly, and provably so at every point within the radius. rejected: no certificate at the radius.",
    "violations: images that are verified but broken by an attack, correct under attack but not without, or whose boundary "
    "point lies inside the certified radius; 0 unless a certificate is false.",
    "radius / distance: median over images of the certified radius over the distance of the boundary point that was found; "
    "the nearest one lies between the two.",
    "K: upper bound on the largest Lipschitz constant of a margin.",
)


def certified_table(results: Results) -> Table:
    """Clean and verified accuracy, accuracy under attack in the same ball, and whether they agree image by image."""
    known = certificates(results)
    columns = (
        *MODEL_COLUMNS,
        Column("certificate", "certificate", "text"),
        Column("radius", "radius", "text"),
        Column("clean", "clean", "interval"),
        Column("verified", "verified", "interval"),
        Column("under attack", "robust"),
        Column("rejected", "rejected"),
        Column("wrong but certified", "wrong but certified"),
        Column("violations", "violations"),
        Column("radius / distance", "radius over distance"),
        Column("K", "lipschitz"),
        Column("images", "images"),
    )
    rows, groups = [], []
    for model in models_of(results):
        for one in (own for own in known if own.model == model.name):
            for radius in one.radii:
                rows.append([*model_cells(model), *_cells(results, one, radius)])
                groups.append((model.data, one.norm, radius))
    best = MarkNote(
        f"Best of each radius{per_data(data for data, *_ in groups)}", ", with the largest possible standard error"
    )
    return Table("certified", "Verified accuracy", columns, marked(rows, groups, (4, 5)), (WILSON, *NOTES, best))


def _cells(results: Results, one: CertifiedImages, radius: float) -> list[Cell]:
    norm: Norm = "l2" if one.norm == "l2" else "linf"
    violations, tightness = one.violations(results), one.tightness(results)
    return [
        Cell(one.by),
        Cell(f"{NORMS[norm]} {radius_text(radius)}"),
        share_cell(share_estimate(one.correct)),
        share_cell(one.verified(radius)),
        share_cell(one.attacked(results, radius), interval=False),
        share_cell(one.rejected(radius), interval=False),
        count_cell(one.wrong(radius)),
        Cell("–") if violations is None else count_cell(violations),
        Cell("–") if math.isnan(tightness) else Cell(f"{tightness:.1%}", tightness),
        Cell("–") if math.isnan(one.lipschitz) else Cell(f"{one.lipschitz:.3g}", one.lipschitz),
        count_cell(one.verified(radius).used),
    ]
