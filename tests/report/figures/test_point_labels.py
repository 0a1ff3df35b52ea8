import itertools
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from report.made_up_results import CERTIFIED, MODELS, made_up_results

from locality.report.figures.distance import locality_against_distance
from locality.report.figures.drawing import Plot
from locality.report.figures.point_labels import MARKER, letter_key, place_labels
from locality.report.figures.robust_accuracy import locality_against_robustness
from locality.report.models import Model
from locality.types import Threat


@pytest.mark.parametrize("draw", [locality_against_robustness, locality_against_distance])
@pytest.mark.parametrize("width", ["page", "column"])
def test_every_one_of_twelve_models_has_a_letter_that_can_be_read(draw: Callable[..., Plot], width: str) -> None:
    results = made_up_results(24, 0, (*MODELS[:-1], *CERTIFIED))
    figure = draw(results, width=width).figure
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw(renderer)
    [key] = [legend.get_title().get_text() for legend in figure.legends]
    for panel in figure.axes:
        notes = {text.get_text(): text for text in panel.texts if text.get_fontweight() == "bold"}
        assert sorted(notes) == list("abcdefghijkl")
        boxes = [note.get_window_extent(renderer) for note in notes.values()]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        frame = panel.get_window_extent(renderer)
        assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
        assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 for box in boxes)
    named = key.replace("\N{NO-BREAK SPACE}", " ")
    assert "a tiny_squeeze" in named
    assert "l ViT certified ℓ2 0.5" in named


def test_models_that_would_have_one_text_are_named() -> None:
    models = [Model(name, "net", "at", "robust", Threat("linf", 4 / 255)) for name in ("first", "second")]
    assert letter_key(models, "page") == "a\N{NO-BREAK SPACE}first   b\N{NO-BREAK SPACE}second"


def test_labels_of_crowded_points_cover_neither_each_other_nor_points_nor_obstacles() -> None:
    figure = Figure(figsize=(3, 3), dpi=100)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = [(0.5, 0.5), (0.55, 0.5), (0.5, 0.56), (0.57, 0.57), (0.02, 0.02), (0.99, 0.99)]
    obstacles = [(0.4, 0.5, 0.6, 0.5)]
    notes = place_labels(axes, points, list("abcdef"), obstacles, fontsize=7)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
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


def test_labels_keep_clear_of_lines_and_of_markers_without_a_label() -> None:
    figure = Figure(figsize=(3, 3), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    # An arrow to the right, one upwards with a bend, one downwards; a marker on the left.
    lines = [[(0.5, 0.5), (1.0, 0.52)], [(0.5, 0.5), (0.5, 0.7), (0.9, 1.0)], [(0.5, 0.5), (0.48, 0.0)], [(0.44, 0.5)]]
    [alone] = place_labels(axes, [(0.5, 0.5)], ["a"], fontsize=7)
    assert alone.xyann[1] == 0  # where nothing is in the way, it is on the right
    [note] = place_labels(axes, [(0.5, 0.5)], ["a"], (), lines, fontsize=7)
    box = note.get_window_extent(FigureCanvasAgg(figure).get_renderer())  # type: ignore[no-untyped-call]
    for line in lines:
        corners = axes.transData.transform(line)
        steps = np.linspace(0, 1, 500)[:, None]
        ways = [start + steps * (end - start) for start, end in itertools.pairwise(corners)] or [corners]
        for x, y in np.concatenate(ways):
            assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1)


def test_a_thin_line_leads_to_a_label_that_is_far_from_its_point() -> None:
    figure = Figure(figsize=(3, 3), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    around = (0.44, 0.44, 0.56, 0.56)
    [note] = place_labels(axes, [(0.5, 0.5)], ["a"], [around], fontsize=7)
    [leader] = [text for text in axes.texts if text is not note]
    assert leader.get_text() == ""
    assert (leader.xy, leader.xyann) == ((0.5, 0.5), note.xyann)  # type: ignore[attr-defined]


def test_a_label_is_near_its_own_point() -> None:
    figure = Figure(figsize=(3, 3))
    axes = figure.add_axes((0, 0, 1, 1))
    [note] = place_labels(axes, [(0.5, 0.5)], ["a"])
    assert np.hypot(*note.xyann) < 15


def test_a_label_is_nearest_to_its_own_marker() -> None:
    figure = Figure(figsize=(3, 3), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    # On the right of the first one, where labels go by themselves, one would be nearer to the second.
    points = [(0.5, 0.5), (0.56, 0.5)]
    centres = axes.transData.transform(points)
    notes = place_labels(axes, points[:1], ["a"], (), [[point] for point in points], fontsize=7)
    place = centres[0] + np.array(notes[0].xyann) * figure.dpi / 72
    assert len(axes.texts) == 1  # no line is needed
    assert np.hypot(*(centres - place).T).argmin() == 0
