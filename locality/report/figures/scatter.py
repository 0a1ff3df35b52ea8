"""One point a model: locality against accuracy (Figures 3.2, B.1, B.2) and against robust accuracy (Figure 3.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from locality.report.aggregates import (
    Budget,
    Measure,
    Measured,
    Model,
    NotMeasuredError,
    measured,
    usual_budget,
)
from locality.report.figures.options import shown_methods
from locality.report.figures.point_labels import Polyline
from locality.report.figures.point_letters import Point, letter_key, model_letters, write_letters
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

TITLES = {"f1": "F1", "precision": "precision", "recall": "recall", "lift": "lift"}
METHOD_TITLES = {"SM": "Saliency Map", "IG": "Integrated Gradient", "BIG": "Boundary-based IG", "BSM": "Boundary-based SM"}
FLOOR, TWIN, TREND = "random weights", "to its robust twin", "trend of the robust"  # in the legend
HEIGHT = 2.9  # inches
DASHES = (0, (4, 2.5))
TWIN_ARROW: Any = {
    "arrowstyle": "-|>",
    "mutation_scale": 6,
    "linewidth": 0.6,
    "color": COLOURS["standard"],
    "alpha": 0.45,
    "zorder": 2.5,
}
# Darker than the robust models, above which it runs, with its head beyond them.
TREND_ARROW: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 1.3, "color": "#00402F", "zorder": 4.5}


class Drawn(NamedTuple):
    """A panel with what stands in it."""

    panel: Axes
    points: Sequence[Point]
    twins: Sequence[Polyline] = ()  # arrows
    trend: Sequence[Polyline] = ()
    floor: bool = False


@mpl.rc_context(STYLE)
def locality_against_accuracy(
    results: Results, score: str = "f1", methods: Sequence[str] | None = None, width: Width = "page"
) -> Figure:
    """Figures 3.2, B.1 and B.2: a score of each standard model against its accuracy, one panel a method.

    The dashed line is the random model, the floor. Bars and the band are 95 % bootstrap intervals over images. ρ is
    Spearman's rank correlation over the models drawn.
    """
    found = measured(results)
    chosen = shown_methods(methods, found.methods)
    models = [model for model in found.models if model.kind == "standard"]
    models = models or [model for model in found.models if model.kind != "random"]
    names = [model for model in models if _defined(found.accuracy.get(model.name))]
    if not names or not chosen:
        raise NotMeasuredError("accuracy and locality of no model were both measured")
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn: list[Drawn] = []
    for panel, method in zip(axes, chosen, strict=True):
        points = _points(found, names, method, score, found.accuracy)
        floor = _random_line(panel, found, method, score)
        _draw_points(panel, points, family_markers(names))
        _finish(panel, method, points)
        drawn.append(Drawn(panel, points, floor=floor))
    label_axes(axes, "accuracy", f"locality ({TITLES[score]})", width)
    _legend(figure, drawn, names, width)
    _write_letters(figure, drawn, names)
    return figure


@mpl.rc_context(STYLE)
def locality_against_robustness(
    results: Results,
    score: str = "f1",
    methods: Sequence[str] | None = None,
    budget: Budget | None = None,
    width: Width = "page",
) -> Figure:
    """Figure 3.4: a score of each model against its accuracy under attack, standard blue and hollow, robust green and full.

    A thin arrow leads from a standard model to each of its robust twins. The dark arrow is the least-squares line through
    the robust models; ρ is Spearman's rank correlation over them. Unlike the thesis, which draws a standard model above its
    twin, every model stands at its own measured accuracy under attack.
    """
    found = measured(results)
    chosen = shown_methods(methods, found.methods)
    allowed = budget or usual_budget(found.robust)
    robust = {name: measure for (name, each), measure in found.robust.items() if each == allowed}
    names = [model for model in found.models if model.kind != "random" and _defined(robust.get(model.name))]
    if not names or not chosen:
        raise NotMeasuredError("accuracy under attack and locality of no model were both measured")
    figure, axes = panels(len(chosen), HEIGHT, width)
    drawn: list[Drawn] = []
    for panel, method in zip(axes, chosen, strict=True):
        points = _points(found, names, method, score, robust)
        floor = _random_line(panel, found, method, score)
        trained = [point for point in points if point.model.kind == "robust"]
        twins = _twin_arrows(panel, points)
        trend = _trend_arrow(panel, trained, float(np.ptp([point.x.mean for point in points])) if points else 0.0)
        _draw_points(panel, points, family_markers(names))
        _finish(panel, method, trained, "robust: ")
        drawn.append(Drawn(panel, points, twins, trend, floor))
    below = f"accuracy under attack ({plain(str(allowed), 60)})"
    label_axes(axes, below, f"locality ({TITLES[score]})", width)
    _legend(figure, drawn, names, width)
    _write_letters(figure, drawn, names)
    return figure


def _points(found: Measured, models: Sequence[Model], method: str, score: str, across: dict[str, Measure]) -> list[Point]:
    points = []
    for model in models:
        height = found.scores.get((model.name, method, score))
        if height is not None and height.used and _defined(across.get(model.name)):
            points.append(Point(model, across[model.name], height))
    return points


def _draw_points(panel: Axes, points: Sequence[Point], markers: dict[str, str]) -> None:
    for point in points:
        draw_model(panel, point.model, point.x, point.y, markers[point.model.family])


def _random_line(panel: Axes, found: Measured, method: str, score: str) -> bool:
    """The floor: a dashed line for each random model, with its interval as a band; says whether there is one."""
    drawn = False
    for model in found.models:
        floor = found.scores.get((model.name, method, score))
        if model.kind == "random" and floor is not None and floor.used:
            panel.axhline(floor.mean, color=GREY, linestyle=DASHES, linewidth=1.0, zorder=1.5)
            if not math.isnan(floor.low):
                panel.axhspan(floor.low, floor.high, color=GREY, alpha=0.13, linewidth=0, zorder=1)
            drawn = True
    return drawn


def _twin_arrows(panel: Axes, points: Sequence[Point]) -> list[Polyline]:
    """Draws them, and says where they are."""
    there = {point.model.name: point for point in points}
    arrows: list[Polyline] = []
    for point in points:
        if point.model.kind == "robust" and point.model.twin in there:
            start = there[point.model.twin]
            arrows.append([(start.x.mean, start.y.mean), (point.x.mean, point.y.mean)])
            panel.add_patch(FancyArrowPatch(*arrows[-1], shrinkA=4, shrinkB=4, **TWIN_ARROW))
    return arrows


def _trend_arrow(panel: Axes, points: Sequence[Point], span: float) -> list[Polyline]:
    """The least-squares line over the range of the points; two points or equal accuracies have no trend.

    `span` is how far all models of the panel lie apart, from left to right.
    """
    x = np.array([point.x.mean for point in points])
    y = np.array([point.y.mean for point in points])
    if len(points) < 3 or np.ptp(x) == 0:
        return []
    slope, height = np.polyfit(x, y, 1)
    # Beyond the outermost points and their bars, so that the arrow's head stands free; no accuracy lies beyond 1.
    reach = max(0.35 * np.ptp(x), 0.12 * span)
    ends = [
        (float(each), float(height + slope * each))
        for each in (max(0.0, x.min() - 0.35 * np.ptp(x)), min(1.0, x.max() + reach))
    ]
    panel.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=0, **TREND_ARROW))
    panel.update_datalim(ends)
    return [ends]


def _finish(panel: Axes, method: str, points: Sequence[Point], prefix: str = "") -> None:
    """Title and axis; under the title the rank correlation, with its p and the number of models."""
    found = correlation([point.x.mean for point in points], [point.y.mean for point in points])
    if math.isnan(found.spearman):
        text = f"{prefix}{found.used} model{'s' if found.used != 1 else ''}, no trend to tell"
    else:
        p = "p < 0.001" if found.spearman_p < 0.001 else f"p = {found.spearman_p:.2g}"
        text = f"{prefix}ρ = {signed_text(found.spearman)}, {p}, {found.used} models".replace("-", "−")
    panel.set_title(METHOD_TITLES.get(method, plain(method)), pad=13)
    panel.annotate(
        text, (0.5, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6.5, color=GREY, ha="center"
    )
    panel.margins(x=0.08, y=0.08)
    panel.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    panel.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol="%"))
    panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _write_letters(figure: Figure, drawn: Sequence[Drawn], models: Sequence[Model]) -> None:
    letters = model_letters(models)
    if letters:
        figure.draw_without_rendering()  # fixes limits and layout, which letters are placed by
    for each in drawn if letters else ():
        write_letters(each.panel, each.points, letters, [*each.twins, *each.trend])


def _legend(figure: Figure, drawn: Sequence[Drawn], models: Sequence[Model], width: Width) -> None:
    """Only what at least one panel shows; captions go by it."""
    others: list[tuple[Any, str]] = []
    if any(each.floor for each in drawn):
        others.append((Line2D([], [], color=GREY, linestyle=DASHES, linewidth=1.0), FLOOR))
    if any(each.twins for each in drawn):
        others.append((FancyArrowPatch((0, 0), (1, 0), **TWIN_ARROW), TWIN))
    if any(each.trend for each in drawn):
        others.append((FancyArrowPatch((0, 0), (1, 0), **TREND_ARROW), TREND))
    model_legend(figure, models, others, letter_key(models, width), width)


def _defined(measure: Measure | None) -> bool:
    return measure is not None and measure.used > 0
