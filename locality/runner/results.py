"""What a benchmark leaves behind, as tables: what `locality table`, `figures` and `report` read, and nothing else.

Each table is a pandas DataFrame with the columns below; one that was not measured is empty. Undefined is `nan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.runner.evaluate import COLUMNS

# One row per model.
MODEL_COLUMNS = (
    "model",
    "family",  # the architecture's short name: models of one family are drawn alike
    "training",  # "standard", "at", "fast_at", "trades", "random"
    "norm",  # of the attack trained against; None
    "epsilon",
    "twin",  # the standard model it is compared with; None for a standard model
    "data",
    "weights_sha256",
)
# One row per model × image × budget: accuracy under attack.
ROBUST_COLUMNS = ("model", "image_id", "attack", "norm", "epsilon", "clean", "robust")
# One row per model × image × pair of methods, "SM-BSM", "IG-BIG" and "IG-BIG integral".
SIMILARITY_COLUMNS = ("model", "image_id", "pair", "l2", "cosine", "unit_l2")
# One row per model × image × method × noise.
FAITHFULNESS_COLUMNS = ("model", "image_id", "method", "noise", "raw", "normalised", "scaled", "error", "gap")
# One row per model × image × method × step of re-randomisation.
SANITY_COLUMNS = ("model", "image_id", "method", "step", "layers", "layer", "spearman", "ssim")
# One row per model × image × search.
SEARCH_COLUMNS = ("model", "image_id", "search", "distance", "found", "gradients", "forwards", "seconds")
# One row per thing that could not be measured.
FAULT_COLUMNS = ("model", "unit", "image_ids", "problem")


@dataclass(frozen=True, eq=False)
class GalleryImage:
    """One image of the gallery: its pixels, its boxes, and the maps of each model and method."""

    image_id: str
    image: NDArray[np.uint8]  # H×W×3, as the model sees it
    boxes: tuple[tuple[float, float, float, float], ...]
    label: str  # the class's name
    maps: dict[tuple[str, str], NDArray[np.float16]]  # (model, method) ↦ H×W, summed over channels, scaled to a maximum of 1
    predictions: dict[str, str]  # model ↦ the predicted class's name


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that one suite measured."""

    name: str
    rows: pd.DataFrame  # COLUMNS of `evaluate`: one row per model × image × method
    models: pd.DataFrame
    robust: pd.DataFrame
    similarity: pd.DataFrame
    faithfulness: pd.DataFrame
    sanity: pd.DataFrame
    searches: pd.DataFrame
    faults: pd.DataFrame
    gallery: tuple[GalleryImage, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)


TABLES: dict[str, tuple[str, ...]] = {
    "rows": COLUMNS,
    "models": MODEL_COLUMNS,
    "robust": ROBUST_COLUMNS,
    "similarity": SIMILARITY_COLUMNS,
    "faithfulness": FAITHFULNESS_COLUMNS,
    "sanity": SANITY_COLUMNS,
    "searches": SEARCH_COLUMNS,
    "faults": FAULT_COLUMNS,
}


def empty_table(name: str) -> pd.DataFrame:
    """A table with the right columns and no rows."""
    return pd.DataFrame({column: pd.Series(dtype=object) for column in TABLES[name]})


def unfinished(results: Results) -> tuple[int, int] | None:
    """How many units of work are measured, and of how many, where some are still to come; else None."""
    units = results.provenance.get("units")
    if not isinstance(units, dict) or "planned" not in units:
        return None
    done = int(units.get("finished", 0)) + int(units.get("with faults", 0))
    return (done, int(units["planned"])) if done < int(units["planned"]) else None


def of_data(results: Results, data: str) -> Results:
    """What was measured on one of several data sets: boxes of another size make another F1, whatever the model."""
    known = list(dict.fromkeys(results.models["data"]))
    models = set(results.models.loc[results.models["data"] == data, "model"])
    if not models:
        raise ValueError(f"`data` must be one of {', '.join(map(str, known)) or 'none'}, got {data!r}")
    tables = {name: getattr(results, name) for name in TABLES}
    kept = {name: table[table["model"].isin(models)].reset_index(drop=True) for name, table in tables.items()}
    gallery = tuple(image for image in results.gallery if {model for model, _ in image.maps} & models)
    return replace(results, gallery=gallery, **kept)
