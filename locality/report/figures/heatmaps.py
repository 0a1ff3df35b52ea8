"""Figures 3.3 and 3.5: attribution maps over a faint image; red supports the predicted class, blue opposes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from locality.report.aggregates import NotMeasuredError, abstentions, panel_methods
from locality.report.estimates import floats
from locality.report.figures.drawing import Drawing, If, Plot
from locality.report.figures.options import FigureOptions
from locality.report.figures.style import COLUMN_WIDTH, GREY, PAGE_WIDTH, STYLE, Width, plain
from locality.report.models import Model, models_of, pairs_of
from locality.report.pairs import NO_PAIRS
from locality.results.gallery import GalleryImage
from locality.results.results import Results

POSITIVE, NEGATIVE = (178, 24, 43), (33, 102, 172)  # ColorBrewer's RdBu, safe for colour-blind readers
BOX_COLOUR = "#FF8C00"
FAINT = 0.28  # contrast of the image under a map
FULL_COLOUR = 99.5  # percentile of a row's absolute values: single pixels would make all others pale
SCALE = LinearSegmentedColormap.from_list(
    "signed", [[part / 255 for part in NEGATIVE], [1.0, 1.0, 1.0], [part / 255 for part in POSITIVE]]
)
NO_MAPS = "no maps were stored: set `gallery` in the suite"
Pixels = NDArray[np.uint8]  # H×W×3
Map = NDArray[np.floating]  # H×W


@dataclass(frozen=True)
class Row:
    """A row of tiles: one image with the maps of one model."""

    image: GalleryImage
    model: Model
    abstained: bool = False
    note: str = ""  # first in its title


def heat_picture(image: Pixels, values: Map, limit: float) -> Pixels:
    """The map in colour over a faint grey image; values from ±`limit` on have full colour.

    >>> white = np.full((1, 3, 3), 255, np.uint8)
    >>> heat_picture(white, np.array([[1.0, 0.0, -1.0]]), 1.0).tolist()
    [[[178, 24, 43], [255, 255, 255], [33, 102, 172]]]
    """
    grey = image.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    paper = (255 - FAINT * (255 - grey))[..., None]
    share = np.clip(np.nan_to_num(values.astype(np.float64)) / limit, -1, 1)[..., None]
    colour = np.where(share > 0, np.array(POSITIVE), np.array(NEGATIVE))
    mixed: Pixels = np.rint(paper * (1 - np.abs(share)) + colour * np.abs(share)).astype(np.uint8)
    return mixed


def shared_limit(maps: Sequence[Map]) -> float:
    """The value of full colour for maps that share a scale.

    >>> shared_limit([np.zeros((2, 2)), np.full((2, 2), 0.5)]), shared_limit([])
    (0.5, 1.0)
    """
    sizes = np.concatenate([np.abs(one.astype(np.float64)).ravel() for one in maps]) if maps else np.empty(0)
    sizes = sizes[~np.isnan(sizes)]
    limit = float(np.percentile(sizes, FULL_COLOUR)) if len(sizes) else 0.0
    return limit if limit > 0 else 1.0


@mpl.rc_context(STYLE)
def model_heatmaps(
    results: Results,
    model: str | None = None,
    images: int = 4,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Plot:
    """Figure 3.3: images of the gallery with the maps of several methods, by default for a standard model of a pair."""
    models = {one.name: one for one in models_of(results)}
    if model is None:
        paired = [standard.name for standard, _ in pairs_of(models.values())]
        standard = [name for name, one in models.items() if one.kind == "standard"]
        model = next(iter([name for name in standard if name in paired] or standard or list(models)), None)
    if model not in models:
        raise NotMeasuredError(NO_MAPS)
    return heatmap_plot(results, _rows(results, [models[model]], images), methods, width)


@mpl.rc_context(STYLE)
def pair_heatmaps(
    results: Results,
    pair: tuple[str, str] | None = None,
    images: int = 2,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Plot:
    """Figure 3.5: the same images for a standard model and a robust one, by default of the first pair."""
    models = {one.name: one for one in models_of(results)}
    if pair is None:
        pairs = pairs_of(models.values())
        if not pairs:
            raise NotMeasuredError(NO_PAIRS)
        chosen = list(pairs[0])
    else:
        chosen = [models[name] for name in pair]
    return heatmap_plot(results, _rows(results, chosen, images), methods, width)


def heatmap_plot(
    results: Results,
    rows: Sequence[Row],
    methods: Sequence[str] | None = None,
    width: Width = "page",
    score: Literal["f1", "lift"] = "f1",
) -> Plot:
    """The image with its box, then the maps, one row of tiles per `Row` and one colour scale per row.

    Below each map is its score, if locality was measured.

    At column width the title of a row is above it: beside it, it would be longer than the tile is high.
    """
    if not rows:
        raise NotMeasuredError(NO_MAPS)
    stored = list(dict.fromkeys(method for row in rows for model, method in row.image.maps if model == row.model.name))
    chosen = tuple(methods or panel_methods(stored))
    scores, scored = _image_scores(results, score), not results.rows.empty
    title = {"f1": "F1", "lift": "lift"}[score]
    narrow = width == "column"
    wide, beside, between = (COLUMN_WIDTH, 0.5, 0.36) if narrow else (PAGE_WIDTH, 1.35, 0.24)
    tile = (wide - beside) / (len(chosen) + 1)
    # At column width, titles need more space between the rows.
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.09) if narrow else ConstrainedLayoutEngine()
    figure = Figure(figsize=(wide, len(rows) * (tile + between) + (0 if narrow else 0.25)), layout=layout)
    grid = figure.subplots(len(rows), len(chosen) + 1, squeeze=False)
    for index, (row, axes) in enumerate(zip(rows, grid, strict=True)):
        draw_tile(axes[0], row.image.image, row.image.boxes)
        _write_title(axes[0], row, narrow)
        maps = [row.image.maps.get((row.model.name, method)) for method in chosen]
        limit = shared_limit([one for one in maps if one is not None])
        for panel, method, values in zip(axes[1:], chosen, maps, strict=True):
            defined = values is not None and not np.isnan(values.astype(np.float64)).all()
            picture = heat_picture(row.image.image, values, limit) if defined and values is not None else None
            draw_tile(panel, picture, row.image.boxes)
            words = [plain(method, 9)] if narrow else [title] if scored else []
            if scored:
                number = scores.get((row.model.name, row.image.image_id, method), math.nan)
                words.append("undefined" if math.isnan(number) else f"{round(number, 2) + 0.0:.2f}".replace("-", "−"))
            panel.set_xlabel(" ".join(words), fontsize=7, labelpad=2)
        if narrow:
            axes[0].set_xlabel(f"{title}:" if scored else "", fontsize=7, labelpad=2, loc="right")
        elif index == 0:
            first = "image and box" if any(row.image.boxes for row in rows) else "image"
            for panel, name in zip(axes, [first, *chosen], strict=True):
                panel.set_title(plain(name))
        draw_scale(figure, limit, beside=axes.tolist(), named=not narrow)
    return Plot(figure, frozenset(["abstentions"] if any(row.abstained for row in rows) else []))


def draw_scale(
    figure: Figure, limit: float, beside: Sequence[Axes] = (), under: Axes | None = None, named: bool = True
) -> None:
    """The colour scale that tiles share: beside them, or in axes below them."""
    colours = ScalarMappable(Normalize(-limit, limit), SCALE)
    if under is None:
        scale = figure.colorbar(colours, ax=list(beside), shrink=0.85, aspect=14, pad=0.01)
        scale.set_label("share of a map's maximum" if named else "", fontsize=6.5)
    else:
        scale = figure.colorbar(colours, cax=under, orientation="horizontal")
        scale.set_label("opposes the class ← share of a map's maximum → supports it", fontsize=6.5)
    scale.set_ticks([-limit, 0, limit], labels=[f"−{limit:.2g}", "0", f"{limit:.2g}"])
    scale.outline.set_visible(False)
    scale.ax.tick_params(labelsize=6.5, length=2)


def draw_tile(panel: Axes, picture: Pixels | None, boxes: Sequence[tuple[float, float, float, float]] = ()) -> None:
    """A picture with its boxes, or the word "undefined" where there is none."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    if picture is None:
        panel.set_aspect("equal")
        panel.text(0.5, 0.5, "undefined", transform=panel.transAxes, ha="center", va="center", color=GREY)
        return
    height, width = picture.shape[:2]
    # Coordinates from 0 to width, like those of boxes. Not smoothed: that would hide what the model sees.
    panel.imshow(picture, extent=(0, width, height, 0), interpolation="nearest")
    for x0, y0, x1, y1 in boxes:
        for colour, size in (("black", 1.8), (BOX_COLOUR, 1.1)):
            panel.add_patch(
                Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linewidth=size, clip_on=False)
            )
    panel.set_xlim(0, width)
    panel.set_ylim(height, 0)


def _write_title(panel: Axes, row: Row, above: bool) -> None:
    """Model and label, beside the first tile of the row or above it."""
    if not above:
        panel.set_ylabel("\n".join(_row_title(row)), fontsize=7)
        return
    title = ": ".join(_row_title(row)).replace("\n", " ")
    note = panel.annotate(title, (0, 1), (0, 2.5), xycoords="axes fraction", textcoords="offset points", fontsize=7)
    note.set_in_layout(False)  # it may be longer than the tile is wide


def _row_title(row: Row) -> list[str]:
    prediction = row.image.predictions.get(row.model.name)
    label = plain(row.image.label)
    if row.abstained:
        label = f"{label}, abstained"
    elif prediction is not None and prediction != row.image.label:
        label = f"{label},\npredicted {plain(prediction)}"  # in one line it may be longer than the tile is high
    return [*([row.note] if row.note else []), plain(row.model.name), label]


def _rows(results: Results, models: Sequence[Model], images: int) -> list[Row]:
    """The first images of the gallery that have maps of all the models; models of other data have other images."""
    names = {model.name for model in models}
    shared = [image for image in results.gallery if names <= {name for name, _ in image.maps}]
    abstained = abstained_images(results)
    return [Row(image, model, (model.name, image.image_id) in abstained) for image in shared[:images] for model in models]


def abstained_images(results: Results) -> set[tuple[str, str]]:
    """Model and image of every abstention."""
    rows = results.rows[abstentions(results.rows) == 1]
    return set(zip(rows["model"], rows["image_id"], strict=True))


def _image_scores(results: Results, score: str) -> dict[tuple[str, str, str], float]:
    """A score of the gallery's images by (model, image, method)."""
    shown = results.rows[results.rows["image_id"].isin([image.image_id for image in results.gallery])]
    keys = zip(shown["model"], shown["image_id"], shown["method"], strict=True)
    return dict(zip(keys, floats(shown[score]).tolist(), strict=True))


def _draw_model(results: Results, options: FigureOptions, width: Width) -> Plot:
    return model_heatmaps(results, methods=options.methods, width=width)


def _draw_pair(results: Results, options: FigureOptions, width: Width) -> Plot:
    return pair_heatmaps(results, methods=options.methods, width=width)


EXPLAINED = (
    "Red supports the predicted class, blue opposes it; one colour scale per row. The first images of the gallery.",
    If("abstentions", "Where a model abstained, nothing is attributed."),
)
MODEL_HEATMAPS = Drawing("fig3_3", "Attributions of one model", EXPLAINED, _draw_model)
PAIR_HEATMAPS = Drawing("fig3_5", "Attributions of a standard model and its robust counterpart", EXPLAINED, _draw_pair)
