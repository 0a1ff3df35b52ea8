"""Locality against the weight-curvature index, the top layer's Hessian trace and the robust generalisation gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import matplotlib as mpl

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.curvature import Curved, curvatures
from locality.report.estimates import Estimate
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import (
    ABSTENTIONS,
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
    elements,
    finish_figure,
    finish_panel,
    model_points,
)
from locality.report.figures.style import STYLE, Width, label_axes, log_scale, panels
from locality.results.results import Results

Number = Callable[[Curved], Estimate]


@mpl.rc_context(STYLE)
def locality_against_curvature(
    results: Results,
    number: Number,
    title: str,
    score: str = "f1",
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Plot:
    """A score of each trained model against a number of its curvature, one panel per method; ρ is over the robust models.

    Standard models are wrong with confidence under attack, where any loss is flat. The horizontal axis is logarithmic where
    all numbers are positive.
    """
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    across = {name: number(one) for name, one in curvatures(results).items()}
    models = [model for model in means.models if model.kind != "random" and defined(across.get(model.name))]
    if not models or not chosen:
        raise NotMeasuredError("no model has both curvature and locality")
    smallest = min(across[model.name].mean for model in models)
    positive = smallest > 0
    if positive:  # an interval that reaches 0 ends somewhere on a logarithmic axis
        across = {name: replace(one, low=max(one.low, smallest / 2)) for name, one in across.items()}
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn = []
    for panel, method in zip(axes, chosen, strict=True):
        points = model_points(means, models, method, score, across)
        random = draw_random_weights(panel, means, method, score)
        draw_points(panel, points, models)
        if positive:
            panel.set_xscale("log")  # before the arrows, which are straight on the scale that they are drawn in
        arrows = draw_pair_arrows(panel, points)
        robust = [point for point in points if point.model.kind == "robust"]
        correlation = finish_panel(panel, method, robust, "robust: ", shares=False)
        if positive:
            log_scale(panel)
        drawn.append(Panel(panel, points, arrows, random_weights=random, correlation=correlation))
    label_axes(axes, title, f"locality ({SCORE_TITLES[score]})", width)
    finish_figure(figure, drawn, models, width)
    return Plot(figure, elements(drawn, models, means))


def _draw(results: Results, options: FigureOptions, width: Width, number: Number, title: str) -> Plot:
    return locality_against_curvature(results, number, title, options.score or "f1", options.methods, width)


def _drawing(file: str, title: str, axis: str, number: Number, bars: str) -> Drawing:
    sentences: tuple[str | If, ...] = (
        *KINDS,
        If("pair arrows", "Thin arrows lead from a standard model to the models that are compared with it."),
        RANDOM,
        f"Vertical bars are 95 % bootstrap intervals over images. {bars}",
        ABSTENTIONS,
        PANELS,
        If("correlation", "ρ is Spearman's rank correlation over the robust models."),
    )
    return Drawing(file, title, sentences, partial(_draw, number=number, title=axis))


WCI = _drawing(
    "locality_vs_wci",
    "Locality against the weight-curvature index",
    "weight-curvature index of the robust loss",
    lambda one: one.usable_index,
    "Horizontal bars are the error of random probes; exact traces have none. Models with mostly negative "
    "traces are not drawn.",
)
TRH = _drawing(
    "locality_vs_trh",
    "Locality against the top layer's Hessian trace",
    "Hessian trace of the top layer",
    lambda one: one.top_trace,
    "So are horizontal ones, over training images.",
)
GAP = _drawing(
    "locality_vs_gap",
    "Locality against the robust gap",
    "gap of the robust loss, test − train",
    lambda one: one.loss_gap,
    "Horizontal bars are 95 % intervals of a difference of different images.",
)
