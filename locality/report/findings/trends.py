"""Whether F1 rises with accuracy or, Finding II, with accuracy under attack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from locality.report.aggregates import Aggregates, panel_methods, usual_budget
from locality.report.models import Model
from locality.report.tables.formats import signed_text
from locality.results.results import Results
from locality.statistics import correlation

SCORE_TITLES = {"f1": "F1", "lift": "lift"}
SIGNIFICANT = 0.05  # p below which a trend is called positive or negative


def trend_with_accuracy(results: Results, means: Aggregates) -> list[str]:
    """Among standard models, does F1 rise with accuracy?"""
    accuracy = {name: mean.mean for name, mean in means.accuracy.items() if mean.used}
    standard = [model for model in means.models if model.kind == "standard" and model.name in accuracy]
    return rank_correlations(means, standard, accuracy, "standard", "accuracy")


def trend_with_robust_accuracy(results: Results, means: Aggregates) -> list[str]:
    """Among robust models, does F1 rise with accuracy under attack?"""
    if not means.robust:
        return []
    budget = usual_budget(means.robust)
    robust = [model for model in means.models if model.kind == "robust" and (model.name, budget) in means.robust]
    accuracy = {model.name: means.robust[model.name, budget].mean for model in robust}
    return rank_correlations(means, robust, accuracy, "robust", f"accuracy under attack ({budget})")


def rank_correlations(
    means: Aggregates,
    models: Sequence[Model],
    numbers: Mapping[str, float],
    kind: str,
    quantity: str,
    score: str = "f1",
) -> list[str]:
    """Rank correlation of a score with a number of each model, one sentence per data set: F1 depends on the boxes' size."""
    names = list(dict.fromkeys(model.data for model in means.models))
    sentences = []
    for data in names:
        suffix = f" on {data}" if data and len(names) > 1 else ""
        correlations, count = _correlations(means, [model for model in models if model.data == data], numbers, score)
        if correlations:
            over = f"{quantity} over {count} {kind} models{suffix}"
            sentences.append(f"Rank correlation of {SCORE_TITLES[score]} with {over}: {'; '.join(correlations)}.")
    return sentences


def _correlations(
    means: Aggregates, models: Sequence[Model], numbers: Mapping[str, float], score: str
) -> tuple[list[str], int]:
    """What each method's correlation is, in words, and over how many models."""
    words, count = [], 0
    for method in panel_methods(means.methods):
        names = [model.name for model in models if (model.name, method, score) in means.scores]
        trend = correlation([numbers[name] for name in names], [means.scores[name, method, score].mean for name in names])
        if not math.isnan(trend.spearman):
            count = trend.used
            significant = trend.spearman_p < SIGNIFICANT
            verdict = ("positive" if trend.spearman > 0 else "negative") if significant else "inconclusive"
            words.append(f"{method} {signed_text(trend.spearman)}, p = {trend.spearman_p:.2g} ({verdict})")
    return words, count
