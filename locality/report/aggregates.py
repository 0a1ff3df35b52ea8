"""The means behind tables, figures and sentences, each with its interval, computed once for all of them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from locality.intervals import UNBOUNDED
from locality.report.estimates import Estimate, boundary_distances, estimates, floats, share_estimate
from locality.report.models import COMPARED, Kind, Model, models_of, pairs_of
from locality.report.pairs import Pair, paired_differences
from locality.report.views import View, views_of
from locality.results.results import Results
from locality.results.schema import SCORES, SUPPORTS
from locality.robustness import attack_title
from locality.types import Threat

USUAL_METHODS = ("SM", "IG", "BIG")  # of the paper's figures


class NotMeasuredError(ValueError):
    """The results lack what a table or a figure needs; the message names it."""


@dataclass(frozen=True)
class Budget:
    """An attack and its threat."""

    attack: str
    threat: Threat

    def __str__(self) -> str:
        return f"{self.threat}, {attack_title(self.attack)}"

    def __lt__(self, other: Budget) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> tuple[str, str, float]:
        return self.attack, self.threat.norm, self.threat.radius


@dataclass(frozen=True, eq=False)
class Aggregates:
    """All means of the results. A key that is missing was not measured."""

    models: tuple[Model, ...]
    methods: tuple[str, ...]
    scores: dict[tuple[str, str, str], Estimate]  # (model, method, score)
    differences: dict[tuple[Pair, str, str], Estimate]  # (pair, method, score): mean over images of second − first
    changes: dict[tuple[Pair, str, str], NDArray[np.float64]]  # the differences themselves, one per image
    accuracy: dict[str, Estimate]  # by model: correct / all; an abstention is not correct
    abstained: dict[str, Estimate]  # by model; empty where no model abstained
    distance: dict[str, Estimate]  # by model, over the images whose boundary was found
    clean: dict[tuple[str, Budget], Estimate]  # accuracy without attack on the attacked images
    robust: dict[tuple[str, Budget], Estimate]
    uniform: dict[tuple[View, str], Estimate]  # (view, score) of a map of ones

    def pairs(self, kinds: Iterable[Kind] = COMPARED) -> list[Pair]:
        """Pairs of a standard model and a robust or certified one that is compared with it."""
        return pairs_of(self.models, kinds)


@functools.lru_cache(maxsize=2)
def aggregate(results: Results) -> Aggregates:
    """All means of the results; cached, because every table and figure needs them."""
    rows = results.rows
    keys: list[tuple[Any, ...]] = []
    columns: list[ArrayLike] = []
    changes: dict[tuple[Pair, str, str], NDArray[np.float64]] = {}
    models = models_of(results)
    for method, group in rows.groupby("method", sort=False):
        for (pair, score), values in paired_differences(group, SCORES, pairs_of(models)).items():
            keys.append(("difference", pair, str(method), score))
            columns.append(values)
            changes[pair, str(method), score] = values
    for (model, method), group in rows.groupby(["model", "method"], sort=False):
        for score in SCORES:
            keys.append(("score", str(model), str(method), score))
            columns.append(floats(group[score]))
    accuracy, abstained = {}, {}
    for model, group in rows.groupby("model", sort=False):
        images = group.drop_duplicates("image_id")
        accuracy[str(model)] = share_estimate(correct(images))
        abstained[str(model)] = share_estimate(abstentions(images))
        keys.append(("distance", str(model)))
        columns.append(boundary_distances(images))
    for view, images in views_of(rows, models).items():
        for score, values in uniform_scores(images).items():
            keys.append(("uniform", view, score))
            columns.append(values)
    supports = [
        UNBOUNDED if key[0] == "difference" else SUPPORTS[key[0] if key[0] == "distance" else key[-1]] for key in keys
    ]
    means = dict(zip(keys, estimates(columns, supports=supports), strict=True))
    clean, robust = _under_attack(results)
    return Aggregates(
        models,
        _usual_first(str(name) for name in rows["method"]),
        {key[1:]: mean for key, mean in means.items() if key[0] == "score"},
        {key[1:]: mean for key, mean in means.items() if key[0] == "difference" and mean.used},
        changes,
        accuracy,
        abstained if any(share.mean > 0 for share in abstained.values()) else {},
        {key[1]: mean for key, mean in means.items() if key[0] == "distance"},
        clean,
        robust,
        {key[1:]: mean for key, mean in means.items() if key[0] == "uniform"},
    )


def _under_attack(results: Results) -> tuple[dict[tuple[str, Budget], Estimate], dict[tuple[str, Budget], Estimate]]:
    """Accuracy without and with attack."""
    clean, robust = {}, {}
    if "robust" in results:
        for (model, attack, norm, radius), group in results["robust"].groupby(
            ["model", "attack", "norm", "epsilon"], sort=False
        ):
            key = str(model), Budget(str(attack), Threat(norm, float(radius)))
            clean[key], robust[key] = share_estimate(floats(group["clean"])), share_estimate(floats(group["robust"]))
    return clean, robust


def abstentions(rows: pd.DataFrame) -> NDArray[np.float64]:
    """1 where the model abstained, else 0; results of earlier versions have no abstentions.

    >>> abstentions(pd.DataFrame({"prediction": [3, 1]})).tolist()
    [0.0, 0.0]
    """
    return np.nan_to_num(floats(rows["abstained"])) if "abstained" in rows else np.zeros(len(rows))


def correct(rows: pd.DataFrame) -> NDArray[np.float64]:
    """1 where the prediction is right, 0 where it is wrong or an abstention, `nan` where the model lacks the class."""
    return np.where((abstentions(rows) == 1) & (floats(rows["label"]) >= 0), 0.0, floats(rows["correct"]))


def uniform_scores(rows: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Scores of a map of ones: Pre = a, Rec = 1, F1 = 2a/(1 + a) and lift 0, where a is the box's share of the image.

    As `map_scores` of `scores.model_free_maps.uniform_maps`, but from stored rows, without images. `nan` where the box is
    empty; lift is `nan` also where the box is the whole image.

    >>> {score: values.tolist() for score, values in uniform_scores(pd.DataFrame({"box_share": [0.25]})).items()}
    {'precision': [0.25], 'recall': [1.0], 'f1': [0.4], 'lift': [0.0]}
    """
    share = floats(rows["box_share"])
    recall = np.where(share > 0, 1.0, math.nan)
    return {
        "precision": share,
        "recall": recall,
        "f1": 2 * share * recall / (1 + share),
        "lift": np.where((share > 0) & (share < 1), 0.0, math.nan),
    }


def usual_budget(attacked: Iterable[tuple[str, Budget]]) -> Budget:
    """The budget that most models were attacked with; of several, the first."""
    counts = Counter(budget for _, budget in attacked)
    if not counts:
        raise NotMeasuredError("accuracy under attack was not measured")
    return counts.most_common(1)[0][0]


def panel_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods that figures show: those of SM, IG and BIG that were measured, or else the first three methods.

    >>> panel_methods(["AGI", "SM", "IG", "BSM", "BIG"]), panel_methods(["AGI"])
    (('SM', 'IG', 'BIG'), ('AGI',))
    """
    usual = [name for name in USUAL_METHODS if name in methods]
    return tuple(usual or list(methods)[:3])


def _usual_first(methods: Iterable[str]) -> tuple[str, ...]:
    names = list(dict.fromkeys(methods))
    return (*(name for name in USUAL_METHODS if name in names), *(name for name in names if name not in USUAL_METHODS))
