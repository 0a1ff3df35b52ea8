"""Table 3.1: distance between the map of a method and that of its boundary-based counterpart, one row per model."""

from __future__ import annotations

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import estimates, floats
from locality.report.models import models_of
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    BOOTSTRAP,
    MODEL_COLUMNS,
    Column,
    MarkNote,
    Table,
    count_cell,
    model_cells,
    number_cell,
    per_data,
    score_cell,
)
from locality.results.results import Results


def similarity_table(results: Results) -> Table:
    """ℓ2 distance and cosine of each pair of methods."""
    if "similarity" not in results:
        raise NotMeasuredError("similarity of attributions was not measured")
    table, models = results["similarity"], models_of(results)
    pairs = [str(pair) for pair in table["pair"].unique()]
    parts = dict(iter(table.groupby(["model", "pair"], sort=False)))
    keys = [(model.name, pair) for model in models for pair in pairs if (model.name, pair) in parts]
    distances = dict(zip(keys, estimates([floats(parts[key]["l2"]) for key in keys]), strict=True))
    cosines = dict(zip(keys, estimates([floats(parts[key]["cosine"]) for key in keys]), strict=True))
    columns = [*MODEL_COLUMNS]
    columns += [Column(f"{pair_title(pair)} ℓ2", f"{pair} l2", "interval") for pair in pairs]
    columns += [Column(f"{pair_title(pair)} cosine", f"{pair} cosine") for pair in pairs]
    columns += [Column("images", "images"), Column("undefined", "undefined")]
    rows, groups = [], []
    for model in models:
        own = [distances[model.name, pair] for pair in pairs if (model.name, pair) in distances]
        if own:
            cells = [number_cell(distances.get((model.name, pair))) for pair in pairs]
            cells += [score_cell(cosines.get((model.name, pair)), interval=False) for pair in pairs]
            counts = [count_cell(max(mean.used for mean in own)), count_cell(max(mean.undefined for mean in own))]
            rows.append([*model_cells(model), *cells, *counts])
            groups.append(model.data)
    first, last = len(MODEL_COLUMNS), len(MODEL_COLUMNS) + len(pairs)
    rows_marked = marked(rows, groups, range(first, last + len(pairs)), lower=range(first, last))
    notes = (
        BOOTSTRAP,
        MarkNote(f"Smallest distance and largest cosine{per_data(groups, ' of each')}"),
        "The ℓ2 distance grows with the size of a model's gradients; the cosine does not.",
    )
    return Table("similarity", "Similarity of attributions (Table 3.1)", tuple(columns), rows_marked, notes)


def pair_title(pair: str) -> str:
    """The pair with a dash between the methods.

    >>> pair_title("IG-BIG integral")
    'IG–BIG integral'
    """
    return pair.replace("SM-BSM", "SM–BSM").replace("IG-BIG", "IG–BIG")
