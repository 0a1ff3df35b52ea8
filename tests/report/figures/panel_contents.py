"""What a panel of a figure contains, read back from matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation
from numpy.typing import NDArray

from locality.report.figures.accuracy import locality_against_accuracy
from locality.report.figures.robust_accuracy import locality_against_robustness
from locality.results.results import Results


def against_accuracy(results: Results, *arguments: Any, **options: Any) -> Figure:
    return locality_against_accuracy(results, *arguments, **options).figure


def against_robustness(results: Results, **options: Any) -> Figure:
    return locality_against_robustness(results, **options).figure


def points(panel: Axes) -> dict[tuple[float, float], ErrorbarContainer]:
    """Markers with error bars by their position."""
    containers = [container for container in panel.containers if isinstance(container, ErrorbarContainer)]
    lines = [(container[0], container) for container in containers]
    return {(np.asarray(line.get_xdata())[0], np.asarray(line.get_ydata())[0]): container for line, container in lines}


def bar_ends(container: ErrorbarContainer) -> list[NDArray[np.float64]]:
    """The ends of the horizontal and of the vertical bar."""
    return [np.asarray(lines.get_segments()[0]) for lines in container[2]]


def arrows(panel: Axes) -> list[FancyArrowPatch]:
    return [patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)]


def arrow_ends(arrow: FancyArrowPatch) -> tuple[tuple[float, float], tuple[float, float]]:
    (x0, y0), (x1, y1) = arrow._posA_posB  # type: ignore[attr-defined]
    return (x0, y0), (x1, y1)


def panel_annotations(panel: Axes) -> list[Annotation]:
    return [text for text in panel.texts if isinstance(text, Annotation)]


def legend_words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]
