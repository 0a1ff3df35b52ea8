"""All scores of one model in one figure, for results whose other figures would have a single point."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from locality.report.aggregates import NotMeasuredError, aggregate
from locality.report.figures.drawing import Drawing, Plot
from locality.report.figures.options import FigureOptions, shown_methods
from locality.report.figures.scatter import ABSTENTIONS, DASHES, SCORE_TITLES, abstaining
from locality.report.figures.style import (
    COLUMN_WIDTH,
    GREY,
    LOOKS,
    PAGE_WIDTH,
    STYLE,
    Width,
    interval_bars,
    plain,
)
from locality.results.results import Results

SHOWN = ("precision", "recall", "f1", "lift")
ROW = 0.26  # inches per method


@mpl.rc_context(STYLE)
def model_means(results: Results, methods: Sequence[str] | None = None, width: Width = "page") -> Plot:
    """Mean precision, recall, F1 and lift by method, with intervals; the dashed line is the uniform map's."""
    means = aggregate(results)
    chosen = shown_methods(methods, means.methods, every=True)
    models = [model for model in means.models if any((model.name, method, "f1") in means.scores for method in chosen)]
    if len(models) != 1:
        raise NotMeasuredError(f"it shows one model, {len(models)} were measured")
    [model] = models
    columns, rows = (4, 1) if width == "page" else (2, 2)
    inches = PAGE_WIDTH if width == "page" else COLUMN_WIDTH
    figure = Figure(figsize=(inches, rows * (1.0 + ROW * len(chosen))), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    look = LOOKS[model.kind]
    for panel, score in zip(axes, SHOWN, strict=True):
        for place, method in enumerate(chosen):
            mean = means.scores[model.name, method, score]
            if mean.used:
                line, _, _ = panel.errorbar(mean.mean, place, xerr=interval_bars(mean), marker="o", ecolor=look.error_bars)
                line.set(**look.marker)
        uniform = [mean for (_, name), mean in means.uniform.items() if name == score and mean.used]
        if uniform and not math.isnan(uniform[0].mean):
            panel.axvline(uniform[0].mean, color=GREY, linestyle=DASHES, linewidth=0.9)
        panel.set_title(SCORE_TITLES[score])
        panel.set_yticks(range(len(chosen)), [plain(method, 16) for method in chosen])
        panel.set_ylim(len(chosen) - 0.5, -0.5)
        panel.margins(x=0.12)
    accuracy, distance = means.accuracy.get(model.name), means.distance.get(model.name)
    facts = [f"accuracy {accuracy.mean:.1%}"] if accuracy is not None and accuracy.used else []
    facts += [f"mean ℓ2 distance to the boundary {distance.mean:.3g}"] if distance is not None and distance.used else []
    figure.suptitle(", ".join([plain(model.name), *facts]), fontsize=8)
    return Plot(figure, frozenset(["abstentions"] if abstaining(means, models) else []))


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return model_means(results, options.methods, width)


MEANS = Drawing(
    "means",
    "Scores of the model",
    ("Means with 95 % bootstrap intervals over images. Dashed: a uniform map.", ABSTENTIONS),
    _draw,
)
