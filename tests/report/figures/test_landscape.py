"""Figures of landscapes are drawn from grids alone, with one scale per image."""

import numpy as np
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.patches import Rectangle

from locality.report.aggregates import NotMeasuredError
from locality.report.figures.files import figure_bytes
from locality.report.figures.landscape import landscape_figure
from locality.robustness.landscape_grids import Landscape, Landscapes


def bowl(height: float, images: int = 3) -> Landscape:
    offsets = np.linspace(-16 / 255, 16 / 255, 5)
    a, b = np.meshgrid(offsets, offsets, indexing="ij")
    losses = np.stack([height * (index + 1) * (a + 0.1 * b) for index in range(images)]) * 255
    ids = tuple(f"image {index}" for index in range(images))
    return Landscape("input", ids, offsets, losses, np.zeros((images, 2)))


def line(rise: float) -> Landscape:
    offsets = np.linspace(-1, 1, 5)
    losses = rise * np.abs(offsets) + np.zeros((4, 2, 5))
    return Landscape("weights", tuple("abcd"), offsets, losses, np.zeros((4, 2)))


def test_a_row_per_model_a_column_per_image_and_one_scale() -> None:
    figure = landscape_figure(Landscapes({"a": bowl(1), "b": bowl(0.1)}, {"loss": "cross-entropy"}), 8 / 255, images=2)
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert len(panels) == 4
    assert [axes.get_title() for axes in panels] == ["image 0", "image 1", "", ""]
    scales = [axes.collections[0].get_clim() for axes in panels]
    assert scales[0] == scales[2]
    assert scales[1] == scales[3] == pytest.approx(tuple(2 * value for value in scales[0]))
    for axes in panels:
        squares = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert [(square.get_x(), square.get_width()) for square in squares] == [(-8, 16)]
    # The loss rises along the gradient, which runs to the right.
    contours = panels[0].collections[0]
    assert isinstance(contours, QuadContourSet)
    highest = np.concatenate([np.asarray(part) for part in contours.allsegs[-1]])
    assert highest[:, 0].min() > 8
    assert figure_bytes(figure, "png")[:4] == b"\x89PNG"


def test_curves_along_the_weights() -> None:
    figure = landscape_figure(Landscapes({"a": line(1), "b": line(3)}, {"loss": "cross-entropy"}))
    (panel,) = figure.axes
    thick = [curve.get_ydata()[-1] for curve in panel.lines if curve.get_linewidth() > 1]  # type: ignore[index]
    assert thick == pytest.approx([1, 3])
    assert panel.get_ylabel() == "cross-entropy"
    assert figure_bytes(figure, "png")[:4] == b"\x89PNG"


def test_spaces_are_not_mixed() -> None:
    with pytest.raises(NotMeasuredError, match="landscapes of one space"):
        landscape_figure(Landscapes({"a": line(1), "b": bowl(1)}, {}))
