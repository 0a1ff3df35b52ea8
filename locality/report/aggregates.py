"""The numbers behind tables, figures and sentences: each mean with its interval, computed once for all of them."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from locality.results.results import Results
from locality.results.schema import SCORES
from locality.statistics import BLOCK, CONFIDENCE, RESAMPLES, wilson_interval
from locality.zoo.trainings import KindOrUnknown as Kind
from locality.zoo.trainings import kind_of, title_of

NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}
# What readers know attacks by; another one has its own name.
ATTACKS = {"paper": "APGD-CE + APGD-DLR", "standard": "AutoAttack", "pgd20": "PGD-20", "cw20": "CW-20"}
USUAL_METHODS = ("SM", "IG", "BIG")  # those of the paper's figures


class NotMeasuredError(ValueError):
    """What a table or a figure needs is not among the results; the message says what."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The mean of the defined values with its 95 % interval and its standard error, `nan` where there are too few."""

    mean: float
    low: float
    high: float
    median: float
    error: float
    used: int
    undefined: int


@dataclass(frozen=True)
class Model:
    """One model of the results."""

    name: str
    family: str
    training: str
    norm: str | None
    epsilon: float | None
    twin: str | None  # the standard model it is compared with
    data: str

    @property
    def kind(self) -> Kind:
        return kind_of(self.training)

    @property
    def trained(self) -> str:
        """How it was trained, in a few words.

        >>> Model("a", "resnet", "trades", "linf", 8 / 255, None, "shapes").trained
        'TRADES ℓ∞ 8/255'
        """
        words = title_of(self.training)
        return words if self.epsilon is None else f"{words} {budget_text(self.norm, self.epsilon)}"


@dataclass(frozen=True, order=True)
class Budget:
    """What an attack was allowed."""

    attack: str
    norm: str
    epsilon: float

    def __str__(self) -> str:
        return f"{budget_text(self.norm, self.epsilon)}, {ATTACKS.get(self.attack, self.attack)}"


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that has a mean. A key that is missing was not measured."""

    models: tuple[Model, ...]
    methods: tuple[str, ...]
    scores: dict[tuple[str, str, str], Measure]  # (model, method, score)
    accuracy: dict[str, Measure]
    distance: dict[str, Measure]  # of the images whose boundary was found
    clean: dict[tuple[str, Budget], Measure]  # accuracy on the images that were attacked
    robust: dict[tuple[str, Budget], Measure]
    blind: dict[tuple[str, str], Measure]  # (data, score) of the uniform map, which has seen neither model nor image

    def pairs(self) -> list[tuple[Model, Model]]:
        """Each robust model after the standard one it is compared with."""
        known = {model.name: model for model in self.models}
        return [(known[model.twin], model) for model in self.models if model.kind == "robust" and model.twin in known]


@functools.lru_cache(maxsize=2)
def measured(results: Results) -> Measured:
    """All means of the results; kept, because every table and figure asks for them."""
    rows = results.rows
    keys: list[tuple[Any, ...]] = []
    columns: list[ArrayLike] = []
    for (model, method), group in rows.groupby(["model", "method"], sort=False):
        for score in SCORES:
            keys.append(("score", str(model), str(method), score))
            columns.append(floats(group[score]))
    accuracy, clean, robust = {}, {}, {}
    for model, group in rows.groupby("model", sort=False):
        images = group.drop_duplicates("image_id")
        accuracy[str(model)] = share(floats(images["correct"]))
        keys.append(("distance", str(model)))
        columns.append(found_distance(images))
    attacked = results["robust"].groupby(["model", "attack", "norm", "epsilon"], sort=False) if "robust" in results else ()
    for (model, attack, norm, epsilon), group in attacked:
        key = str(model), Budget(str(attack), str(norm), float(epsilon))
        clean[key], robust[key] = share(floats(group["clean"])), share(floats(group["robust"]))
    models = models_of(results)
    for data, images in _views(rows, models).items():
        for score, values in uniform_scores(images).items():
            keys.append(("blind", data, score))
            columns.append(pd.Series(values).groupby(images["image_id"].to_numpy(), sort=False).mean())
    found = dict(zip(keys, measures(columns), strict=True))
    methods = list(dict.fromkeys(str(name) for name in rows["method"]))
    order = [name for name in USUAL_METHODS if name in methods]
    return Measured(
        models,
        (*order, *(name for name in methods if name not in order)),
        {key[1:]: measure for key, measure in found.items() if key[0] == "score"},
        accuracy,
        {key[1]: measure for key, measure in found.items() if key[0] == "distance"},
        clean,
        robust,
        {key[1:]: measure for key, measure in found.items() if key[0] == "blind"},
    )


def uniform_scores(rows: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """What a map of ones scores on the images of the rows: Pre = a, Rec = 1, F1 = 2a/(1 + a), lift 0, a the box's share.

    As `scores.blind_maps.uniform_scores`, but from stored rows, without images. `nan` where nothing or all is in the box.

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


def _views(rows: pd.DataFrame, models: Sequence[Model]) -> dict[str, pd.DataFrame]:
    """By data set, one row for each image as each model sees it: models may crop an image, and so its box, differently."""
    data = rows["model"].map({model.name: model.data for model in models})
    views = rows.drop_duplicates(["model", "image_id"])
    return {str(name): group for name, group in views.groupby(data.loc[views.index], sort=False)}


def models_of(results: Results) -> tuple[Model, ...]:
    """The models that were measured, in the suite's order; one without a description is known by its name alone."""
    tables = [table for name, table in results.items() if name not in ("models", "faults", "gallery") and "model" in table]
    there = dict.fromkeys(str(name) for table in tables for name in table["model"].unique())
    described = {}
    for row in results.models.to_dict("records"):
        described[str(row["model"])] = Model(
            str(row["model"]),
            _text(row["family"]) or str(row["model"]),
            _text(row["training"]) or "unknown",
            _text(row["norm"]),
            None if pd.isna(row["epsilon"]) else float(row["epsilon"]),
            _text(row["counterpart"]),
            _text(row["data"]) or "",
        )
    ordered = [name for name in described if name in there] + [name for name in there if name not in described]
    return tuple(described.get(name, Model(name, name, "unknown", None, None, None, "")) for name in ordered)


def measures(columns: Sequence[ArrayLike], *, resamples: int = RESAMPLES, seed: int = 0) -> list[Measure]:
    """The same numbers as `statistics.summary` of each column, and the standard error s/√n.

    Columns with as many defined values are resampled together: a draw of images is a vector of counts, and counts · values
    gives the resampled means of all of them at once. A hundred columns take about as long as two.

    >>> [found] = measures([[0.2, 0.4, float("nan"), 0.9]])
    >>> round(found.mean, 3), found.median, round(found.error, 3), found.used, found.undefined
    (0.5, 0.4, 0.208, 3, 1)
    """
    every = [np.asarray(column, dtype=np.float64) for column in columns]
    defined = [column[~np.isnan(column)] for column in every]
    ends: list[tuple[float, float]] = [(math.nan, math.nan)] * len(every)
    sizes: dict[int, list[int]] = defaultdict(list)
    for place, column in enumerate(defined):
        sizes[len(column)].append(place)
    for size, places in sizes.items():
        if size >= 2:
            means = _resampled_means(np.stack([defined[place] for place in places], axis=1), resamples, seed)
            low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
            for place, one, other in zip(places, low.tolist(), high.tolist(), strict=True):
                ends[place] = one, other
    return [
        _measure(column, interval, len(whole) - len(column))
        for whole, column, interval in zip(every, defined, ends, strict=True)
    ]


def share(values: NDArray[np.float64]) -> Measure:
    """The share of ones among zeros and ones, with its Wilson interval: a bootstrap of 30 of 30 would promise all the rest.

    >>> found = share(np.ones(30))
    >>> found.mean, round(found.low, 3), found.high
    (1.0, 0.886, 1.0)
    """
    defined = values[~np.isnan(values)]
    return _measure(defined, wilson_interval(int(defined.sum()), len(defined)), len(values) - len(defined))


def _measure(values: NDArray[np.float64], interval: tuple[float, float], undefined: int) -> Measure:
    count = len(values)
    if count == 0:
        return Measure(math.nan, *interval, math.nan, math.nan, 0, undefined)
    error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Measure(float(values.mean()), *interval, float(np.median(values)), error, count, undefined)


def _resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """resamples×K means of the columns of n×K values; draws the images that `statistics.mean_interval` draws."""
    count = len(values)
    random = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    rows = max(1, BLOCK // count)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = random.integers(0, count, (stop - start, count)) + count * np.arange(stop - start)[:, None]
        times = np.bincount(drawn.ravel(), minlength=(stop - start) * count).reshape(stop - start, count)
        means[start:stop] = times.astype(np.float64) @ values / count
    return means


def floats(column: pd.Series) -> NDArray[np.float64]:
    """The column as numbers, `nan` where it is missing; truth values become 1 and 0."""
    if column.dtype == object:
        column = pd.to_numeric(column.map(lambda value: math.nan if pd.isna(value) else float(value)))
    found: NDArray[np.float64] = column.astype("Float64").to_numpy(dtype=np.float64, na_value=math.nan)
    return found


def found_distance(rows: pd.DataFrame) -> NDArray[np.float64]:
    """The boundary distance of each row, `nan` where no boundary was found (it is stored as inf)."""
    distance = floats(rows["distance"])
    return np.where(floats(rows["found"]) == 1, distance, math.nan)


def budget_text(norm: str | None, epsilon: float) -> str:
    """A norm and a radius as papers write them.

    >>> budget_text("linf", 4 / 255), budget_text("l2", 0.5)
    ('ℓ∞ 4/255', 'ℓ2 0.5')
    """
    size = f"{epsilon * 255:.3g}/255" if norm == "linf" else f"{epsilon:g}"
    return f"{NORMS.get(str(norm), str(norm))} {size}"


def usual_budget(found: Iterable[tuple[str, Budget]]) -> Budget:
    """The budget that most models were attacked with; of several, the first."""
    counts: dict[Budget, int] = defaultdict(int)
    for _, budget in found:
        counts[budget] += 1
    if not counts:
        raise NotMeasuredError("accuracy under attack was not measured")
    return max(counts, key=lambda budget: counts[budget])


def panel_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods that figures show: the paper's three, or else the first three there are.

    >>> panel_methods(["AGI", "SM", "IG", "BSM", "BIG"]), panel_methods(["AGI"])
    (('SM', 'IG', 'BIG'), ('AGI',))
    """
    usual = [name for name in USUAL_METHODS if name in methods]
    return tuple(usual or list(methods)[:3])


def _text(value: Any) -> str | None:
    return None if value is None or pd.isna(value) or value == "" else str(value)
