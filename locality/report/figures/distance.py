"""Locality against the distance to the decision boundary, between models and within each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from locality.report.aggregates import (
    Measure,
    Model,
    NotMeasuredError,
    floats,
    found_distance,
    measured,
    measures,
)
from locality.report.figures.options import shown_methods
from locality.report.figures.point_letters import Point, letter_key, model_letters, write_letters
from locality.report.figures.scatter import METHOD_TITLES, TITLES
from locality.report.figures.style import (
    COLOURS,
    GREY,
    STYLE,
    Width,
    draw_model,
    family_markers,
    label_axes,
    model_legend,
    panels,
    plain,
)
from locality.report.tables.formats import signed_text
from locality.results.results import Results
from locality.statistics import correlation

HEIGHT = 2.9  # inches
QUARTERS = "quarters of its images"  # in the legend
BINS = 4  # groups of equally many images
FEWEST = 5  # images of a group: fewer say nothing


@dataclass(frozen=True)
class Curve:
    """One model: its means, and the means of its images from the nearest to the boundary to the farthest."""

    model: Model
    distance: Measure
    score: Measure
    group_distances: NDArray[np.float64]
    groups: list[Measure]


@mpl.rc_context(STYLE)
def locality_against_distance(
    results: Results, score: str = "f1", methods: Sequence[str] | None = None, width: Width = "page"
) -> Figure:
    """A score against the ℓ2 distance to the boundary: a marker is a model's mean, its line the quarters of its images.

    If distance itself went with locality, lines would rise, too, not only the markers from standard to robust. Bars and
    bands are 95 % bootstrap intervals over images. Images without a found boundary are left out. ρ is Spearman's over the
    models, then the median of the models' own over images.
    """
    found = measured(results)
    chosen = shown_methods(methods, found.methods)
    curves = {method: _curves(results, method, score) for method in chosen}
    if not any(curves.values()):
        raise NotMeasuredError("boundary distance and locality of no model were both measured")
    figure, axes = panels(len(chosen), HEIGHT, width)
    models = [model for model in found.models if any(model == curve.model for each in curves.values() for curve in each)]
    markers = family_markers(models)
    for panel, method in zip(axes, chosen, strict=True):
        for curve in curves[method]:
            _draw(panel, curve, markers)
        panel.set_title(METHOD_TITLES.get(method, plain(method)), pad=13)
        panel.annotate(
            _note(results, curves[method], method, score),
            (0.5, 1),
            (0, 3),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=6.5,
            color=GREY,
            ha="center",
        )
        panel.set_xscale("log")
        panel.margins(x=0.06, y=0.08)
        left, right = panel.get_xlim()
        panel.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if right < 30 * left else (1, 3), numticks=20))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
    label_axes(axes, "ℓ2 distance to the decision boundary", f"locality ({TITLES[score]})", width)
    lines = (
        [(Line2D([], [], color=GREY, linewidth=0.9), QUARTERS)] if any(_lined(curves[method]) for method in chosen) else []
    )
    model_legend(figure, models, lines, letter_key(models, width), width)
    letters = model_letters(models)
    if letters:
        figure.draw_without_rendering()  # fixes limits and layout, which letters are placed by
    for panel, method in zip(axes, chosen, strict=True) if letters else ():
        points = [Point(curve.model, curve.distance, curve.score) for curve in curves[method]]
        write_letters(panel, points, letters)  # the thin lines are everywhere, and letters can be read above them
    return figure


def _lined(curves: Sequence[Curve]) -> list[Curve]:
    """Those with enough images for a line."""
    return [curve for curve in curves if len(curve.groups) > 1]


def _curves(results: Results, method: str, score: str) -> list[Curve]:
    found = measured(results)
    curves = []
    for model in found.models:
        overall, far = found.scores.get((model.name, method, score)), found.distance.get(model.name)
        if overall is None or far is None or not overall.used or not far.used:
            continue
        distances, values = _defined_images(results.rows, model.name, method, score)
        order = np.argsort(distances, kind="stable")
        parts = [part for part in np.array_split(order, BINS) if len(part) >= FEWEST]
        middles = np.array([np.median(distances[part]) for part in parts])
        curves.append(Curve(model, far, overall, middles, measures([values[part] for part in parts])))
    return curves


def _defined_images(
    rows: pd.DataFrame, model: str, method: str, score: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distance and score of the images that have both."""
    own = rows[(rows["model"] == model) & (rows["method"] == method)]
    distances, values = found_distance(own), floats(own[score])
    both = ~(np.isnan(distances) | np.isnan(values))
    return distances[both], values[both]


def _draw(panel: Axes, curve: Curve, markers: dict[str, str]) -> None:
    colour = COLOURS[curve.model.kind]
    if len(curve.groups) > 1:
        low, high = ([getattr(group, end) for group in curve.groups] for end in ("low", "high"))
        panel.fill_between(curve.group_distances, low, high, color=colour, alpha=0.08, linewidth=0, zorder=1.5)
        heights = [group.mean for group in curve.groups]
        panel.plot(curve.group_distances, heights, color=colour, linewidth=0.7, alpha=0.75, zorder=2)
    draw_model(panel, curve.model, curve.distance, curve.score, markers[curve.model.family])


def _note(results: Results, curves: Sequence[Curve], method: str, score: str) -> str:
    between = correlation([curve.distance.mean for curve in curves], [curve.score.mean for curve in curves])
    inside = []
    for curve in curves:
        distances, values = _defined_images(results.rows, curve.model.name, method, score)
        if len(distances) >= 2 * FEWEST and np.ptp(distances) > 0 and np.ptp(values) > 0:
            inside.append(_rank_correlation(distances, values))
    words = []
    if not math.isnan(between.spearman):
        words.append(f"{signed_text(between.spearman)} between models")
    if inside:
        words.append(f"{signed_text(float(np.median(inside)))} within" + ("" if words else " models"))
    return f"ρ = {', '.join(words)}" if words else "no trend to tell"


def _rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])
