"""Attribution maps as pictures: red speaks for the class, blue against it, the image shines through faintly (3.3, 3.5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from locality.report.aggregates import Model, NotMeasuredError, floats, models_of, panel_methods
from locality.report.figures.style import COLUMN_WIDTH, GREY, PAGE_WIDTH, STYLE, Width, plain
from locality.results.gallery import GalleryImage
from locality.results.results import Results

POSITIVE, NEGATIVE = (178, 24, 43), (33, 102, 172)  # ColorBrewer's RdBu, safe for colour-blind readers
BOX_COLOUR = "#FF8C00"
FAINT = 0.28  # how much of the image is left under a map
STRONGEST = 99.5  # per cent of a row's values lie below full colour: single pixels would pale all others
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


def heat_picture(image: Pixels, values: Map, limit: float) -> Pixels:
    """The map in colour over a faint grey image; values of ±`limit` and beyond have full colour.

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
    """Where full colour begins for maps that share a scale.

    >>> shared_limit([np.zeros((2, 2)), np.full((2, 2), 0.5)]), shared_limit([])
    (0.5, 1.0)
    """
    sizes = np.concatenate([np.abs(one.astype(np.float64)).ravel() for one in maps]) if maps else np.empty(0)
    sizes = sizes[~np.isnan(sizes)]
    limit = float(np.percentile(sizes, STRONGEST)) if len(sizes) else 0.0
    return limit if limit > 0 else 1.0


@mpl.rc_context(STYLE)
def method_heatmaps(
    results: Results,
    model: str | None = None,
    images: int = 4,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Figure:
    """Figure 3.3: images of the gallery with the maps of several methods, for one standard model."""
    models = {each.name: each for each in models_of(results)}
    if model is None:
        twins = {each.twin for each in models.values()}
        standard = [name for name, each in models.items() if each.kind == "standard"]
        model = next(iter([name for name in standard if name in twins] or standard or list(models)), None)
    if model not in models:
        raise NotMeasuredError(NO_MAPS)
    rows = [Row(image, models[model]) for image in _with_maps(results, [model])[:images]]
    return heatmap_figure(results, rows, methods, width)


@mpl.rc_context(STYLE)
def twin_heatmaps(
    results: Results,
    pair: tuple[str, str] | None = None,
    images: int = 2,
    methods: Sequence[str] | None = None,
    width: Width = "page",
) -> Figure:
    """Figure 3.5: the same images explained for a standard model and for its robust twin, one above the other."""
    models = {each.name: each for each in models_of(results)}
    if pair is None:
        pairs = [(each.twin, name) for name, each in models.items() if each.kind == "robust" and each.twin in models]
        if not pairs:
            raise NotMeasuredError("no robust model has its standard twin beside it")
        pair = str(pairs[0][0]), pairs[0][1]
    rows = [Row(image, models[name]) for image in _with_maps(results, pair)[:images] for name in pair]
    return heatmap_figure(results, rows, methods, width)


def heatmap_figure(
    results: Results, rows: Sequence[Row], methods: Sequence[str] | None = None, width: Width = "page"
) -> Figure:
    """One row of tiles each: the image with its box, then the maps, with F1 under each, on one colour scale a row.

    In a column, where words beside a tile would be longer than it is high, a row's title stands above it.
    """
    if not rows:
        raise NotMeasuredError(NO_MAPS)
    there = list(dict.fromkeys(method for row in rows for model, method in row.image.maps if model == row.model.name))
    chosen = tuple(methods or panel_methods(there))
    scores = _f1_scores(results)
    narrow = width == "column"
    wide, beside, between = (COLUMN_WIDTH, 0.5, 0.36) if narrow else (PAGE_WIDTH, 1.35, 0.24)
    tile = (wide - beside) / (len(chosen) + 1)
    # In a column, more room between rows, for their titles.
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.09) if narrow else ConstrainedLayoutEngine()
    figure = Figure(figsize=(wide, len(rows) * (tile + between) + (0 if narrow else 0.25)), layout=layout)
    grid = figure.subplots(len(rows), len(chosen) + 1, squeeze=False)
    for place, (row, axes) in enumerate(zip(rows, grid, strict=True)):
        draw_tile(axes[0], row.image.image, row.image.boxes)
        _write_title(axes[0], row, narrow)
        maps = [row.image.maps.get((row.model.name, method)) for method in chosen]
        limit = shared_limit([one for one in maps if one is not None])
        for panel, method, values in zip(axes[1:], chosen, maps, strict=True):
            defined = values is not None and not np.isnan(values.astype(np.float64)).all()
            picture = heat_picture(row.image.image, values, limit) if defined and values is not None else None
            draw_tile(panel, picture, row.image.boxes)
            score = scores.get((row.model.name, row.image.image_id, method), math.nan)
            words = "F1 undefined" if math.isnan(score) else f"F1 {score:.2f}"
            words = f"{plain(method, 9)} {words.removeprefix('F1 ')}" if narrow else words
            panel.set_xlabel(words, fontsize=7, labelpad=2)
        if narrow:
            axes[0].set_xlabel("F1:", fontsize=7, labelpad=2, loc="right")
        elif place == 0:
            for panel, title in zip(axes, ["image and box", *chosen], strict=True):
                panel.set_title(plain(title))
        draw_scale(figure, limit, beside=axes.tolist(), named=not narrow)
    return figure


def draw_scale(
    figure: Figure, limit: float, beside: Sequence[Axes] = (), under: Axes | None = None, named: bool = True
) -> None:
    """The colour scale that tiles share: beside them, or in axes of its own under them."""
    colours = ScalarMappable(Normalize(-limit, limit), SCALE)
    if under is None:
        scale = figure.colorbar(colours, ax=list(beside), shrink=0.85, aspect=14, pad=0.01)
        scale.set_label("share of a map's maximum" if named else "", fontsize=6.5)
    else:
        scale = figure.colorbar(colours, cax=under, orientation="horizontal")
        scale.set_label("against the class ← share of a map's maximum → for it", fontsize=6.5)
    scale.set_ticks([-limit, 0, limit], labels=[f"−{limit:.2g}", "0", f"{limit:.2g}"])
    scale.outline.set_visible(False)
    scale.ax.tick_params(labelsize=6.5, length=2)


def draw_tile(panel: Axes, picture: Pixels | None, boxes: Sequence[tuple[float, float, float, float]] = ()) -> None:
    """A picture with its boxes; where there is no picture, the word "undefined"."""
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
    # Pixels from 0 to width, as boxes count them; hard edges, because smoothing would hide what the model sees.
    panel.imshow(picture, extent=(0, width, height, 0), interpolation="nearest")
    for x0, y0, x1, y1 in boxes:
        for colour, size in (("black", 1.8), (BOX_COLOUR, 1.1)):
            panel.add_patch(
                Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linewidth=size, clip_on=False)
            )
    panel.set_xlim(0, width)
    panel.set_ylim(height, 0)


def _write_title(panel: Axes, row: Row, above: bool) -> None:
    """Whose maps these are, of what: beside the row's first tile or above it."""
    if not above:
        panel.set_ylabel("\n".join(_row_title(row)), fontsize=7)
        return
    note = panel.annotate(
        ": ".join(_row_title(row)), (0, 1), (0, 2.5), xycoords="axes fraction", textcoords="offset points", fontsize=7
    )
    note.set_in_layout(False)  # it may be longer than the tile is wide


def _row_title(row: Row) -> list[str]:
    said = row.image.predictions.get(row.model.name)
    words = [plain(row.model.name), plain(row.image.label)]
    if said is not None and said != row.image.label:
        words[-1] = f"{words[-1]}, taken for {plain(said)}"
    return words


def _with_maps(results: Results, models: Sequence[str]) -> list[GalleryImage]:
    """The images of the gallery that have maps of every one of the models; models of other data have other images."""
    return [image for image in results.gallery if set(models) <= {name for name, _ in image.maps}]


def _f1_scores(results: Results) -> dict[tuple[str, str, str], float]:
    """F1 of the gallery's images by (model, image, method)."""
    shown = results.rows[results.rows["image_id"].isin([image.image_id for image in results.gallery])]
    keys = zip(shown["model"], shown["image_id"], shown["method"], strict=True)
    return dict(zip(keys, floats(shown["f1"]).tolist(), strict=True))
