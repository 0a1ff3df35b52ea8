"""Whether F1 rises with accuracy or, Finding II, with accuracy under attack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from locality.report.aggregates import Aggregates, panel_methods, usual_budget
from locality.report.models import Model
from locality.report.tables.formats import signed_text
from locality.results.results import Results
from locality.statistics import correlation

SIGNIFICANT = 0.05  # p below which a trend is called positive or negative


def trend_with_accuracy(results: Results, means: Aggregates) -> list[str]:
    """Among standard models, does F1 rise with accuracy?"""
    accuracy = {name: mean.mean for name, mean in means.accuracy.items() if mean.used}
    standard = [model for model in means.models if model.kind == "standard" and model.name in accuracy]
    return _trends(means, standard, accuracy, "standard", "accuracy")


def trend_with_robust_accuracy(results: Results, means: Aggregates) -> list[str]:
    """Among robust models, does F1 rise with accuracy under attack?"""
    if not means.robust:
        return []
    budget = usual_budget(means.robust)
    robust = [model for model in means.models if model.kind == "robust" and (model.name, budget) in means.robust]
    accuracy = {model.name: means.robust[model.name, budget].mean for model in robust}
    return _trends(means, robust, accuracy, "robust", f"accuracy under attack ({budget})")


def _trends(
    means: Aggregates, models: Sequence[Model], accuracy: Mapping[str, float], kind: str, quantity: str
) -> list[str]:
    """One sentence per data set: F1 depends on the size of the boxes."""
    names = list(dict.fromkeys(model.data for model in means.models))
    sentences = []
    for data in names:
        suffix = f" on {data}" if data and len(names) > 1 else ""
        correlations, count = _correlations(means, [model for model in models if model.data == data], accuracy)
        if correlations:
            sentences.append(
                f"Rank correlation of F1 with {quantity} over {count} {kind} models{suffix}: {'; '.join(correlations)}."
            )
    return sentences


def _correlations(means: Aggregates, models: Sequence[Model], accuracy: Mapping[str, float]) -> tuple[list[str], int]:
    """What each method's correlation is, in words, and over how many models."""
    words, count = [], 0
    for method in panel_methods(means.methods):
        names = [model.name for model in models if (model.name, method, "f1") in means.scores]
        trend = correlation([accuracy[name] for name in names], [means.scores[name, method, "f1"].mean for name in names])
        if not math.isnan(trend.spearman):
            count = trend.used
            significant = trend.spearman_p < SIGNIFICANT
            verdict = ("positive" if trend.spearman > 0 else "negative") if significant else "inconclusive"
            words.append(f"{method} {signed_text(trend.spearman)}, p = {trend.spearman_p:.2g} ({verdict})")
    return words, count
