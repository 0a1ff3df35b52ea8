"""Figure 2.4: similarity of a method's maps before and after the model's layers are randomised, from the top down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from locality.report.aggregates import NotMeasuredError
from locality.report.estimates import estimates, floats
from locality.report.figures.drawing import Drawing, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.style import GREY, STYLE, Width, label_axes, method_looks, panels, plain
from locality.report.models import models_of
from locality.results.results import Results

HEIGHT = 2.3  # inches
OFFSET = 0.014  # between two methods, as a share of the number of layers
HOLLOW: Any = {"markersize": 4, "markerfacecolor": "none", "markeredgewidth": 0.8}
NOT_MEASURED = "layer randomisation was not measured"


@mpl.rc_context(STYLE)
def layer_randomisation_plot(
    results: Results,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Plot:
    """Rank correlation of |A| before and after, mean and 95 % interval over images, against the number of layers.

    1 is a map that does not change, 0 one that has nothing in common with the original. One panel per model, one line per
    method; methods are drawn side by side, so that none hides the interval of another.
    """
    if "layer_randomisation" not in results:
        raise NotMeasuredError(NOT_MEASURED)
    table = results["layer_randomisation"]
    shown = shown_methods(methods, list(dict.fromkeys(map(str, table["method"]))), every=True)
    kept = table[table["method"].isin(shown)]
    parts = {str(name): part for name, part in kept.groupby("model", sort=False)}
    chosen = [model for model in models_of(results) if model.name in parts and (models is None or model.name in models)]
    if not chosen:
        raise NotMeasuredError(NOT_MEASURED + (f" for {', '.join(models)}" if models else ""))
    looks = method_looks(shown)
    figure, axes = panels(len(chosen), HEIGHT, width, one_scale=True)
    for panel, model in zip(axes, chosen, strict=True):
        _draw_curves(panel, parts[model.name], looks)
        panel.set_title(plain(model.name))
    label_axes(axes, "randomised layers, from the top", "rank correlation of |A|", width)
    handles = [Line2D([], [], color=colour, marker=marker, **HOLLOW) for colour, marker in looks.values()]
    columns = min(len(looks), 6 if width == "page" else 3)
    figure.legend(handles, [plain(name) for name in looks], loc="outside lower center", ncols=columns)
    return Plot(figure)


def _draw_curves(panel: Axes, rows: pd.DataFrame, looks: dict[str, tuple[str, str]]) -> None:
    panel.axhline(0, color=GREY, linewidth=0.8)
    # Side by side: methods often agree, and the last one drawn would hide the others.
    offset = OFFSET * (float(rows["layers"].max()) or 1.0)
    for method, part in rows.groupby("method", sort=False):
        by_layers = {int(layers): floats(group["spearman"]) for layers, group in part.groupby("layers")}
        means = estimates(list(by_layers.values()))
        middle = np.array([mean.mean for mean in means])
        # One image has no interval: no bar.
        low = np.nan_to_num(middle - np.array([mean.low for mean in means]))
        high = np.nan_to_num(np.array([mean.high for mean in means]) - middle)
        colour, marker = looks[str(method)]
        shift = offset * (list(looks).index(str(method)) - (len(looks) - 1) / 2)
        panel.errorbar(
            np.array(list(by_layers)) + shift,
            middle,
            yerr=np.maximum([low, high], 0),
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


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return layer_randomisation_plot(results, None, options.methods, width)


LAYER_RANDOMISATION = Drawing(
    "fig2_4",
    "Layer randomisation",
    (
        "Rank correlation of a method's maps before and after the layers of a model are randomised, from the top down: 1 is "
        "unchanged, 0 has nothing in common.",
        "Bars are 95 % bootstrap intervals over images. Methods are drawn side by side.",
    ),
    _draw,
)
