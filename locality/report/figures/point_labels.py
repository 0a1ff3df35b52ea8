"""Labels beside points: placed so that none covers another or a point, and letters for models that look alike."""

from __future__ import annotations

import itertools
import math
import string
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from numpy.typing import NDArray

from locality.report.estimates import Estimate
from locality.report.figures.style import Width, plain
from locality.report.models import Model

DIRECTIONS = [
    *((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)),
    *((1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5), (0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1)),
]
DISTANCES = (4.5, 9.0, 14.0, 20.0, 27.0, 36.0)  # points, from a marker to its label
MARKER = 3.5  # points, half of a marker with its edge
STEP = 2.0  # points, between the positions of a line that are checked
LEADER: Any = {"arrowstyle": "-", "linewidth": 0.5, "color": "#222222", "shrinkA": 3.5, "shrinkB": 0}
Polyline = Sequence[tuple[float, float]]
OUTSIDE = 1e4  # cost of leaving the panel: more than any overlap
# Cost in points² of a label that is nearer to another marker, or whose line crosses one; a letter covers about 35.
AMBIGUOUS = 30.0
COVERED = 3.0  # cost per point² of overlap
MANY_MODELS = 10  # from so many on, markers and colours alone are hard to tell apart
KEY_LENGTH: dict[Width, int] = {"page": 138, "column": 62}  # characters of a line


@dataclass(frozen=True)
class Point:
    """A model in a panel, with the intervals of its position."""

    model: Model
    x: Estimate
    y: Estimate


def model_letters(models: Sequence[Model]) -> dict[str, str]:
    """A letter for each model that has the same marker and look as another; for every model if there are ten or more.

    >>> first, second = (Model(name, "net", "at", "robust") for name in ("first", "second"))
    >>> model_letters([first, second]), model_letters([first])
    ({'first': 'a', 'second': 'b'}, {})
    """
    looks = [(model.family, model.kind) for model in models]
    many = len(models) >= MANY_MODELS
    shared = [model.name for model, look in zip(models, looks, strict=True) if many or looks.count(look) > 1]
    letters = ("".join(several) for size in (1, 2) for several in itertools.product(string.ascii_letters, repeat=size))
    return dict(zip(shared, letters, strict=False))


def letter_key(models: Sequence[Model], width: Width) -> str | None:
    """The models that the letters stand for, in lines of the figure's width."""
    variants = {model.name: _variant(model) for model in models}
    alike = {text for text in variants.values() if list(variants.values()).count(text) > 1}
    names = {name: name if text in alike else text for name, text in variants.items()}
    entries = [f"{letter} {plain(names[name], 36)}" for name, letter in model_letters(models).items()]
    whole = "   ".join(entry.replace(" ", "\N{NO-BREAK SPACE}") for entry in entries)
    return "\n".join(textwrap.wrap(whole, KEY_LENGTH[width])) or None


def write_letters(panel: Axes, points: Sequence[Point], letters: dict[str, str], lines: Sequence[Polyline] = ()) -> None:
    """The letters beside their points, clear of error bars and `lines`. Call it when limits and layout are final."""
    lettered = [point for point in points if point.model.name in letters]
    bars = [(point.x.low, point.y.mean, point.x.high, point.y.mean) for point in points]
    bars += [(point.x.mean, point.y.low, point.x.mean, point.y.high) for point in points]
    place_labels(
        panel,
        [(point.x.mean, point.y.mean) for point in lettered],
        [letters[point.model.name] for point in lettered],
        [bar for bar in bars if not any(map(math.isnan, bar))],
        [*lines, *([(point.x.mean, point.y.mean)] for point in points)],
        fontsize=7,
        fontweight="bold",
        zorder=6,
    )


def _variant(model: Model) -> str:
    """What distinguishes a model from others of its family and kind."""
    return f"{model.family} {model.training_text}" if model.threat is not None else model.name


def place_labels(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    obstacles: Sequence[tuple[float, float, float, float]] = (),
    lines: Sequence[Polyline] = (),
    **looks: Any,
) -> list[Annotation]:
    """Write each text beside its point, at the position around it that covers the least and is nearest.

    Labels avoid `obstacles`, boxes (x0, y0, x1, y1) in data coordinates such as error bars, and `lines`, sequences of
    corners such as arrows; a line of one corner is a marker without a label. Labels of crowded points are placed first, each
    nearer to its own marker than to others where possible. Call it when limits and layout are final.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer: RendererAgg = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    scale = figure.dpi / 72
    centres = axes.transData.transform(np.array(points, dtype=np.float64).reshape(-1, 2))
    frame = axes.get_window_extent(renderer)
    taken = [(x - MARKER * scale, y - MARKER * scale, x + MARKER * scale, y + MARKER * scale) for x, y in centres]
    for x0, y0, x1, y1 in obstacles:
        (left, bottom), (right, top) = axes.transData.transform([(x0, y0), (x1, y1)])
        taken.append((left - scale, bottom - scale, right + scale, top + scale))
    for line in lines:
        corners = axes.transData.transform(np.array(line, dtype=np.float64))
        half = (MARKER if len(line) == 1 else 1.0) * scale
        taken += [(x - half, y - half, x + half, y + half) for x, y in _along(corners, STEP * scale)]
    alone = [axes.transData.transform(np.array(line, dtype=np.float64)) for line in lines if len(line) == 1]
    markers = np.concatenate([centres, *alone])
    crowd = [float(np.sort(np.hypot(*(centres - centre).T))[1:3].sum()) for centre in centres]
    notes: list[Annotation] = []
    for index in sorted(range(len(points)), key=crowd.__getitem__):
        note = axes.annotate(
            texts[index],
            points[index],
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # readable where it covers something
            **looks,
        )
        extent = note.get_window_extent(renderer)
        best, best_cost = (0.0, 0.0), np.inf
        for far in DISTANCES:
            for right, up in DIRECTIONS:
                shift = (
                    right * (far * scale + extent.width / 2),
                    up * (far * scale + extent.height / 2) * (0.8 if right else 1),
                )
                x, y = centres[index] + shift
                box = (x - extent.width / 2, y - extent.height / 2, x + extent.width / 2, y + extent.height / 2)
                cost = COVERED * sum(_overlap(box, other) for other in taken) + 2 * far * scale
                cost += AMBIGUOUS * scale**2 * _ambiguities(np.array([x, y]), centres[index], markers, far, MARKER * scale)
                if box[0] < frame.x0 or box[2] > frame.x1 or box[1] < frame.y0 or box[3] > frame.y1:
                    cost += OUTSIDE
                if cost < best_cost:
                    best, best_cost, best_box, best_far = shift, cost, box, far
        note.xyann = (best[0] / scale, best[1] / scale)
        if best_far > DISTANCES[0]:  # far from its point: connect them by a thin line
            axes.annotate("", points[index], note.xyann, textcoords="offset points", zorder=note.zorder, arrowprops=LEADER)
        # Two labels that overlap are the hardest to read, and two that touch look like one word.
        taken += [(best_box[0] - scale, best_box[1] - scale, best_box[2] + scale, best_box[3] + scale)] * 4
        notes.append(note)
    return notes


def _along(corners: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Positions along the line, at most `step` apart."""
    parts = [corners[:1]]
    for start, end in itertools.pairwise(corners):
        count = max(1, math.ceil(float(np.hypot(*(end - start))) / step))
        parts.append(start + np.arange(1, count + 1)[:, None] / count * (end - start))
    return np.concatenate(parts)


def _ambiguities(
    label: NDArray[np.float64], own: NDArray[np.float64], markers: NDArray[np.float64], far: float, radius: float
) -> float:
    """The number of other markers that a label could belong to: nearer ones, and those that its connecting line crosses."""
    others = markers[np.hypot(*(markers - own).T) > 1]
    nearer = np.hypot(*(others - label).T) < np.hypot(*(own - label))
    if far == DISTANCES[0]:
        return float(nearer.sum())
    way = label - own
    along = np.clip((others - own) @ way / (way @ way), 0, 1)
    beside = np.hypot(*(own + along[:, None] * way - others).T)
    return float((beside < radius).sum())  # the connecting line makes nearer ones harmless


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The overlap of two boxes in pixels²."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0
