"""How figures look: sizes, colours, markers, letters; and how they are written.

Colours are Okabe and Ito's, which colour-blind readers tell apart; what a colour says, a marker's filling says, too. Figures
are made without pyplot, so that no window system and no global state take part.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from locality.report.measures import Kind, Model
from locality.report.table_formats import one_line

COLUMN_WIDTH, PAGE_WIDTH = 3.3, 6.8  # inches, of a paper
BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW = "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#E69F00"
INK, GREY, PALE = "#222222", "#767676", "#d9d9d9"
COLOURS: dict[Kind, str] = {"standard": BLUE, "robust": GREEN, "random": GREY, "unknown": ORANGE}
FILLS: dict[Kind, str] = {"standard": "white", "robust": GREEN, "random": "white", "unknown": "white"}
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
    "errorbar.capsize": 1.5,
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


def model_legend(
    figure: Figure, models: Sequence[Model], others: Sequence[tuple[Any, str]] = (), key: str | None = None
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
    if columns > 6:
        # Two rows. A legend is filled column by column, so the rows are interleaved, the shorter one filled up.
        columns = max(len(families), len(rest))
        blank = (Line2D([], [], linestyle=""), "")
        rows = [[*row, *([blank] * (columns - len(row)))] for row in (families, rest)]
        entries = [entry for pair in zip(*rows, strict=True) for entry in pair]
    handles, labels = zip(*entries, strict=True)
    looks = {"ncols": columns, "columnspacing": 1.4, "handletextpad": 0.5, "title": key, "title_fontsize": 6.5}
    figure.legend(handles, labels, loc="outside lower center", **looks)


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
        part = folder / f".{name}.{form}.part"
        part.write_bytes(figure_bytes(figure, form))
        os.replace(part, path)
        paths.append(path)
    return paths


def panels(count: int, height: float, share: bool = True, across: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure as wide as a page (a column for one panel), with its panels in rows of `across`."""
    columns = min(count, across)
    rows = -(-count // across)
    width = {1: COLUMN_WIDTH, 2: 0.72 * PAGE_WIDTH}.get(columns, PAGE_WIDTH)
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def label_below(axes: Sequence[Axes], text: str, across: int = 3) -> None:
    """The name of an axis that panels share: under the middle panel of the last row, or under each where there is none."""
    last_row = axes[(len(axes) - 1) // across * across :]
    for panel in last_row if len(last_row) % 2 == 0 else [last_row[len(last_row) // 2]]:
        panel.set_xlabel(text)
