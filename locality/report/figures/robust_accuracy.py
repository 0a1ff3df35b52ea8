"""Figure 3.4: locality of all models against their accuracy under attack."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np

from locality.report.aggregates import Budget, NotMeasuredError, aggregate, usual_budget
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import (
    ABSTENTIONS,
    BARS,
    HEIGHT,
    KINDS,
    PANELS,
    RANDOM,
    SCORE_TITLES,
    Panel,
    defined,
    draw_pair_arrows,
    draw_points,
    draw_random_weights,
    draw_trend,
    elements,
    finish_figure,
    finish_panel,
    model_points,
)
from locality.report.figures.style import STYLE, Width, label_axes, panels, plain
from locality.results.results import Results


@mpl.rc_context(STYLE)
def locality_against_robustness(
    results: Results,
    score: str = "f1",
    methods: Sequence[str] | None = None,
    budget: Budget | None = None,
    width: Width = "page",
) -> Plot:
    """A score of each model against its accuracy under attack, one panel per method.

    Thin arrows lead from standard models to the models compared with them. The dark arrow is the least-squares line through
    the robust models, and ρ is over them. Unlike in the thesis, which draws a standard model above its counterpart, every
    model is drawn at its own accuracy under attack.
    """
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    shown = budget or usual_budget(means.robust)
    accuracy = {name: mean for (name, own), mean in means.robust.items() if own == shown}
    models = [model for model in means.models if model.kind != "random" and defined(accuracy.get(model.name))]
    if not models or not chosen:
        raise NotMeasuredError("no model has both accuracy under attack and locality")
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn = []
    for panel, method in zip(axes, chosen, strict=True):
        points = model_points(means, models, method, score, accuracy)
        random = draw_random_weights(panel, means, method, score)
        robust = [point for point in points if point.model.kind == "robust"]
        arrows = draw_pair_arrows(panel, points)
        trend = draw_trend(panel, robust, float(np.ptp([point.x.mean for point in points])) if points else 0.0)
        draw_points(panel, points, models)
        correlation = finish_panel(panel, method, robust, "robust: ")
        drawn.append(Panel(panel, points, arrows, trend, random, correlation))
    label_axes(axes, f"accuracy under attack ({plain(str(shown), 60)})", f"locality ({SCORE_TITLES[score]})", width)
    finish_figure(figure, drawn, models, width)
    return Plot(figure, elements(drawn, models, means), len(models))


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_robustness(results, options.score or "f1", options.methods, options.budget, width)


ROBUST_ACCURACY = Drawing(
    "fig3_4",
    "Locality against robust accuracy",
    (
        *KINDS,
        If("pair arrows", "Thin arrows lead from a standard model to the models that are compared with it."),
        If("trend arrow", "The dark arrow is the least-squares line through the robust models."),
        RANDOM,
        BARS,
        ABSTENTIONS,
        PANELS,
        If("correlation", "ρ is Spearman's rank correlation over the robust models."),
    ),
    _draw,
)
