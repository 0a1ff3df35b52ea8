"""Scores against the model: deletion, insertion and ROAD; random logit and max-sensitivity. One row per model and method."""

from __future__ import annotations

from collections.abc import Sequence

from locality.intervals import UNBOUNDED
from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import estimates, floats
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
    score_cell,
)
from locality.results.results import Results
from locality.results.schema import SUPPORTS

# Title and key; small is good where the title says so with an arrow.
REMOVAL = (
    ("deletion ↓", "deletion"),
    ("chance", "deletion_chance"),
    ("insertion ↑", "insertion"),
    ("chance", "insertion_chance"),
    ("ROAD ↑", "road"),
    ("MoRF ↓", "road_most"),
    ("LeRF ↑", "road_least"),
)
SENSITIVITY = (
    ("random logit ↓", "random_logit"),
    ("chance", "random_logit_chance"),
    ("class cosine", "class_cosine"),
    ("max-sensitivity ↓", "max_sensitivity"),
    ("chance", "max_sensitivity_chance"),
)


def removal_table(results: Results) -> Table:
    """Areas under deletion and insertion curves beside those of a random order, and ROAD, whose chance level is 0."""
    note = "Chance: a random order of the pixels; that of ROAD is 0. ROAD: LeRF − MoRF, shares of steps that keep the class."
    return _scores_table(results, "removal", "Removal of pixels in the order of a map", REMOVAL, note)


def sensitivity_table(results: Results) -> Table:
    """Similarity with the map of another class, and the largest change under small noise, beside shuffled maps."""
    note = "Chance: the same values shuffled. Random logit: SSIM with the map of another class."
    return _scores_table(results, "sensitivity", "Sensitivity of maps to class and noise", SENSITIVITY, note)


def _scores_table(results: Results, name: str, title: str, scores: Sequence[tuple[str, str]], note: str) -> Table:
    if name not in results:
        raise NotMeasuredError(f"{name} was not measured")
    parts = dict(iter(results[name].groupby(["model", "method"], sort=False)))
    models = {model.name: model for model in models_of(results)}
    order = list(models)
    keys = sorted(parts, key=lambda key: order.index(key[0]))
    supports = [SUPPORTS.get(column, UNBOUNDED) for _, column in scores]
    means = {key: estimates([floats(parts[key][column]) for _, column in scores], supports=supports) for key in keys}
    rows = [
        [
            *model_cells(models[key[0]]),
            Cell(str(key[1])),
            *(
                score_cell(mean, interval="chance" not in column)
                for mean, (_, column) in zip(means[key], scores, strict=True)
            ),
            count_cell(means[key][0].used),
            count_cell(max(mean.undefined for mean in means[key])),
        ]
        for key in keys
    ]
    first = len(MODEL_COLUMNS) + 1
    ranked = [first + index for index, (text, _) in enumerate(scores) if text[-1] in "↓↑"]
    lower = [index for index in ranked if scores[index - first][0].endswith("↓")]
    columns = (
        *MODEL_COLUMNS,
        Column("method", "method", "text"),
        *(Column(text, column, "number" if "chance" in column else "interval") for text, column in scores),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    notes = (BOOTSTRAP, note, MarkNote("Best method of each model"))
    return Table(name, title, columns, marked(rows, [key[0] for key in keys], ranked, lower=lower), notes)
