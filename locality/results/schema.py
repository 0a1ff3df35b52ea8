"""Schemas of result tables: each column's name and type, in order.

A measurement declares the schemas of its own tables. The tables that every benchmark has are here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import UnionType

# str, int, float, bool or bytes; `| None` where a value may be missing. An undefined float is nan.
Schema = Mapping[str, type | UnionType]

SCORES = ("precision", "recall", "f1", "lift")
# The range of a score, where it has one; intervals of means end there.
SUPPORTS = {
    "precision": (0.0, 1.0),
    "recall": (0.0, 1.0),
    "f1": (0.0, 1.0),
    "lift": (-math.inf, 1.0),
    "distance": (0.0, math.inf),
    **dict.fromkeys(("deletion", "insertion", "road_most", "road_least"), (0.0, 1.0)),
    **dict.fromkeys(("road", "random_logit", "class_cosine"), (-1.0, 1.0)),
    "max_sensitivity": (0.0, math.inf),
}

# One row per model × image × method.
ROWS: Schema = {
    "model": str,
    "image_id": str,
    "label": int,  # index of the model's class; −1 where the model has no such class
    "prediction": int,  # −1 for an abstention
    "target": int,  # the class attributed; −1 where nothing was
    "correct": bool | None,  # missing where the model does not know the label
    "abstained": bool,
    "method": str,
    "precision": float,
    "recall": float,
    "f1": float,
    "lift": float,
    "box_share": float,
    "distance": float,
    "found": bool,
    "crossed_to": int,  # −1 where no boundary was found
}
# One row per model × image × map that depends on neither the model nor the image: `scores.model_free_maps`.
MODEL_FREE: Schema = {
    "model": str,
    "image_id": str,
    "method": str,  # the name of the map
    **dict.fromkeys(SCORES, float),
}
# One row per model.
MODELS: Schema = {
    "model": str,
    "family": str,  # the architecture's short name: models of one family are drawn alike
    "training": str,  # id of a training: "standard", "at", "trades", …; "unknown"
    "kind": str,  # "standard", "robust", "certified", "random" or "unknown"
    "norm": str | None,  # of the threat trained against
    "epsilon": float,
    "counterpart": str | None,  # the standard model it is compared with; None for a standard model
    "data": str,
    "weights_sha256": str,
}
# One row per thing that could not be measured.
FAULTS: Schema = {"model": str, "unit": str, "image_ids": str, "problem": str}

CORE: Mapping[str, Schema] = {"rows": ROWS, "models": MODELS, "faults": FAULTS}
