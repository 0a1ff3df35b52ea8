"""The images on which a model's attributions lie on the object the most and the least, by lift."""

from __future__ import annotations

import matplotlib as mpl

from locality.report.aggregates import NotMeasuredError, panel_methods
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.heatmaps import NO_MAPS, Row, abstained_images, heatmap_plot
from locality.report.figures.options import FigureOptions
from locality.report.figures.style import STYLE, Width
from locality.report.models import models_of
from locality.results.results import Results

EACH = 3  # images of either kind


@mpl.rc_context(STYLE)
def extreme_heatmaps(
    results: Results, methods: tuple[str, ...] | None = None, model: str | None = None, width: Width = "page"
) -> Plot:
    """Heat maps of the stored images with the highest and the lowest lift of a model, by default of the first one.

    An image's lift is the mean over the methods shown.
    """
    models = {one.name: one for one in models_of(results)}
    own = [image for image in results.gallery if model is None or any(name == model for name, _ in image.maps)]
    if not own or not models:
        raise NotMeasuredError(NO_MAPS)
    stored = dict.fromkeys(name for image in own for name, _ in image.maps)
    name = model or next(one for one in models if one in stored)
    shown = methods or panel_methods(list(dict.fromkeys(method for image in own for _, method in image.maps)))
    rows = results.rows[(results.rows["model"] == name) & results.rows["method"].isin(shown)]
    lifts = rows.groupby("image_id", sort=False)["lift"].mean().dropna()
    scored = sorted((image for image in own if image.image_id in lifts.index), key=lambda one: -float(lifts[one.image_id]))
    if not scored:
        raise NotMeasuredError("no image with stored maps has a lift")
    each = min(EACH, -(-len(scored) // 2))
    best, worst = scored[:each], scored[each:][-each:]
    abstained = abstained_images(results)
    notes = [f"best {place}" for place in range(1, len(best) + 1)] + [f"worst {place}" for place in range(len(worst), 0, -1)]
    chosen = [
        Row(image, models[name], (name, image.image_id) in abstained, note)
        for image, note in zip([*best, *worst], notes, strict=True)
    ]
    return heatmap_plot(results, chosen, shown, width, "lift")


def _draw(results: Results, options: FigureOptions, width: Width) -> Plot:
    return extreme_heatmaps(results, options.methods, width=width)


EXTREMES = Drawing(
    "best_and_worst",
    "Best and worst images by lift",
    (
        "The stored images with the highest and the lowest lift, the mean over the methods shown. Red supports the "
        "predicted class, blue opposes it; one colour scale per row.",
        If("abstentions", "Where a model abstained, nothing is attributed."),
    ),
    _draw,
)
