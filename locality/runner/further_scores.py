"""The scores that `evaluate` measures on request: of maps and regions, against the model, or of the whole data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import nn

from locality.attribution.all_at_once import OWN
from locality.model_calls import Calls
from locality.results.localisation import LOCALISATION, MODEL_FREE, POOLED_SCORES
from locality.results.schema import SCORES
from locality.runner.explain_batch import Explanations
from locality.runner.localisation_rows import localisation_rows
from locality.scores import check_scores
from locality.scores.model_free_maps import MODEL_FREE_MAPS
from locality.scores.model_scores import MODEL_SCORES, Explained, model_scores


@dataclass(frozen=True)
class FurtherScores:
    """Names of scores besides precision, recall, F1 and lift."""

    of_maps: tuple[str, ...] = ()  # in `locality.scores.SCORES`
    of_model: tuple[str, ...] = ()  # in `MODEL_SCORES`
    pooled: tuple[str, ...] = ()  # in `POOLED_SCORES`

    @classmethod
    def named(cls, names: Sequence[str]) -> FurtherScores:
        """Raises for unknown names; those that are measured anyway are left out."""
        check_scores(names, [*MODEL_SCORES, *POOLED_SCORES])
        more = [name for name in dict.fromkeys(names) if name not in SCORES]
        of_model, pooled = (tuple(name for name in more if name in table) for table in (MODEL_SCORES, POOLED_SCORES))
        return cls(tuple(name for name in more if name not in of_model + pooled), of_model, pooled)

    @property
    def names(self) -> list[str]:
        return [*self.of_maps, *self.of_model, *self.pooled]

    def of_batch(
        self, explanations: Explanations, model: nn.Module, calls: Calls, search: str | None, seed: int, name: str
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Scores against the model, one row per attributed image × method or model-free map; and rows of `localisation`."""
        localisation = pd.DataFrame([], columns=list(LOCALISATION))
        if self.pooled:
            localisation = localisation_rows(explanations, name, seed)
        if not self.of_model or not explanations.maps:
            return pd.DataFrame([], columns=["image_id", "method", *self.of_model]), localisation
        batch, boundary = explanations.attributed, explanations.boundary
        images = batch.images.to(next(iter(explanations.maps.values())).device)
        free = {MODEL_FREE + one: make(images, seed) for one, make in MODEL_FREE_MAPS.items()}
        # Methods that are not our own open the model themselves.
        opened = calls if OWN.issuperset(explanations.maps) else model
        explained = Explained(opened, images, explanations.classes, explanations.maps, boundary, search, free, seed)
        unknown = (explanations.targets < 0).cpu()  # their maps, too, are undefined
        tables = []
        for method, scores in model_scores(explained, self.of_model).items():
            columns = {score: values.cpu().masked_fill(unknown, torch.nan).tolist() for score, values in scores.items()}
            tables.append(pd.DataFrame({"image_id": batch.ids, "method": method, **columns}))
        return pd.concat(tables, ignore_index=True), localisation


def with_columns(rows: pd.DataFrame, more: pd.DataFrame, prefix: str = "") -> pd.DataFrame:
    """The rows with the columns of the scores against the model; `prefix` begins the methods of `more`. Missing is `nan`."""
    if len(more.columns) == 2:
        return rows
    chosen = more[more["method"].str.startswith(prefix)] if len(more) else more
    named = chosen.assign(method=chosen["method"].astype(str).str.removeprefix(prefix))
    return rows.merge(named, on=["image_id", "method"], how="left").astype(dict.fromkeys(more.columns[2:], float))
