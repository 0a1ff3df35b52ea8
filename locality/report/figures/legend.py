"""The legend below the panels: families, kinds of models, and other elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.legend_handler import HandlerPatch
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from locality.report.figures.style import INK, LOOKS, Width, family_markers, plain
from locality.report.models import Model

MOST_IN_A_ROW = 6  # entries of a page's width, if there is one row
MOST_IN_ROWS = 5  # entries of a row, if there are several
Entry = tuple[Any, str]  # handle and label
BLANK: Entry = (Line2D([], [], linestyle=""), "")


def model_legend(
    figure: Figure,
    models: Sequence[Model],
    others: Sequence[Entry] = (),
    key: str | None = None,
    width: Width = "page",
) -> None:
    """Markers of the families, looks of the kinds, and `others`; `key` explains the letters beside points."""
    families = [
        (Line2D([], [], linestyle="", marker=marker, markerfacecolor="white", markeredgecolor=INK), plain(family))
        for family, marker in family_markers(models).items()
    ]
    if len(families) == 1:
        families = []  # every point has its marker
    kinds = [
        (Line2D([], [], linestyle="", marker="o", **look.marker), "training unknown" if kind == "unknown" else kind)
        for kind, look in LOOKS.items()
        if any(model.kind == kind for model in models)
    ]
    rest = [*kinds, *others]
    if width == "column":
        entries, columns = families + rest, 2
    elif len(families) + len(rest) <= MOST_IN_A_ROW:
        entries, columns = families + rest, len(families) + len(rest)
    else:
        rows = [*_rows(families), *_rows(rest)]
        columns = max(map(len, rows))
        # A legend is filled column by column, so the rows are padded and transposed.
        padded = [[*row, *([BLANK] * (columns - len(row)))] for row in rows]
        entries = [entry for column in zip(*padded, strict=True) for entry in column]
    handles, labels = zip(*entries, strict=True)
    looks = {"ncols": columns, "columnspacing": 1.4, "handletextpad": 0.5, "title": key, "title_fontsize": 6.5}
    arrows: Any = {FancyArrowPatch: HandlerPatch(_legend_arrow)}
    figure.legend(handles, labels, loc="outside lower center", handler_map=arrows, **looks)


def _rows(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """The entries in as few rows as fit, of about equal length."""
    count = -(-len(entries) // MOST_IN_ROWS)
    size = -(-len(entries) // max(1, count))
    return [entries[start : start + size] for start in range(0, len(entries), max(1, size))]


def _legend_arrow(
    legend: Legend,
    orig_handle: FancyArrowPatch,
    xdescent: float,
    ydescent: float,
    width: float,
    height: float,
    fontsize: float,
) -> FancyArrowPatch:
    """An arrow from left to right instead of the legend's usual rectangle."""
    middle = height / 2 - ydescent
    return FancyArrowPatch(
        (-xdescent, middle),
        (width - xdescent, middle),
        arrowstyle=orig_handle.get_arrowstyle(),
        mutation_scale=orig_handle.get_mutation_scale(),
        shrinkA=0,
        shrinkB=0,
    )
