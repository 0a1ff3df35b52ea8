"""The data of the report's table image by image, as JSON."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from locality.report.aggregates import abstentions, aggregate, correct
from locality.report.estimates import boundary_distances, floats
from locality.results.results import Results

MOST_ROWS = 20_000  # of one page
SCORES = {"f1": "F1", "lift": "lift"}
DECISIONS = {0.0: "wrong", 1.0: "correct"}


def image_table(results: Results) -> dict[str, Any] | None:
    """One row per image × model: the decision, the boundary distance, F1 and lift by method; None without locality.

    `pictures` has the place of each image of the gallery, by id.
    """
    methods = aggregate(results).methods
    if not methods:
        return None
    rows = results.rows.drop_duplicates(["model", "image_id", "method"])
    keys = pd.MultiIndex.from_frame(rows[["image_id", "model"]])
    scores = {
        (method, score): dict(zip(keys[part], floats(rows.loc[part, score]), strict=True))
        for method in methods
        for part in [(rows["method"] == method).to_numpy()]
        for score in SCORES
    }
    first = rows.drop_duplicates(["model", "image_id"])
    decided = [
        "abstained" if gone else DECISIONS.get(right, "")
        for gone, right in zip(abstentions(first), correct(first), strict=True)
    ]
    distances = boundary_distances(first)
    table = [
        [image, model, decision, _number(distance), *(_number(own.get((image, model), math.nan)) for own in scores.values())]
        for image, model, decision, distance in zip(first["image_id"], first["model"], decided, distances, strict=True)
    ]
    return {
        "columns": ["image", "model", "prediction", "distance", *(f"{SCORES[score]} {method}" for method, score in scores)],
        "text": 3,  # columns of text; the others are numbers
        "rows": table[:MOST_ROWS],
        "omitted": max(0, len(table) - MOST_ROWS),
        "pictures": {image.image_id: place for place, image in enumerate(results.gallery)},
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) or math.isinf(value) else round(float(value), 4)
