"""Finding I: robust and certified models against standard ones."""

from __future__ import annotations

import numpy as np

from locality.report.aggregates import Aggregates, panel_methods
from locality.report.findings.wording import CORRECTED, positive, significantly_above
from locality.report.models import COMPARED
from locality.results.results import Results
from locality.results.wording import counted


def higher_than_counterpart(results: Results, means: Aggregates) -> list[str]:
    """F1 and lift of robust models against their standard counterparts, on the same images."""
    sentences = []
    for kind in COMPARED:
        pairs = means.pairs([kind])
        for method in panel_methods(means.methods):
            f1, lift = (
                [means.differences[pair, method, score] for pair in pairs if (pair, method, score) in means.differences]
                for score in ("f1", "lift")
            )
            changes = [means.changes[pair, method, "f1"] for pair in pairs if (pair, method, "f1") in means.differences]
            if f1:
                sentences.append(
                    f"{kind.capitalize()} models have a higher F1 than their standard counterparts with {method} in "
                    f"{positive(f1)} of {counted(len(f1), 'pair')}, significantly "
                    f"({CORRECTED}) in {sum(significantly_above(f1, changes))}; "
                    f"a higher lift in {positive(lift)}."
                )
    return sentences


def above_every_standard_model(results: Results, means: Aggregates) -> list[str]:
    """Robust models above every standard model of the same data, not only above their own counterpart."""
    counts = []
    for method in panel_methods(means.methods):
        f1 = {
            model: means.scores[model.name, method, "f1"].mean
            for model in means.models
            if (model.name, method, "f1") in means.scores and means.scores[model.name, method, "f1"].used
        }
        standard = {model: [f1[one] for one in f1 if one.kind == "standard" and one.data == model.data] for model in f1}
        robust = [model for model in f1 if model.kind == "robust" and len(standard[model]) > 1]
        if robust:
            above = sum(f1[model] > max(standard[model]) for model in robust)
            counts.append(f"{method} {above} of {len(robust)}")
    if not counts:
        return []
    return [f"Robust models with a higher mean F1 than every standard model of the same data: {'; '.join(counts)}."]


def boundary_distance(results: Results, means: Aggregates) -> list[str]:
    """How much farther the decision boundary is."""
    sentences = []
    for kind in COMPARED:
        ratios = []
        for pair in means.pairs([kind]):
            near, far = (means.distance.get(model.name) for model in pair)
            if near is not None and far is not None and near.used and far.used and near.mean > 0:
                ratios.append(far.mean / near.mean)
        if ratios:
            pairs = f"median of {len(ratios)} pairs" if len(ratios) > 1 else "1 pair"
            sentences.append(
                f"The decision boundary of {kind} models is {float(np.median(ratios)):.1f} times as far away as that of "
                f"their standard counterparts ({pairs})."
            )
    return sentences
