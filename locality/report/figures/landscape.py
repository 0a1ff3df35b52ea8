"""Loss landscapes (Figures 2 and 3 of Jin et al. 2023), drawn from stored grids."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter

from locality.report.aggregates import NotMeasuredError
from locality.report.figures.style import INK, METHOD_LOOKS, PAGE_WIDTH, STYLE, plain
from locality.robustness.landscape_grids import Landscapes

IMAGES = 4  # columns
LEVELS = 14  # of a contour plot
SIDE = 1.55  # inches of a panel


@mpl.rc_context(STYLE)
def landscape_figure(landscapes: Landscapes, epsilon: float | None = None, images: int = IMAGES) -> Figure:
    """The landscapes of one model or two; `epsilon` is marked by a square in input space."""
    spaces = {one.space for one in landscapes.by_model.values()}
    if len(spaces) != 1:
        raise NotMeasuredError("landscapes of one space are needed")
    return _input_figure(landscapes, epsilon, images) if spaces == {"input"} else _weight_figure(landscapes)


def _input_figure(landscapes: Landscapes, epsilon: float | None, images: int) -> Figure:
    """The change of the loss, one column per image and one row per model; a column has one scale for all models."""
    by_model = landscapes.by_model
    count = min(images, *(len(one.ids) for one in by_model.values()))
    figure = Figure(figsize=(SIDE * count + 0.9, SIDE * len(by_model) + 1.25), layout="compressed")
    panels = figure.subplots(len(by_model), count, squeeze=False, sharex=True, sharey=True)
    for column in range(count):
        changes = [one.losses[column] - one.losses[column, one.centre, one.centre] for one in by_model.values()]
        low, high = min(change.min() for change in changes), max(change.max() for change in changes)
        levels = np.linspace(low, high if high > low else low + 1, LEVELS)
        for row, ((model, one), change) in enumerate(zip(by_model.items(), changes, strict=True)):
            panel = panels[row, column]
            pixels = 255 * one.offsets
            # Columns of the grid, the random direction, run upwards.
            drawn = panel.contourf(pixels, pixels, change.T, levels=levels, cmap="viridis")
            panel.contour(pixels, pixels, change.T, levels=levels, colors="white", linewidths=0.25, alpha=0.6)
            panel.set_aspect("equal")
            panel.grid(False)
            if epsilon is not None:
                _mark(panel, 255 * epsilon)
            if row == 0:
                panel.set_title(plain(one.ids[column], 20))
            if column == 0:
                panel.set_ylabel(f"{plain(model, 22)}\nrandom signs (1/255)")
        bar = figure.colorbar(drawn, ax=list(panels[:, column]), location="bottom", shrink=0.9, aspect=14)
        # The smallest change gets a number only where it would not touch that of 0.
        bar.set_ticks([low, 0.0, high] if -low > 0.2 * (high - low) else [0.0, high])
        bar.ax.xaxis.set_major_formatter(FormatStrFormatter("%.2g"))
    for panel in panels[-1]:
        panel.set_xlabel("gradient's sign (1/255)")
    figure.supxlabel("change of the loss", fontsize=8)
    return figure


def _mark(panel: Axes, side: float) -> None:
    square = Rectangle((-side, -side), 2 * side, 2 * side, fill=False, edgecolor="white", linewidth=1.0, linestyle="--")
    panel.add_patch(square)
    panel.plot(0, 0, "+", color="white", markersize=5)


def _weight_figure(landscapes: Landscapes) -> Figure:
    """The mean loss over the images along each direction, thin, and its mean over the directions, thick."""
    figure = Figure(figsize=(0.55 * PAGE_WIDTH, 2.5), layout="constrained")
    panel = figure.subplots()
    handles = []
    for (model, one), (colour, _) in zip(landscapes.by_model.items(), METHOD_LOOKS[2:], strict=False):
        curves = one.losses.mean(0)
        panel.plot(one.offsets, curves.T, color=colour, linewidth=0.5, alpha=0.5)
        panel.plot(one.offsets, curves.mean(0), color=colour, linewidth=1.8)
        handles.append(Line2D([], [], color=colour, linewidth=1.8, label=plain(model)))
    panel.axvline(0, color=INK, linewidth=0.5)
    panel.set_xlabel("α: weights w + α·d, each filter of d as long as that of w")
    panel.set_ylabel(str(landscapes.settings.get("loss", "loss")))
    panel.legend(handles=handles)
    return figure
