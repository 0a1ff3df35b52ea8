"""Where labels of points go, so that none covers another or a point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from numpy.typing import NDArray

DIRECTIONS = [
    *((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)),
    *((1, 0.5), (1, -0.5), (-1, 0.5), (-1, -0.5), (0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1)),
]
DISTANCES = (4.5, 9.0, 14.0, 20.0, 27.0)  # points, from a marker to its label
MARKER = 3.5  # points, half of a marker with its edge
STEP = 2.0  # points, between the places of a line that are looked at
LEADER: Any = {"arrowstyle": "-", "linewidth": 0.5, "color": "#222222", "shrinkA": 3.5, "shrinkB": 0}
Polyline = Sequence[tuple[float, float]]
OUTSIDE = 1e4  # worse than any overlap
# In points²; a letter covers about 35. A label nearer to another marker, or whose line crosses one, is taken for that one's.
MISTAKEN = 30.0
COVERED = 3.0  # times as bad as it is large


def place_labels(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    obstacles: Sequence[tuple[float, float, float, float]] = (),
    lines: Sequence[Polyline] = (),
    **looks: Any,
) -> list[Annotation]:
    """Write each text beside its point: of the places around it, the one that covers the least and lies nearest.

    `obstacles` are boxes (x0, y0, x1, y1) in the axes' data that are better left free, such as error bars; so are `lines`,
    such as arrows, each a sequence of corners; a line of one corner is a marker without a label. Labels are placed one after
    the other, those of crowded points first, each nearer to its own marker than to others if it can be. Call it when limits
    and layout are final.
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
    for place in sorted(range(len(points)), key=lambda each: crowd[each]):
        note = axes.annotate(
            texts[place],
            points[place],
            (0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=1.5, foreground="white")],  # readable where it must cover something
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
                x, y = centres[place] + shift
                box = (x - extent.width / 2, y - extent.height / 2, x + extent.width / 2, y + extent.height / 2)
                cost = COVERED * sum(_overlap(box, other) for other in taken) + 2 * far * scale
                cost += MISTAKEN * scale**2 * _mistakable(np.array([x, y]), centres[place], markers, far, MARKER * scale)
                if box[0] < frame.x0 or box[2] > frame.x1 or box[1] < frame.y0 or box[3] > frame.y1:
                    cost += OUTSIDE
                if cost < best_cost:
                    best, best_cost, best_box, best_far = shift, cost, box, far
        note.xyann = (best[0] / scale, best[1] / scale)
        if best_far > DISTANCES[0]:  # not beside its point: a thin line leads there
            axes.annotate("", points[place], note.xyann, textcoords="offset points", zorder=note.zorder, arrowprops=LEADER)
        taken += [best_box] * 4  # two labels that overlap can be read worst of all
        notes.append(note)
    return notes


def _along(corners: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Places on the way from corner to corner, no farther apart than `step`."""
    parts = [corners[:1]]
    for start, end in itertools.pairwise(corners):
        count = max(1, math.ceil(float(np.hypot(*(end - start))) / step))
        parts.append(start + np.arange(1, count + 1)[:, None] / count * (end - start))
    return np.concatenate(parts)


def _mistakable(
    label: NDArray[np.float64], own: NDArray[np.float64], markers: NDArray[np.float64], far: float, radius: float
) -> float:
    """How many other markers a label could be taken for: nearer ones, and those that its line to its own marker crosses."""
    others = markers[np.hypot(*(markers - own).T) > 1]
    nearer = np.hypot(*(others - label).T) < np.hypot(*(own - label))
    if far == DISTANCES[0]:
        return float(nearer.sum())
    way = label - own
    along = np.clip((others - own) @ way / (way @ way), 0, 1)
    beside = np.hypot(*(own + along[:, None] * way - others).T)
    return float((beside < radius).sum())  # the line tells nearer ones from its own


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes share, in pixels²."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0
