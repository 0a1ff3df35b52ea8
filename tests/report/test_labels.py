import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from locality.report.labels import MARKER, place_labels


def test_labels_of_crowded_points_cover_neither_each_other_nor_points_nor_obstacles() -> None:
    figure = Figure(figsize=(3, 3), dpi=100)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = [(0.5, 0.5), (0.55, 0.5), (0.5, 0.56), (0.57, 0.57), (0.02, 0.02), (0.99, 0.99)]
    obstacles = [(0.4, 0.5, 0.6, 0.5)]
    notes = place_labels(axes, points, list("abcdef"), obstacles, fontsize=7)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [note.get_window_extent(renderer) for note in notes]
    assert sorted(note.get_text() for note in notes) == list("abcdef")
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    half = MARKER * figure.dpi / 72
    for x, y in axes.transData.transform(points):
        assert not any(box.x0 < x + half and box.x1 > x - half and box.y0 < y + half and box.y1 > y - half for box in boxes)
    frame = axes.get_window_extent(renderer)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in boxes)
    line = axes.transData.transform([(0.4, 0.5), (0.6, 0.5)])
    assert not any(box.y0 < line[0, 1] < box.y1 and box.x0 < line[1, 0] and box.x1 > line[0, 0] for box in boxes)


def test_a_label_is_near_its_own_point() -> None:
    figure = Figure(figsize=(3, 3))
    axes = figure.add_axes((0, 0, 1, 1))
    [note] = place_labels(axes, [(0.5, 0.5)], ["a"])
    assert np.hypot(*note.xyann) < 15
