"""Panels with one point per model, shared by the figures of locality against an accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from locality.report.aggregates import Aggregates
from locality.report.estimates import Estimate
from locality.report.figures.drawing import Element, If
from locality.report.figures.legend import model_legend
from locality.report.figures.point_labels import Point, Polyline, letter_key, model_letters, write_letters
from locality.report.figures.style import GREY, LOOKS, Width, draw_model, family_markers, plain, write_note
from locality.report.models import Model, pairs_of
from locality.report.tables.formats import signed_text
from locality.statistics import correlation

SCORE_TITLES = {"f1": "F1", "precision": "precision", "recall": "recall", "lift": "lift"}
METHOD_TITLES = {
    "SM": "Saliency Map",
    "IG": "Integrated Gradients",
    "BIG": "Boundary-based IG",
    "BSM": "Boundary-based SM",
    "BSG": "Boundary-based SmoothGrad",
    "BDeepLIFT": "Boundary-based DeepLIFT",
}
HEIGHT = 2.9  # inches
DASHES = (0, (4, 2.5))
PAIR_ARROW: Any = {
    "arrowstyle": "-|>",
    "mutation_scale": 6,
    "linewidth": 0.6,
    "color": LOOKS["standard"].colour,
    "alpha": 0.45,
    "zorder": 2.5,
}
# Darker than the robust models, above which it runs, with its head beyond them.
TREND_ARROW: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 1.3, "color": "#00402F", "zorder": 4.5}
# Legend entries.
RANDOM_WEIGHTS, PAIR, TREND = "random weights", "pair, from standard", "trend of robust models"

# Sentences of captions.
BARS = "Bars are 95 % intervals over images: bootstrap for scores, Wilson for accuracies."
PANELS = If("several panels", "Each panel has its own vertical scale.")
RANDOM = If("random weights", "Dashed: a model with random weights; the band is its interval.")
KINDS = (
    *(If(kind, f"{kind.capitalize()} models are {LOOKS[kind].words}.") for kind in ("standard", "robust", "certified")),
    If("random", f"Models with random weights are {LOOKS['random'].words}."),
)
ABSTENTIONS = If("abstentions", "Abstentions are neither correct nor scored; accuracy is correct / all images.")


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel and what is drawn in it."""

    axes: Axes
    points: Sequence[Point]
    pair_arrows: Sequence[Polyline] = ()
    trend_arrow: Sequence[Polyline] = ()
    random_weights: bool = False
    correlation: bool = False


def model_points(
    means: Aggregates, models: Sequence[Model], method: str, score: str, accuracy: Mapping[str, Estimate]
) -> list[Point]:
    """Accuracy and score of the models that have both."""
    points = []
    for model in models:
        height = means.scores.get((model.name, method, score))
        if height is not None and height.used and defined(accuracy.get(model.name)):
            points.append(Point(model, accuracy[model.name], height))
    return points


def draw_points(axes: Axes, points: Iterable[Point], models: Sequence[Model]) -> None:
    """A marker per model."""
    markers = family_markers(models)
    for point in points:
        draw_model(axes, point.model, point.x, point.y, markers[point.model.family])


def draw_random_weights(axes: Axes, means: Aggregates, method: str, score: str) -> bool:
    """A dashed line per model with random weights, its interval as a band; returns whether there is one."""
    drawn = False
    for model in means.models:
        floor = means.scores.get((model.name, method, score))
        if model.kind == "random" and floor is not None and floor.used:
            axes.axhline(floor.mean, color=GREY, linestyle=DASHES, linewidth=1.0, zorder=1.5)
            if not math.isnan(floor.low):
                axes.axhspan(floor.low, floor.high, color=GREY, alpha=0.13, linewidth=0, zorder=1)
            drawn = True
    return drawn


def draw_pair_arrows(axes: Axes, points: Sequence[Point]) -> list[Polyline]:
    """Arrows from standard models to those compared with them; returns where they are."""
    centres = {point.model.name: (point.x.mean, point.y.mean) for point in points}
    arrows: list[Polyline] = [
        [centres[standard.name], centres[model.name]] for standard, model in pairs_of(point.model for point in points)
    ]
    for arrow in arrows:
        axes.add_patch(FancyArrowPatch(*arrow, shrinkA=4, shrinkB=4, **PAIR_ARROW))
    return arrows


def draw_trend(axes: Axes, points: Sequence[Point], span: float) -> list[Polyline]:
    """The least-squares line through the points as an arrow; none for two points or equal accuracies.

    `span` is the range of the accuracies of all models of the panel.
    """
    x = np.array([point.x.mean for point in points])
    y = np.array([point.y.mean for point in points])
    if len(points) < 3 or np.ptp(x) == 0:
        return []
    slope, height = np.polyfit(x, y, 1)
    # Beyond the outermost points and their bars, so that the arrow's head is free; no accuracy is above 1.
    reach = max(0.35 * np.ptp(x), 0.12 * span)
    ends = [
        (float(end), float(height + slope * end))
        for end in (max(0.0, x.min() - 0.35 * np.ptp(x)), min(1.0, x.max() + reach))
    ]
    axes.add_patch(FancyArrowPatch(*ends, shrinkA=0, shrinkB=0, **TREND_ARROW))
    axes.update_datalim(ends)
    return [ends]


def finish_panel(axes: Axes, method: str, points: Sequence[Point], prefix: str = "", shares: bool = True) -> bool:
    """Title, ticks and the rank correlation of the points; returns whether there is a correlation.

    The horizontal axis is in per cent if it has `shares`.
    """
    trend = correlation([point.x.mean for point in points], [point.y.mean for point in points])
    known = not math.isnan(trend.spearman)
    if known:
        p = "p < 0.001" if trend.spearman_p < 0.001 else f"p = {trend.spearman_p:.2g}"
        text = f"ρ = {signed_text(trend.spearman)}, {p}, {trend.used} models".replace("-", "−")
    else:
        text = f"{trend.used} model{'s' if trend.used != 1 else ''}, too few for a trend"
    axes.set_title(METHOD_TITLES.get(method, plain(method)), pad=13)
    write_note(axes, prefix + text)
    axes.margins(x=0.08, y=0.08)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if shares:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol="%"))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    return known


def finish_figure(figure: Figure, panels: Sequence[Panel], models: Sequence[Model], width: Width) -> None:
    """Legend and letters; the legend has only what at least one panel shows."""
    others: list[tuple[Any, str]] = []
    if any(panel.random_weights for panel in panels):
        others.append((Line2D([], [], color=GREY, linestyle=DASHES, linewidth=1.0), RANDOM_WEIGHTS))
    if any(panel.pair_arrows for panel in panels):
        others.append((FancyArrowPatch((0, 0), (1, 0), **PAIR_ARROW), PAIR))
    if any(panel.trend_arrow for panel in panels):
        others.append((FancyArrowPatch((0, 0), (1, 0), **TREND_ARROW), TREND))
    model_legend(figure, models, others, letter_key(models, width), width)
    letters = model_letters(models)
    if letters:
        figure.draw_without_rendering()  # fixes limits and layout, which the positions of letters depend on
        for panel in panels:
            write_letters(panel.axes, panel.points, letters, [*panel.pair_arrows, *panel.trend_arrow])


def elements(panels: Sequence[Panel], models: Sequence[Model], means: Aggregates) -> frozenset[Element]:
    """What the caption must explain."""
    shown: dict[Element, bool] = {
        "random weights": any(panel.random_weights for panel in panels),
        "pair arrows": any(panel.pair_arrows for panel in panels),
        "trend arrow": any(panel.trend_arrow for panel in panels),
        "correlation": any(panel.correlation for panel in panels),
        "several panels": len(panels) > 1,
        "abstentions": abstaining(means, models),
    }
    return frozenset([element for element, there in shown.items() if there] + [model.kind for model in models])


def abstaining(means: Aggregates, models: Iterable[Model]) -> bool:
    """Whether any of the models abstained."""
    return any(model.name in means.abstained and means.abstained[model.name].mean > 0 for model in models)


def defined(mean: Estimate | None) -> bool:
    """Whether there is a mean."""
    return mean is not None and mean.used > 0
