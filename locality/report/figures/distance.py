"""Locality against the distance to the decision boundary, between models and within each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from locality.intervals import UNBOUNDED
from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.estimates import Estimate, boundary_distances, estimates, floats
from locality.report.figures.drawing import Drawing, Element, If, Plot
from locality.report.figures.legend import model_legend
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.point_labels import MANY_MODELS, Point, letter_key, model_letters, write_letters
from locality.report.figures.scatter import (
    ABSTENTIONS,
    HEIGHT,
    KINDS,
    METHOD_TITLES,
    PANELS,
    SCORE_TITLES,
    abstaining,
    defined,
)
from locality.report.figures.style import (
    GREY,
    LOOKS,
    STYLE,
    Width,
    draw_model,
    family_markers,
    label_axes,
    log_scale,
    panels,
    plain,
    write_note,
)
from locality.report.models import Model
from locality.report.tables.formats import signed_text
from locality.results.results import Results
from locality.results.schema import SUPPORTS
from locality.statistics import correlation

QUARTERS = "quarters of its images"  # in the legend
BINS = 4  # groups of equally many images
FEWEST = 5  # images per group


@dataclass(frozen=True)
class Curve:
    """A model's means, and the means of its images in groups from the nearest to the boundary to the farthest."""

    model: Model
    distance: Estimate
    score: Estimate
    group_distances: NDArray[np.float64]
    groups: list[Estimate]


@mpl.rc_context(STYLE)
def locality_against_distance(
    results: Results, score: str = "f1", methods: Sequence[str] | None = None, width: Width = "page"
) -> Plot:
    """A score against the ℓ2 distance to the boundary: a marker per model, and a line through the quarters of its images.

    If distance itself went with locality, the lines would rise too, not only the markers from standard to robust. Images
    without a boundary are left out. ρ is Spearman's over models, then the median of those over the images of each model.
    """
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    curves = {method: _curves(results, method, score) for method in chosen}
    drawn = {curve.model for several in curves.values() for curve in several}
    models = [model for model in means.models if model in drawn]
    if not models:
        raise NotMeasuredError("no model has both boundary distance and locality")
    figure, axes = panels(len(chosen), HEIGHT, width)
    markers, notes = family_markers(models), []
    for panel, method in zip(axes, chosen, strict=True):
        for curve in curves[method]:
            _draw_curve(panel, curve, markers, len(models) < MANY_MODELS)
        panel.set_title(METHOD_TITLES.get(method, plain(method)), pad=13)
        notes.append(_correlations(results, curves[method], method, score))
        write_note(panel, f"ρ = {notes[-1]}" if notes[-1] else "too few models and images for a trend")
        log_scale(panel)
    label_axes(axes, "ℓ2 distance to the decision boundary", f"locality ({SCORE_TITLES[score]})", width)
    quarters = any(len(curve.groups) > 1 for several in curves.values() for curve in several)
    lines = [(Line2D([], [], color=GREY, linewidth=0.9), QUARTERS)] if quarters else []
    model_legend(figure, models, lines, letter_key(models, width), width)
    letters = model_letters(models)
    if letters:
        figure.draw_without_rendering()  # fixes limits and layout, which the positions of letters depend on
        for panel, method in zip(axes, chosen, strict=True):
            points = [Point(curve.model, curve.distance, curve.score) for curve in curves[method]]
            write_letters(panel, points, letters)  # the thin lines are everywhere; letters can be read above them
    shown: dict[Element, bool] = {
        "quarters": quarters,
        "correlation": any(notes),
        "several panels": len(chosen) > 1,
        "abstentions": abstaining(means, models),
    }
    there = [element for element, seen in shown.items() if seen] + [model.kind for model in models]
    return Plot(figure, frozenset(there), len(models))


def _curves(results: Results, method: str, score: str) -> list[Curve]:
    means = aggregate(results)
    curves = []
    for model in means.models:
        height, distance = means.scores.get((model.name, method, score)), means.distance.get(model.name)
        if height is None or distance is None or not defined(height) or not defined(distance):
            continue
        distances, values = _defined_images(results.rows, model.name, method, score)
        order = np.argsort(distances, kind="stable")
        parts = [part for part in np.array_split(order, BINS) if len(part) >= FEWEST]
        medians = np.array([np.median(distances[part]) for part in parts])
        groups = estimates([values[part] for part in parts], supports=[SUPPORTS.get(score, UNBOUNDED)] * len(parts))
        curves.append(Curve(model, distance, height, medians, groups))
    return curves


def _defined_images(
    rows: pd.DataFrame, model: str, method: str, score: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distance and score of the images that have both."""
    own = rows[(rows["model"] == model) & (rows["method"] == method)]
    distances, values = boundary_distances(own), floats(own[score])
    both = ~(np.isnan(distances) | np.isnan(values))
    return distances[both], values[both]


def _draw_curve(panel: Axes, curve: Curve, markers: dict[str, str], bands: bool) -> None:
    colour = LOOKS[curve.model.kind].colour
    if len(curve.groups) > 1:
        low, high = ([getattr(group, end) for group in curve.groups] for end in ("low", "high"))
        if bands:  # those of many models cover each other
            panel.fill_between(curve.group_distances, low, high, color=colour, alpha=0.08, linewidth=0, zorder=1.5)
        heights = [group.mean for group in curve.groups]
        panel.plot(curve.group_distances, heights, color=colour, linewidth=0.7, alpha=0.75, zorder=2)
    draw_model(panel, curve.model, curve.distance, curve.score, markers[curve.model.family])


def _correlations(results: Results, curves: Sequence[Curve], method: str, score: str) -> str:
    """The rank correlations between and within models; empty where there are none."""
    between = correlation([curve.distance.mean for curve in curves], [curve.score.mean for curve in curves])
    within = []
    for curve in curves:
        distances, values = _defined_images(results.rows, curve.model.name, method, score)
        if len(distances) >= 2 * FEWEST and np.ptp(distances) > 0 and np.ptp(values) > 0:
            within.append(_rank_correlation(distances, values))
    words = []
    if not math.isnan(between.spearman):
        words.append(f"{signed_text(between.spearman)} between models")
    if within:
        words.append(f"{signed_text(float(np.median(within)))} within" + ("" if words else " models"))
    return ", ".join(words)


def _rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return locality_against_distance(results, options.score or "f1", options.methods, width)


DISTANCE = Drawing(
    "locality_vs_distance",
    "Locality against boundary distance",
    (
        "A marker is the mean of a model.",
        If(
            "quarters",
            "Its line joins the quarters of its images, nearest to the boundary first: if distance itself went with "
            "locality, the lines would rise too.",
        ),
        *KINDS,
        "Bars and bands are 95 % bootstrap intervals over images; for ten models or more, bands are omitted.",
        ABSTENTIONS,
        PANELS,
        If("correlation", "ρ is Spearman's rank correlation: over models, and over the images of a model (median)."),
    ),
    _draw,
)
