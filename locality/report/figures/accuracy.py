"""Figures 3.2, B.1 and B.2: locality, precision and recall of standard models against their accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import (
    ABSTENTIONS,
    BARS,
    HEIGHT,
    PANELS,
    RANDOM,
    SCORE_TITLES,
    Panel,
    defined,
    draw_points,
    draw_random_weights,
    elements,
    finish_figure,
    finish_panel,
    model_points,
)
from locality.report.figures.style import STYLE, Width, label_axes, panels
from locality.results.results import Results


@mpl.rc_context(STYLE)
def locality_against_accuracy(
    results: Results, score: str = "f1", methods: Sequence[str] | None = None, width: Width = "page"
) -> Plot:
    """A score of each standard model against its accuracy, one panel per method; ρ is over the models drawn.

    Where there are no standard models, all trained ones are drawn.
    """
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    standard = [model for model in means.models if model.kind == "standard"]
    candidates = standard or [model for model in means.models if model.kind != "random"]
    models = [model for model in candidates if defined(means.accuracy.get(model.name))]
    if not models or not chosen:
        raise NotMeasuredError("no model has both accuracy and locality")
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn = []
    for panel, method in zip(axes, chosen, strict=True):
        points = model_points(means, models, method, score, means.accuracy)
        random = draw_random_weights(panel, means, method, score)
        draw_points(panel, points, models)
        correlation = finish_panel(panel, method, points)
        drawn.append(Panel(panel, points, random_weights=random, correlation=correlation))
    label_axes(axes, "accuracy", f"locality ({SCORE_TITLES[score]})", width)
    finish_figure(figure, drawn, models, width)
    return Plot(figure, elements(drawn, models, means), len(models))


def _draw_f1(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_accuracy(results, options.score or "f1", options.methods, width)


def _draw_precision(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_accuracy(results, "precision", options.methods, width)


def _draw_recall(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_accuracy(results, "recall", options.methods, width)


EXPLAINED = (RANDOM, BARS, ABSTENTIONS, PANELS, If("correlation", "ρ is Spearman's rank correlation over the models."))
ACCURACY = Drawing("fig3_2", "Locality against accuracy", EXPLAINED, _draw_f1)
PRECISION = Drawing(
    "figB_1",
    "Precision against accuracy",
    ("Precision: share of the positive attribution that lies in the box.", *EXPLAINED),
    _draw_precision,
)
RECALL = Drawing(
    "figB_2",
    "Recall against accuracy",
    ("Recall: share of the attribution in the box that is positive.", *EXPLAINED),
    _draw_recall,
)
