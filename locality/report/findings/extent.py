"""What was measured, on how many images models abstained, and what failed."""

from __future__ import annotations

import numpy as np

from locality.report.aggregates import Aggregates
from locality.report.estimates import floats
from locality.report.models import KINDS
from locality.results.results import Results
from locality.results.wording import counted, listed


def extent(results: Results, means: Aggregates) -> list[str]:
    """Models, images and methods, and how many scores are undefined."""
    rows = results.rows
    data = list(dict.fromkeys(model.data for model in means.models if model.data))
    numbers = {kind: sum(model.kind == kind for model in means.models) for kind in KINDS if kind != "unknown"}
    kinds = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number)
    parts = [f"{counted(len(means.models), 'model')}{f' ({kinds})' if kinds else ''}"]
    measured = [table for name, table in results.items() if name != "faults" and "image_id" in table]
    evaluated = [table[table["split"] != "train"] if "split" in table else table for table in measured]
    images = {image for table in evaluated for image in table["image_id"]}
    if images:
        parts.append(f"{counted(len(images), 'image')}{f' of {listed(data)}' if data else ''}")
    if len(rows):
        parts.append(f"attributed by {listed(means.methods)}")
    undefined = int(np.isnan(floats(rows["f1"])).sum()) if len(rows) else 0
    note = f" {undefined:,} of {len(rows):,} F1 scores are undefined and excluded from the means." if undefined else ""
    without = "" if len(rows) else " Locality was not measured."
    return [f"{'; '.join(parts)}.{note}{without}"]


def abstentions(results: Results, means: Aggregates) -> list[str]:
    """On how many images each model abstained."""
    shares = [f"{name} on {share.mean:.1%}" for name, share in means.abstained.items() if share.mean > 0]
    if not shares:
        return []
    return [
        f"Abstentions: {listed(shares)} of the images. They are neither correct nor wrong (accuracy is correct / all "
        "images) and are not attributed."
    ]


def faults(results: Results, means: Aggregates) -> list[str]:
    """How many units failed."""
    number = len(results.faults)
    return [f"{counted(number, 'unit')} could not be measured: see the last table."] if number else []
