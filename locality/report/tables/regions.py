"""Region tests: what models rely on, one row per model, and every test with its chance level, one row per model and test."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from locality.report.models import models_of
from locality.report.regions import RegionTested, region_tested
from locality.report.tables.best_marks import marked
from locality.report.tables.table import (
    MODEL_COLUMNS,
    Cell,
    Column,
    MarkNote,
    Table,
    count_cell,
    model_cells,
    number_cell,
    per_data,
    score_cell,
    share_cell,
)
from locality.results.region_tests import RelativeSensitivity, title_of
from locality.results.results import Results

SHOWN = ("inside_greyed", "outside_greyed", "outside_swapped")
ELSEWHERE = "elsewhere: the same change with the region moved to a random place of the image, the chance level."


def regions_table(results: Results) -> Table:
    """Accuracy with the object or the background removed, reliance and relative core sensitivity."""
    tested = region_tested(results)
    region = next(iter(tested.values())).region
    columns = (
        *MODEL_COLUMNS,
        Column("accuracy", "accuracy"),
        *(Column(title_of(test, region), test) for test in SHOWN),
        Column("follows", "followed"),
        Column("reliance", "reliance", "interval"),
        Column("RCS", "rcs", "interval"),
        Column("images", "images"),
        Column("undefined", "undefined"),
    )
    rows, groups = [], []
    for model in models_of(results):
        if model.name not in tested:
            continue
        one = tested[model.name]
        accuracies = [one.accuracy, *(one.tests.get(test, {}).get("correct") for test in SHOWN), one.followed]
        cells = [share_cell(accuracy, interval=False) for accuracy in accuracies]
        cells += [score_cell(one.reliance), _sensitivity_cell(one.sensitivity)]
        rows.append([*model_cells(model), *cells, count_cell(one.reliance.used), count_cell(one.reliance.undefined)])
        groups.append(model.data)
    notes = (
        "Accuracy on the unchanged images, and with a part of them changed. follows: predicted as the class of the image "
        "that lent its background.",
        "Reliance: 0 is chance, 1: the region alone decides, −1: only the rest does. RCS: relative core sensitivity. "
        "Both have 95 % bootstrap intervals.",
        MarkNote(f"Largest reliance{per_data(groups, ' of each')}"),
    )
    marks = marked(rows, groups, (columns.index(next(one for one in columns if one.key == "reliance")),))
    return Table("regions", "Region tests", columns, marks, notes, main="reliance")


def region_tests_table(results: Results) -> Table:
    """Accuracy, kept decisions and logit change of every test, each beside its chance level."""
    columns = [*MODEL_COLUMNS, Column("test", "test", "text")]
    for title, key in (("accuracy", "correct"), ("decision kept", "kept"), ("logit change", "logit_change")):
        columns += [Column(title, key, "interval"), Column(f"{title}, elsewhere", f"{key}_elsewhere", "interval")]
    columns += [Column("images", "images"), Column("undefined", "undefined")]
    tested = region_tested(results)
    rows = []
    for model in models_of(results):
        for test, means in tested[model.name].tests.items() if model.name in tested else ():
            cells = [
                (number_cell if key.startswith("logit") else share_cell)(means[key + place])
                for key in ("correct", "kept", "logit_change")
                for place in ("", "_elsewhere")
            ]
            counts = [count_cell(means["kept"].used), count_cell(means["kept"].undefined)]
            rows.append((*model_cells(model), Cell(title_of(test, tested[model.name].region)), *cells, *counts))
    overlap, same = _chance(tested.values())
    notes = (
        f"{ELSEWHERE} {overlap:.0%} of the moved region lies in the region on average. {same}",
        "decision kept: that on the unchanged image, right or wrong. logit change: of the class predicted for the unchanged "
        "image; logits of two models have different units.",
    )
    return Table("region_tests", "Region tests in full", tuple(columns), tuple(rows), notes, main="kept")


def _chance(tested: Iterable[RegionTested]) -> tuple[float, str]:
    """Mean overlap, and RCS with the region moved, where it is defined."""
    several = list(tested)
    known = [one.sensitivity_elsewhere.value for one in several if not math.isnan(one.sensitivity_elsewhere.value)]
    texts = [f"{round(value, 2) + 0.0:.2f}".replace("-", "−") for value in (min(known), max(known))] if known else []
    same = f"RCS elsewhere: {' to '.join(dict.fromkeys(texts))}." if known else "RCS elsewhere is undefined."
    return float(np.nanmean([one.overlap for one in several])), same


def _sensitivity_cell(one: RelativeSensitivity) -> Cell:
    if math.isnan(one.value):
        return Cell("undefined")
    texts = [f"{round(value, 3) + 0.0:.3f}".replace("-", "−") for value in (one.value, one.low, one.high)]
    if math.isnan(one.low):
        return Cell(texts[0], one.value)
    return Cell(f"{texts[0]} [{texts[1]}, {texts[2]}]", one.value, one.low, one.high)
