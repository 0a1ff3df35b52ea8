"""What rows say together: a model's scores with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from locality.intervals import UNBOUNDED
from locality.results.localisation import MODEL_FREE
from locality.results.schema import ROWS, SCORES, SUPPORTS
from locality.runner.region_summary import RegionSummary, region_summary
from locality.runner.summary_json import defined_number, summary_json
from locality.statistics import Summary, share, summary

if TYPE_CHECKING:
    from locality.runner.explain_batch import Settings
    from locality.types import Batch

Scores = dict[str, dict[str, Summary]]  # method ↦ score ↦ summary


@dataclass(frozen=True)
class ModelSummary:
    """One model on one data set."""

    images: int
    accuracy: Summary  # right / all images with known labels; an abstention is not right
    abstained: int  # images that the model declined to decide on
    methods: Scores
    model_free: Scores  # of maps that know neither the model nor the image
    distance: Summary  # of the images whose boundary was found
    found: int
    searched: int
    gaps: dict[str, float]  # median completeness gap of each method that integrates; `nan` where undefined
    tightness: float = math.nan  # median certified radius / distance of the boundary points
    bracketed: int = 0  # boundary points with a certified radius
    regions: RegionSummary | None = None  # of the region tests, if they were made

    def with_pooled(self, scores: Scores) -> ModelSummary:
        """With scores of the whole data set, of methods and of model-free maps."""
        methods, model_free = (
            {name: own | scores.get(prefix + name, {}) for name, own in table.items()}
            for prefix, table in (("", self.methods), (MODEL_FREE, self.model_free))
        )
        return replace(self, methods=methods, model_free=model_free)

    @property
    def abstained_share(self) -> float:
        return self.abstained / self.images if self.images else math.nan

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values; undefined is None."""
        return {
            "n": self.images,
            "accuracy": summary_json(self.accuracy),
            "abstained": {"count": self.abstained, "share": defined_number(self.abstained_share)},
            "methods": _scores_json(self.methods),
            "model_free": _scores_json(self.model_free),
            "boundary": {
                "found": self.found,
                "searched": self.searched,
                "distance": summary_json(self.distance),
                "radius_over_distance": {"median": defined_number(self.tightness), "used": self.bracketed},
            },
            "regions": None if self.regions is None else self.regions.to_json(),
            "completeness": {name: {"median_gap": defined_number(gap)} for name, gap in self.gaps.items()},
        }


def model_summary(
    rows: pd.DataFrame,
    model_free: pd.DataFrame | None = None,
    seed: int = 0,
    gaps: pd.DataFrame | None = None,
    brackets: pd.DataFrame | None = None,
    regions: pd.DataFrame | None = None,
) -> ModelSummary:
    """The summary of one model's rows."""
    images = rows.drop_duplicates("image_id")
    accuracy = images["correct"].astype("Float64").to_numpy(dtype=np.float64, na_value=math.nan)
    found = images["found"].to_numpy(dtype=bool)
    distance = np.where(found, images["distance"].to_numpy(dtype=np.float64), math.nan)
    apart = pd.DataFrame({"distance": []}) if brackets is None else brackets[brackets["distance"] > 0]
    return ModelSummary(
        images=len(images),
        accuracy=share(accuracy),
        abstained=int(images["abstained"].sum()),
        methods=score_summaries(rows, seed),
        model_free={} if model_free is None else score_summaries(model_free, seed),
        distance=summary(distance, seed=seed, support=SUPPORTS["distance"]),
        found=int(found.sum()),
        searched=int(images["distance"].notna().sum()),
        gaps={}
        if gaps is None
        else {str(name): float(part.median()) for name, part in gaps.groupby("method", sort=False)["gap"]},
        tightness=float((apart["radius"] / apart["distance"]).median()) if len(apart) else math.nan,
        bracketed=len(apart),
        regions=None if regions is None or not len(regions) else region_summary(regions, seed),
    )


def score_summaries(rows: pd.DataFrame, seed: int = 0) -> Scores:
    """The summary of each score by method; columns that `ROWS` does not have are further scores."""
    scores = [*SCORES, *(column for column in rows.columns if column not in ROWS)]
    return {
        str(name): {
            score: summary(group[score].to_numpy(), seed=seed, support=SUPPORTS.get(score, UNBOUNDED)) for score in scores
        }
        for name, group in rows.groupby("method", sort=False)
    }


def model_free_rows(batch: Batch, settings: Settings, model_name: str, more_scores: Sequence[str] = ()) -> pd.DataFrame:
    """Scores of maps that know neither the model nor the image: one row per image × map, as the model sees the images."""
    from locality.runner.explain_batch import scored  # here, because summaries alone do not need torch
    from locality.scores.model_free_maps import MODEL_FREE_MAPS

    make: Callable[..., Any]
    tables = []
    for name, make in MODEL_FREE_MAPS.items():
        scores = scored(make(batch.images, settings.seed), batch.masks, settings, more_scores)
        values = {score: numbers.tolist() for score, numbers in scores.items()}
        tables.append(pd.DataFrame({"model": model_name, "image_id": batch.ids, "method": name, **values}))
    return pd.concat(tables, ignore_index=True)


def _scores_json(methods: Scores) -> dict[str, Any]:
    return {name: {score: summary_json(value) for score, value in scores.items()} for name, scores in methods.items()}
