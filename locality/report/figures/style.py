"""How figures look: sizes, colours, the look of each kind of model, panels and names.

Colours are Okabe and Ito's, which colour-blind readers can distinguish; the filling of a marker repeats what its colour
says. Figures are made without pyplot, so that they need no window system and no global state.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from locality.report.estimates import Estimate
from locality.report.models import Kind, Model
from locality.report.tables.formats import one_line

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 6.8  # inches, of a paper
Width = Literal["page", "column"]
ACROSS: dict[Width, int] = {"page": 3, "column": 1}  # panels side by side
BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW = "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#E69F00"
INK, GREY, PALE = "#222222", "#767676", "#d9d9d9"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">")
METHOD_LOOKS = ((PURPLE, "o"), (YELLOW, "s"), (BLUE, "^"), (ORANGE, "D"), (GREEN, "v"), (SKY, "P"), (INK, "X"))
LONGEST = 26  # characters of a name in a figure


@dataclass(frozen=True)
class Look:
    """How a kind of model is drawn."""

    words: str  # for captions
    colour: str
    error_bars: str  # darker, as they are drawn over the marker
    marker: dict[str, Any]  # of matplotlib's Line2D


def _hollow(colour: str) -> dict[str, Any]:
    return {"markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.0, "markersize": 5}


LOOKS: dict[Kind, Look] = {
    "standard": Look("blue and hollow", BLUE, "#00568A", _hollow(BLUE)),
    # The white edge separates filled markers where they overlap.
    "robust": Look(
        "green and filled",
        GREEN,
        "#00704F",
        {"markerfacecolor": GREEN, "markeredgecolor": "white", "markeredgewidth": 0.5, "markersize": 6},
    ),
    "certified": Look(
        "orange and half-filled",
        ORANGE,
        "#8F3F00",
        {**_hollow(ORANGE), "fillstyle": "left", "markerfacecolor": ORANGE, "markerfacecoloralt": "white"},
    ),
    "random": Look("grey", GREY, "#555555", {**_hollow(GREY), "markerfacecolor": PALE}),
    "unknown": Look("purple and hollow", PURPLE, "#8A4A6C", _hollow(PURPLE)),
}

STYLE: Any = {  # matplotlib types its settings by name
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 5,
    "errorbar.capsize": 1.8,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "path",
    "svg.hashsalt": "locality",  # the same figure gives the same file
}


def family_markers(models: Sequence[Model]) -> dict[str, str]:
    """A marker per family, in the order of the models."""
    families = list(dict.fromkeys(model.family for model in models))
    return {family: MARKERS[index % len(MARKERS)] for index, family in enumerate(families)}


def method_looks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker per method."""
    return {method: METHOD_LOOKS[index % len(METHOD_LOOKS)] for index, method in enumerate(methods)}


def draw_model(panel: Axes, model: Model, x: Estimate, y: Estimate, marker: str) -> None:
    """A model's marker with its intervals, which are drawn above it because they are often shorter than it."""
    look = LOOKS[model.kind]
    line, _, _ = panel.errorbar(
        x.mean,
        y.mean,
        xerr=interval_bars(x),
        yerr=interval_bars(y),
        marker=marker,
        color=look.colour,
        ecolor=look.error_bars,
        elinewidth=0.7,
        capthick=0.7,
        barsabove=True,
        zorder=4,
    )
    line.set(**look.marker)  # afterwards: errorbar would pass it on to the caps


def interval_bars(mean: Estimate) -> list[list[float]]:
    """The lengths of an error bar to either side; 0 where there is no interval."""
    if math.isnan(mean.low):
        return [[0.0], [0.0]]
    return [[max(0.0, mean.mean - mean.low)], [max(0.0, mean.high - mean.mean)]]


def log_scale(panel: Axes) -> None:
    """A logarithmic horizontal axis with plain numbers, at least two of them also over a narrow range."""
    panel.set_xscale("log")
    panel.margins(x=0.06, y=0.08)
    left, right = panel.get_xlim()
    if right < 1e4 * left:
        locator = LogLocator(10, subs=(1, 2, 5) if right < 30 * left else (1, 3), numticks=20)
    else:
        locator = LogLocator(10, numticks=5)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def plain(text: str, longest: int = LONGEST) -> str:
    r"""A name on one line, shortened, and escaped so that matplotlib does not read it as a formula.

    >>> plain("a$b$ of a very long name, indeed longer than that", 20)
    'a\\$b\\$ of a …than that'
    """
    name = one_line(text)
    if len(name) > longest:
        half = (longest - 1) // 2
        name = f"{name[: longest - 1 - half]}…{name[-half:]}"
    # Legends leave out names that start with an underscore, so a hair space is put before it.
    return ("\N{HAIR SPACE}" if name.startswith("_") else "") + name.replace("$", r"\$")


def panels(count: int, height: float, width: Width = "page", one_scale: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side in rows of `height` inches; at column width they are stacked.

    A single panel has the width of a column. Each panel has its own vertical scale unless `one_scale` is set: methods differ
    more from each other than models do, and a panel shows how models differ.
    """
    columns = min(count, ACROSS[width])
    rows = -(-count // columns)
    inches = {1: COLUMN_WIDTH, 2: 0.72 * PAGE_WIDTH}.get(columns, PAGE_WIDTH)
    # Stacked panels share one legend.
    high = height * rows if width == "page" else max(height, 0.62 * height * rows + 1.15)
    figure = Figure(figsize=(inches, high), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=one_scale, sharex=width == "column")
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def label_axes(axes: Sequence[Axes], across: str, up: str, width: Width = "page") -> None:
    """Name axes that panels share: at the left of each row, and below the middle panel of the last row.

    An even number of panels has no middle one: each gets the name. It is wrapped where the panel is too narrow.
    """
    columns = ACROSS[width]
    for panel in axes[::columns]:
        panel.set_ylabel(up)
    last_row = axes[(len(axes) - 1) // columns * columns :]
    named = last_row if len(last_row) % 2 == 0 else [last_row[len(last_row) // 2]]
    longest = {1: 40, 2: 32}.get(len(last_row), 200)
    lines = across.replace(" (", "\n(") if len(across) > longest else across
    for panel in named:
        panel.set_xlabel("\n".join(textwrap.fill(line, longest) for line in lines.splitlines()))


def write_note(panel: Axes, text: str) -> None:
    """A small line between a panel and its title."""
    panel.annotate(
        text, (0.5, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=6.5, color=GREY, ha="center"
    )
