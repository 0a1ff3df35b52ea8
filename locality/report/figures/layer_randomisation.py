"""Figure 2.4: how alike a method's maps stay while the model's layers are drawn anew, from the top down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from locality.report.aggregates import NotMeasuredError, floats, measures, models_of
from locality.report.figures.options import shown_methods
from locality.report.figures.style import GREY, STYLE, Width, label_axes, method_looks, panels, plain
from locality.results.results import Results, empty_table

HEIGHT = 2.3  # inches
APART = 0.014  # of the panel's layers, between two methods
HOLLOW: Any = {"markersize": 4, "markerfacecolor": "none", "markeredgewidth": 0.8}


@mpl.rc_context(STYLE)
def sanity_figure(
    results: Results,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Figure:
    """Rank correlation of |A| before and after, mean and 95 % interval over images, against the layers drawn anew.

    1 is an attribution that does not change, 0 one that has nothing left in common. One panel a model, one line a method;
    methods stand a little beside each other, so that none hides another's interval.
    """
    chosen = [model for model in models_of(results) if models is None or model.name in models]
    table = results.get("layer_randomisation", empty_table({"model": str, "method": str}))
    shown = shown_methods(methods, list(dict.fromkeys(map(str, table["method"]))), every=True)
    kept = table[table["method"].isin(shown)]
    parts = {str(name): part for name, part in kept.groupby("model", sort=False)}
    chosen = [model for model in chosen if model.name in parts]
    if not chosen:
        raise NotMeasuredError("the sanity check was not run" + (f" for {', '.join(models)}" if models else ""))
    looks = method_looks(shown)
    figure, axes = panels(len(chosen), HEIGHT, width, one_scale=True)
    for panel, model in zip(axes, chosen, strict=True):
        _draw_curves(panel, parts[model.name], looks)
        panel.set_title(plain(model.name))
    label_axes(axes, "layers drawn anew, from the top", "rank correlation of |A|", width)
    handles = [Line2D([], [], color=colour, marker=marker, **HOLLOW) for colour, marker in looks.values()]
    columns = min(len(looks), 6 if width == "page" else 3)
    figure.legend(handles, [plain(name) for name in looks], loc="outside lower center", ncols=columns)
    return figure


def _draw_curves(panel: Axes, rows: pd.DataFrame, looks: dict[str, tuple[str, str]]) -> None:
    panel.axhline(0, color=GREY, linewidth=0.8)
    # Beside each other: methods often agree, and then the last one drawn would hide the others.
    apart = APART * (float(rows["layers"].max()) or 1.0)
    for method, part in rows.groupby("method", sort=False):
        layers, values = [], []
        for count, group in part.groupby("layers"):
            layers.append(int(count))
            values.append(floats(group["spearman"]))
        found = measures(values)
        middle = np.array([measure.mean for measure in found])
        # A step of one image has no interval; its bar is left out.
        low = np.nan_to_num(middle - np.array([measure.low for measure in found]))
        high = np.nan_to_num(np.array([measure.high for measure in found]) - middle)
        colour, marker = looks[str(method)]
        bars = np.maximum([low, high], 0)
        shift = apart * (list(looks).index(str(method)) - (len(looks) - 1) / 2)
        panel.errorbar(
            np.array(layers) + shift,
            middle,
            yerr=bars,
            color=colour,
            marker=marker,
            linewidth=0.9,
            elinewidth=0.8,
            barsabove=True,
            **HOLLOW,
        )
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    lowest = min(-0.1, float(np.nanmin(panel.dataLim.intervaly)) - 0.05)
    panel.set_ylim(lowest, 1.05)
