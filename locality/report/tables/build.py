"""The tables of a benchmark: locality, twins, robust accuracy, similarity (Table 3.1), searches (Table B.2), faithfulness.

Best values are bold. Values are underlined where their standard errors overlap, best − SE ≤ value + SE, as in the thesis.
Accuracies take the largest standard error there can be, √(0.25/n), as it does; everything else takes its own, s/√n. Models
of different data are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from locality.report.aggregates import Model, NotMeasuredError, floats, found_distance, measured, measures, models_of
from locality.report.pairs import twins_table
from locality.report.tables.table import (
    Cell,
    Column,
    Table,
    count_cell,
    distance_cell,
    marked,
    median_cell,
    score_cell,
    share_cell,
)
from locality.results.results import Results

OVERLAP = "underlined where standard errors overlap"
INTERVALS = "Intervals are 95 % bootstrap intervals over images."
SHARE_INTERVALS = "Intervals are 95 % Wilson intervals."
MODEL_COLUMNS = (Column("model", "model", "text"), Column("trained", "trained", "text"))


def tables(results: Results, which: Sequence[str] | None = None) -> tuple[Table, ...]:
    """The named tables, or all that were measured; a name that is unknown or was not measured is an error.

    >>> tables(Results("nothing"))
    ()
    """
    unknown = [name for name in which or () if name not in TABLES]
    if unknown:
        raise ValueError(f"`which` must name tables among {', '.join(TABLES)}, got {', '.join(unknown)}")
    found = []
    for name in which or TABLES:
        try:
            found.append(TABLES[name](results))
        except NotMeasuredError:
            if which:
                raise
    return tuple(found)


def overview_table(results: Results) -> Table:
    """One row a model: accuracy, accuracy under each attack, and F1 of each method."""
    found = measured(results)
    if not found.scores:
        raise NotMeasuredError("locality was not measured")
    budgets = sorted({budget for _, budget in found.robust})
    columns = [*MODEL_COLUMNS, Column("accuracy", "accuracy")]
    columns += [
        Column(f"under {budget}", f"robust {budget.attack} {budget.norm} {budget.epsilon:.4g}") for budget in budgets
    ]
    columns += [Column(f"F1 {method}", f"f1 {method}") for method in found.methods]
    rows = []
    for model in found.models:
        rows.append(
            [
                *_model_cells(model),
                share_cell(found.accuracy.get(model.name), interval=False),
                *(share_cell(found.robust.get((model.name, budget)), interval=False) for budget in budgets),
                *(score_cell(found.scores.get((model.name, method, "f1")), interval=False) for method in found.methods),
            ]
        )
    groups = [model.data for model in found.models]
    notes = (f"Best of each column{_and_data(groups)} bold; {OVERLAP}.",)
    return Table("overview", "Accuracy and locality", tuple(columns), marked(rows, groups, range(2, len(columns))), notes)


def locality_table(results: Results) -> Table:
    """One row a model × method: F1, lift, precision and recall with their intervals, and how many were undefined.

    The last row is the uniform map, which methods have to beat.
    """
    found = measured(results)
    if not found.scores:
        raise NotMeasuredError("locality was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("method", "method", "text"),
        Column("F1", "f1", "interval"),
        Column("lift", "lift", "interval"),
        Column("precision", "precision", "interval"),
        Column("recall", "recall", "interval"),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    rows, groups = [], []
    for method in found.methods:
        for model in found.models:
            if (model.name, method, "f1") not in found.scores:
                continue
            scores = [found.scores[model.name, method, score] for score in ("f1", "lift", "precision", "recall")]
            counts = [count_cell(scores[0].used), count_cell(scores[0].undefined)]
            rows.append([*_model_cells(model), Cell(method), *(score_cell(score) for score in scores), *counts])
            groups.append((model.data, method))
    data = list(dict.fromkeys(name for name, _ in found.blind))
    for name in data:
        scores = [found.blind[name, score] for score in ("f1", "lift", "precision", "recall")]
        blind = Cell("blind: uniform" if len(data) == 1 else f"blind: uniform on {name}")
        counts = [count_cell(scores[0].used), count_cell(scores[0].undefined)]
        rows.append([Cell("–"), Cell("–"), blind, *(score_cell(score) for score in scores), *counts])
        groups.append((name, "blind"))  # alone, so that it is never the best
    notes = (
        INTERVALS,
        f"Best of each method{_and_data(model.data for model in found.models)} bold; {OVERLAP}.",
        "Lift: 0 is what the same attribution values score when shuffled over the image, 1 is perfect.",
        "blind: a map of ones, which has seen neither model nor image; its F1 is 2a/(1 + a) for a box of share a.",
    )
    return Table("locality", "Locality", columns, marked(rows, groups, range(3, 7)), notes)


def robust_table(results: Results) -> Table:
    """One row a model × attack: accuracy before and under it."""
    found = measured(results)
    if not found.robust:
        raise NotMeasuredError("accuracy under attack was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("attack", "attack", "text"),
        Column("accuracy", "clean", "interval"),
        Column("under attack", "robust", "interval"),
        Column("images", "images"),
    )
    rows, groups = [], []
    for budget in sorted({budget for _, budget in found.robust}):
        for model in found.models:
            if (model.name, budget) in found.robust:
                clean, robust = found.clean[model.name, budget], found.robust[model.name, budget]
                rows.append(
                    [
                        *_model_cells(model),
                        Cell(str(budget)),
                        share_cell(clean),
                        share_cell(robust),
                        count_cell(robust.used),
                    ],
                )
                groups.append((model.data, budget))
    best = f"Best of each attack{_and_data(data for data, _ in groups)} bold"
    rule = f"{best}; {OVERLAP}, taken as the largest possible, √(0.25/n)."
    return Table("robust", "Robust accuracy", columns, marked(rows, groups, (3, 4)), (SHARE_INTERVALS, rule))


def similarity_table(results: Results) -> Table:
    """Table 3.1: how far the map of each method lies from that of its boundary-based counterpart, one row a model."""
    if "similarity" not in results:
        raise NotMeasuredError("similarity of attributions was not measured")
    pairs = list(dict.fromkeys(results["similarity"]["pair"]))
    models = models_of(results)
    grouped = _parts(results["similarity"], "model", "pair")
    keys = [(model.name, pair) for model in models for pair in pairs if (model.name, pair) in grouped]
    distances = dict(zip(keys, measures([floats(grouped[key]["l2"]) for key in keys]), strict=True))
    cosines = dict(zip(keys, measures([floats(grouped[key]["cosine"]) for key in keys]), strict=True))
    columns = [*MODEL_COLUMNS]
    columns += [Column(f"{_dashed(pair)} ℓ2", f"{pair} l2", "interval") for pair in pairs]
    columns += [Column(f"{_dashed(pair)} cosine", f"{pair} cosine") for pair in pairs]
    columns += [Column("images", "images"), Column("undefined", "undefined")]
    rows, groups = [], []
    for model in models:
        there = [distances[model.name, pair] for pair in pairs if (model.name, pair) in distances]
        if there:
            far = [distance_cell(distances.get((model.name, pair))) for pair in pairs]
            alike = [score_cell(cosines.get((model.name, pair)), interval=False) for pair in pairs]
            counts = [count_cell(max(one.used for one in there)), count_cell(max(one.undefined for one in there))]
            rows.append([*_model_cells(model), *far, *alike, *counts])
            groups.append(model.data)
    lower = range(2, 2 + len(pairs))
    rows_marked = marked(rows, groups, range(2, 2 + 2 * len(pairs)), lower)
    notes = (
        INTERVALS,
        f"Smallest distance and largest cosine{_and_data(groups, ' of each')} bold; {OVERLAP}.",
        "A plain ℓ2 distance grows with the size of a model's gradients; the cosine does not.",
    )
    return Table("similarity", "Similarity of attributions (Table 3.1)", tuple(columns), rows_marked, notes)


def searches_table(results: Results) -> Table:
    """Table B.2: what each boundary search finds, how near, and what it costs, one row a model × search."""
    if "searches" not in results:
        raise NotMeasuredError("boundary searches were not compared")
    columns = (
        *MODEL_COLUMNS,
        Column("search", "search", "text"),
        Column("ℓ2 distance", "distance", "interval"),
        Column("where all found one", "distance_common", "interval"),
        Column("success", "success"),
        Column("gradients", "gradients"),
        Column("forwards", "forwards"),
        Column("s an image", "seconds"),
        Column("images", "images"),
    )
    rows: list[list[Cell]] = []
    groups: list[Hashable] = []
    for model in models_of(results):
        own = results["searches"][results["searches"]["model"] == model.name]
        parts = {str(name): part for name, part in own.groupby("search", sort=False)}
        # A search that fails on the difficult images has the smaller mean for it: compare where all succeed, too.
        found = [set(part["image_id"][floats(part["found"]) == 1]) for part in parts.values()]
        common = set.intersection(*found) if found else set()
        distances = measures([found_distance(part) for part in parts.values()])
        shared = measures([found_distance(part[part["image_id"].isin(common)]) for part in parts.values()])
        for (name, part), distance, same in zip(parts.items(), distances, shared, strict=True):
            share = float(np.nanmean(floats(part["found"])))
            costs = [float(np.nanmean(floats(part[key]))) for key in ("gradients", "forwards")]
            seconds = float(np.nanmean(floats(part["seconds"])))
            rows.append(
                [*_model_cells(model), Cell(name), distance_cell(distance), distance_cell(same), Cell(f"{share:.1%}", share)]
                + [Cell(f"{cost:,.0f}", cost) for cost in costs]
                + [Cell(f"{seconds:.3g}", seconds), count_cell(len(part))]
            )
            groups.append(model.name)
    notes = (
        INTERVALS,
        "Distances are means over the images where a boundary was found. Gradients and forwards are counted an image.",
        "Smallest mean distance on common images bold; underlined where standard errors overlap.",
    )
    return Table("searches", "Boundary searches (Table B.2)", columns, marked(rows, groups, (4,), (4,)), notes)


def faithfulness_table(results: Results) -> Table:
    """One row a model × method × noise: infidelity and the completeness gap."""
    if "faithfulness" not in results:
        raise NotMeasuredError("faithfulness was not measured")
    columns = (
        *MODEL_COLUMNS,
        Column("noise", "noise", "text"),
        Column("method", "method", "text"),
        Column("INFD", "infidelity_median"),
        Column("INFD / variance", "normalised", "interval"),
        Column("gap", "gap_median"),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    grouped = _parts(results["faithfulness"], "model", "noise", "method")
    models = {model.name: model for model in models_of(results)}
    places = {name: place for place, name in enumerate(models)}
    noises = list(dict.fromkeys(results["faithfulness"]["noise"]))
    keys = sorted(grouped, key=lambda key: (places[key[0]], noises.index(key[1])))
    normalised = measures([floats(grouped[key]["normalised"]) for key in keys])
    rows, groups = [], []
    for (name, noise, method), measure in zip(keys, normalised, strict=True):
        part = grouped[name, noise, method]
        raw, gap = (median_cell(floats(part[key])) for key in ("raw", "gap"))
        cells = [Cell(str(noise)), Cell(str(method)), raw, distance_cell(measure), gap]
        rows.append([*_model_cells(models[name]), *cells, count_cell(measure.used), count_cell(measure.undefined)])
        groups.append((name, noise))
    notes = (
        "INFD and gap: medians over images. INFD / variance: mean and 95 % bootstrap interval. Smaller is better.",
        "Best method of each model bold; underlined where standard errors overlap.",
    )
    return Table("faithfulness", "Faithfulness", columns, marked(rows, groups, (5,), (5,)), notes)


def faults_table(results: Results) -> Table:
    """What could not be measured, and why."""
    if not len(results.faults):
        raise NotMeasuredError("nothing failed")
    keys = ("model", "unit", "image_ids", "problem")
    columns = tuple(Column(key.replace("_ids", "s"), key, "text") for key in keys)
    rows = tuple(tuple(Cell(_words(row[key])) for key in keys) for row in results.faults.to_dict("records"))
    return Table("faults", "What could not be measured", columns, rows)


TABLES: dict[str, Callable[[Results], Table]] = {
    "overview": overview_table,
    "locality": locality_table,
    "twins": twins_table,
    "robust": robust_table,
    "similarity": similarity_table,
    "searches": searches_table,
    "faithfulness": faithfulness_table,
    "faults": faults_table,
}


def _model_cells(model: Model) -> list[Cell]:
    return [Cell(model.name), Cell(model.trained)]


def _and_data(data: Iterable[str], words: str = " and") -> str:
    """Where there are several data sets, that each has its own best: else two in one column look like a mistake."""
    return f"{words} data set" if len(set(data)) > 1 else ""


def _dashed(pair: str) -> str:
    return pair.replace("SM-BSM", "SM–BSM").replace("IG-BIG", "IG–BIG")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple, np.ndarray)) else str(value)


def _parts(table: pd.DataFrame, *keys: str) -> dict[Any, pd.DataFrame]:
    """The rows of each combination of keys, in the order they come in."""
    return dict(iter(table.groupby(list(keys), sort=False)))
