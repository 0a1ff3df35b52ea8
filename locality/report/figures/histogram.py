"""How a score is distributed over images: a histogram per method, a line per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.lines import Line2D

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.estimates import floats
from locality.report.figures.drawing import Drawing, Element, If, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import METHOD_TITLES, SCORE_TITLES
from locality.report.figures.style import GREY, LOOKS, METHOD_LOOKS, STYLE, Width, label_axes, panels, plain, write_note
from locality.results.results import Results

HEIGHT = 2.4  # inches
MOST_BINS = 30
MOST_MODELS = 7  # lines that can be told apart


@mpl.rc_context(STYLE)
def score_histogram(
    results: Results, score: str = "lift", methods: Sequence[str] | None = None, width: Width = "page"
) -> Plot:
    """Images by score, one panel per method; all panels and models share the bins, about √n of them.

    Short lines above are means. Of many models the first seven are drawn.
    """
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods)
    rows = results.rows
    models = [model for model in means.models if (model.name, chosen[0] if chosen else "", score) in means.scores]
    models = models[:MOST_MODELS]
    values = {
        (model.name, method): floats(rows.loc[(rows["model"] == model.name) & (rows["method"] == method), score])
        for model in models
        for method in chosen
    }
    defined = {key: numbers[~np.isnan(numbers)] for key, numbers in values.items()}
    drawn = [numbers for numbers in defined.values() if len(numbers)]
    if not drawn:
        raise NotMeasuredError("no score is defined")
    low, high = min(map(np.min, drawn)), max(map(np.max, drawn))
    count = min(MOST_BINS, max(5, round(np.sqrt(max(map(len, drawn))))))
    edges = np.linspace(low, high if high > low else low + 1, count + 1).tolist()
    figure, axes = panels(len(chosen), HEIGHT, width, one_scale=True)
    for panel, method in zip(axes, chosen, strict=True):
        for place, model in enumerate(models):
            filled = len(models) == 1
            numbers, colour = defined[model.name, method], LOOKS[model.kind].colour if filled else METHOD_LOOKS[place][0]
            look: dict[str, Any] = {"alpha": 0.35, "edgecolor": "white"} if filled else {"histtype": "step"}
            panel.hist(numbers, edges, color=colour, **look)
            if len(numbers):
                panel.plot(numbers.mean(), 1.0, "v", color=colour, transform=panel.get_xaxis_transform(), clip_on=False)
        panel.axvline(0 if score == "lift" else np.nan, color=GREY, linewidth=0.9, linestyle=(0, (4, 2.5)))
        panel.set_title(METHOD_TITLES.get(method, plain(method)), pad=16)
        undefined = sum(len(values[model.name, method]) - len(defined[model.name, method]) for model in models)
        write_note(panel, f"{undefined:,} undefined" if undefined else " ")
    label_axes(axes, SCORE_TITLES[score], "images", width)
    lines, names = [Line2D([], [], color=GREY, marker="v", linestyle="none")], ["mean"]
    if len(models) > 1:
        lines += [Line2D([], [], color=METHOD_LOOKS[place][0]) for place in range(len(models))]
        names += [plain(model.name) for model in models]
    figure.legend(lines, names, loc="outside lower center", ncols=2 if width == "column" else 4)
    elements: list[Element] = ["several panels"] if len(chosen) > 1 else []
    return Plot(figure, frozenset(elements))


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return score_histogram(results, options.score or "lift", options.methods, width)


HISTOGRAM = Drawing(
    "score_histogram",
    "Scores image by image",
    (
        "Number of images by score. Triangles are means; the dashed line is the score of chance for lift, 0.",
        If("several panels", "All panels have one scale."),
    ),
    _draw,
)
