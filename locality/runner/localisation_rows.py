"""Rows of the table `localisation`: of a batch's maps, and of maps that depend on neither the model nor the image."""

from __future__ import annotations

import numpy as np
import pandas as pd

from locality.results.localisation import LOCALISATION, MODEL_FREE
from locality.runner.explain_batch import Explanations
from locality.scores.localisation import box_overlaps, level_histograms
from locality.scores.model_free_maps import MODEL_FREE_MAPS


def localisation_rows(explanations: Explanations, model_name: str, seed: int) -> pd.DataFrame:
    """One row per attributed image × method or model-free map."""
    batch = explanations.attributed
    if len(batch) == 0:
        return pd.DataFrame([], columns=list(LOCALISATION))
    maps = dict(explanations.maps) | {MODEL_FREE + name: make(batch.images, seed) for name, make in MODEL_FREE_MAPS.items()}
    tables = []
    for name, values in maps.items():
        inside, outside = level_histograms(values.cpu(), batch.masks.cpu())
        columns = {
            "overlaps": box_overlaps(values, batch.boxes),
            "inside": inside.astype(np.int32),
            "outside": outside.astype(np.int32),
        }
        arrays = {column: [row.tobytes() for row in rows] for column, rows in columns.items()}
        tables.append(pd.DataFrame({"model": model_name, "image_id": batch.ids, "method": name, **arrays}))
    return pd.concat(tables, ignore_index=True)
