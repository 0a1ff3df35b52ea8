"""How figures look: sizes, colours, markers, letters; and how they are written.

Colours are Okabe and Ito's, which colour-blind readers tell apart; what a colour says, a marker's filling says, too. Figures
are made without pyplot, so that no window system and no global state take part.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.legend_handler import HandlerPatch
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from locality.files import write_atomically
from locality.report.aggregates import Measure, Model
from locality.report.tables.formats import one_line
from locality.zoo.trainings import KindOrUnknown as Kind

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 6.8  # inches, of a paper
Width = Literal["page", "column"]
ACROSS: dict[Width, int] = {"page": 3, "column": 1}  # panels side by side
BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW = "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#E69F00"
INK, GREY, PALE = "#222222", "#767676", "#d9d9d9"
COLOURS: dict[Kind, str] = {"standard": BLUE, "robust": GREEN, "random": GREY, "unknown": ORANGE}
FILLS: dict[Kind, str] = {"standard": "white", "robust": GREEN, "random": "white", "unknown": "white"}
# Error bars are drawn over their markers, so they are darker; filled markers have a white edge where they overlap.
BARS: dict[Kind, str] = {"standard": "#00568A", "robust": "#00704F", "random": "#555555", "unknown": "#8F3F00"}
EDGES: dict[Kind, str] = {"standard": BLUE, "robust": "white", "random": GREY, "unknown": ORANGE}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">")
METHOD_LOOKS = ((PURPLE, "o"), (YELLOW, "s"), (BLUE, "^"), (ORANGE, "D"), (GREEN, "v"), (SKY, "P"), (INK, "X"))
LONGEST = 26  # letters of a name in a figure
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
    "pdf.fonttype": 42,  # letters stay letters
    "svg.fonttype": "path",
    "svg.hashsalt": "locality",  # the same figure is the same file
}
# Without these, every file would carry the moment it was made.
TIMELESS = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


def family_markers(models: Sequence[Model]) -> dict[str, str]:
    """A marker for each family, in the order in which families come."""
    families = list(dict.fromkeys(model.family for model in models))
    return {family: MARKERS[place % len(MARKERS)] for place, family in enumerate(families)}


def method_looks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each method."""
    return {method: METHOD_LOOKS[place % len(METHOD_LOOKS)] for place, method in enumerate(methods)}


def draw_model(panel: Axes, model: Model, x: Measure, y: Measure, marker: str) -> None:
    """A model's marker with its intervals, which are drawn above it: they are often shorter than it."""
    line, _, _ = panel.errorbar(
        x.mean,
        y.mean,
        xerr=bars(x),
        yerr=bars(y),
        marker=marker,
        color=COLOURS[model.kind],
        markerfacecolor=FILLS[model.kind],
        ecolor=BARS[model.kind],
        elinewidth=0.7,
        capthick=0.7,
        barsabove=True,
        zorder=4,
    )
    # Not above: caps of bars would take it over.
    line.set(markeredgecolor=EDGES[model.kind], markeredgewidth=0.5 if model.kind == "robust" else 1.0)
    line.set_markersize(6 if model.kind == "robust" else 5)


def bars(measure: Measure) -> list[list[float]]:
    """How far the interval reaches to either side; nothing where there is none."""
    if math.isnan(measure.low):
        return [[0.0], [0.0]]
    return [[max(0.0, measure.mean - measure.low)], [max(0.0, measure.high - measure.mean)]]


def model_legend(
    figure: Figure,
    models: Sequence[Model],
    others: Sequence[tuple[Any, str]] = (),
    key: str | None = None,
    width: Width = "page",
) -> None:
    """Under the panels: a key of letters, the families' markers, and the trainings' colours with whatever else is drawn."""
    families = [
        (Line2D([], [], linestyle="", marker=marker, markerfacecolor="white", markeredgecolor=INK), plain(family))
        for family, marker in family_markers(models).items()
    ]
    kinds: list[Kind] = [kind for kind in COLOURS if any(model.kind == kind for model in models)]
    rest = [
        (
            Line2D([], [], linestyle="", marker="o", markerfacecolor=FILLS[kind], markeredgecolor=COLOURS[kind]),
            "training unknown" if kind == "unknown" else kind,
        )
        for kind in kinds
    ] + list(others)
    entries, columns = families + rest, len(families) + len(rest)
    if width == "column":
        columns = 2
    elif columns > 6:
        # Two rows. A legend is filled column by column, so the rows are interleaved, the shorter one filled up.
        columns = max(len(families), len(rest))
        blank = (Line2D([], [], linestyle=""), "")
        rows = [[*row, *([blank] * (columns - len(row)))] for row in (families, rest)]
        entries = [entry for pair in zip(*rows, strict=True) for entry in pair]
    handles, labels = zip(*entries, strict=True)
    looks = {"ncols": columns, "columnspacing": 1.4, "handletextpad": 0.5, "title": key, "title_fontsize": 6.5}
    arrows: Any = {FancyArrowPatch: HandlerPatch(_legend_arrow)}
    figure.legend(handles, labels, loc="outside lower center", handler_map=arrows, **looks)


def _legend_arrow(
    legend: Legend,
    orig_handle: FancyArrowPatch,
    xdescent: float,
    ydescent: float,
    width: float,
    height: float,
    fontsize: float,
) -> FancyArrowPatch:
    """An arrow from left to right in place of the legend's usual rectangle."""
    middle = height / 2 - ydescent
    scale = orig_handle.get_mutation_scale()
    return FancyArrowPatch(
        (-xdescent, middle),
        (width - xdescent, middle),
        arrowstyle=orig_handle.get_arrowstyle(),
        mutation_scale=scale,
        shrinkA=0,
        shrinkB=0,
    )


def plain(text: str, longest: int = LONGEST) -> str:
    r"""A stranger's name as matplotlib prints it as it is: on one line, not too long, no formulas.

    >>> plain("a$b$ of a very long name, indeed longer than that", 20)
    'a\\$b\\$ of a …than that'
    """
    name = one_line(text)
    if len(name) > longest:
        half = (longest - 1) // 2
        name = f"{name[: longest - 1 - half]}…{name[-half:]}"
    # A legend leaves out what starts with an underscore; a hair space in front of it does no harm.
    return ("\N{HAIR SPACE}" if name.startswith("_") else "") + name.replace("$", r"\$")


def figure_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a PNG, PDF or SVG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A name in letters that the font does not have is drawn as boxes; that is no reason to stop.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format=form, metadata=TIMELESS[form])
    return buffer.getvalue()


def write_figure(figure: Figure, folder: Path, name: str, forms: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Write the figure in each form, each file whole or not at all."""
    unknown = [form for form in forms if form not in TIMELESS]
    if unknown:
        raise ValueError(f"`forms` must be among {', '.join(TIMELESS)}, got {', '.join(unknown)}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for form in forms:
        path = folder / f"{name}.{form}"
        content = figure_bytes(figure, form)
        write_atomically(path, content)
        paths.append(path)
    return paths


def panels(count: int, height: float, width: Width = "page", one_scale: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with its panels side by side, rows of `height` inches; of a column's width, they stand below each other.

    On a page, one panel is as wide as a column, too. Each has its own scale upwards, unless `one_scale` is asked for:
    methods differ more from each other than models do, and what models differ in is what a panel shows.
    """
    columns = min(count, ACROSS[width])
    rows = -(-count // columns)
    wide = {1: COLUMN_WIDTH, 2: 0.72 * PAGE_WIDTH}.get(columns, PAGE_WIDTH)
    # Lower panels do not each need room for a legend.
    high = height * rows if width == "page" else max(height, 0.62 * height * rows + 1.15)
    figure = Figure(figsize=(wide, high), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=one_scale, sharex=width == "column")
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def label_axes(axes: Sequence[Axes], across: str, up: str, width: Width = "page") -> None:
    """The names of axes that panels share: left of each row, and under the middle panel of the last row.

    Where there is no middle one, each has the name. It is broken into lines where the panel is not wide enough.
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
