"""Scores of attribution maps: against a region (`SCORES`), against the model (`faithfulness`), against each other.

To add a score of maps against a region, write `scores/NAME.py` with a `Score` and add a line to `SCORES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from locality.errors import unknown_choice
from locality.scores.locality import F1, CurveArea, Lift, Precision, Recall
from locality.scores.map_features import Score, over_maps
from locality.scores.peer_scores import (
    AttributionLocalisation,
    EnergyPointingGame,
    IouAtQuantile,
    PointingGame,
    RelevanceMassAccuracy,
    RelevanceRankAccuracy,
    RocAuc,
    TopKIntersection,
)
from locality.types import Channels

SCORES: dict[str, type[Score]] = {
    "precision": Precision,
    "recall": Recall,
    "f1": F1,
    "lift": Lift,
    "curve_area": CurveArea,
    "pointing_game": PointingGame,
    "energy_pointing_game": EnergyPointingGame,
    "attribution_localisation": AttributionLocalisation,
    "relevance_mass_accuracy": RelevanceMassAccuracy,
    "relevance_rank_accuracy": RelevanceRankAccuracy,
    "top_k_intersection": TopKIntersection,
    "roc_auc": RocAuc,
    "iou_at_quantile": IouAtQuantile,
}


def score_maps(
    maps: Tensor, masks: Tensor, scores: Sequence[str] | Mapping[str, Score] | None = None, channels: Channels = "all"
) -> dict[str, Tensor]:
    """N numbers per score; the scores share their sums and one sort.

    `maps` are N×C×H×W, `masks` N×1×H×W bool. `scores` are names in `SCORES`, or scores with settings of their own by any
    name; all of `SCORES` by default.

    >>> import torch
    >>> maps, masks = torch.eye(2)[None, None], torch.eye(2).bool()[None, None]
    >>> {name: values.item() for name, values in score_maps(maps, masks, ["f1", "roc_auc"]).items()}
    {'f1': 1.0, 'roc_auc': 1.0}
    >>> score_maps(maps, masks, {"top 2": TopKIntersection(k=2)})["top 2"].item()
    1.0
    """
    chosen = _scores(scores)
    values = over_maps(maps, masks, channels, lambda features: tuple(score.of(features) for score in chosen.values()))
    return dict(zip(chosen, values, strict=True))


def check_scores(names: Sequence[str], further: Sequence[str] = ()) -> None:
    """Raise unless every name is in `SCORES` or one of `further`."""
    for name in names:
        if name not in SCORES and name not in further:
            raise unknown_choice("scores", name, [*SCORES, *further])


def _scores(scores: Sequence[str] | Mapping[str, Score] | None) -> dict[str, Score]:
    if isinstance(scores, Mapping):
        return dict(scores)
    names = list(SCORES) if scores is None else list(scores)
    check_scores(names)
    return {name: SCORES[name]() for name in names}
