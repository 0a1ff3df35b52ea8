"""Locality by attribution (lift of each method) against locality by intervention (reliance of the region tests)."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import (
    ABSTENTIONS,
    HEIGHT,
    KINDS,
    PANELS,
    SCORE_TITLES,
    Panel,
    defined,
    draw_pair_arrows,
    draw_points,
    elements,
    finish_figure,
    finish_panel,
    model_points,
)
from locality.report.figures.style import GREY, STYLE, Width, label_axes, panels
from locality.report.regions import region_tested
from locality.results.results import Results


@mpl.rc_context(STYLE)
def locality_against_reliance(
    results: Results, score: str = "lift", methods: Sequence[str] | None = None, width: Width = "page"
) -> Plot:
    """A score of each model against its reliance on the region, one panel per method; ρ is over the trained models.

    Chance is 0 on both axes, which the thin lines mark: models in two opposite quarters are judged differently.
    """
    tested = {name: one.reliance for name, one in region_tested(results).items()}
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    models = [model for model in means.models if defined(tested.get(model.name))]
    if not models or not chosen:
        raise NotMeasuredError("no model has both region tests and locality")
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn = []
    for panel, method in zip(axes, chosen, strict=True):
        points = model_points(means, models, method, score, tested)
        for line in (panel.axvline, panel.axhline) if score == "lift" else (panel.axvline,):
            line(0, color=GREY, linewidth=0.7, zorder=1)
        arrows = draw_pair_arrows(panel, points)
        draw_points(panel, points, models)
        trained = [point for point in points if point.model.kind != "random"]
        prefix = "trained: " if len(trained) < len(points) else ""
        correlation = finish_panel(panel, method, trained, prefix, shares=False)
        drawn.append(Panel(panel, points, arrows, correlation=correlation))
    label_axes(axes, "reliance on the region (by intervention)", f"locality ({SCORE_TITLES[score]})", width)
    finish_figure(figure, drawn, models, width)
    return Plot(figure, elements(drawn, models, means), len(models))


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_reliance(results, options.score or "lift", options.methods, width)


REGIONS = Drawing(
    "locality_vs_reliance",
    "Locality by attribution against locality by intervention",
    (
        "Reliance: how much more a decision depends on the region than on the same shape elsewhere, when either, or all "
        "else, is greyed or blurred.",
        "Thin lines are chance.",
        *KINDS,
        If("pair arrows", "Thin arrows lead from a standard model to the models that are compared with it."),
        "Bars are 95 % bootstrap intervals over images.",
        ABSTENTIONS,
        PANELS,
        If("correlation", "ρ is Spearman's rank correlation over the trained models."),
    ),
    _draw,
)
