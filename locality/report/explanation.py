"""Explain one image: the predicted classes, attribution maps, and the nearest image with another prediction."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from numpy.typing import NDArray
from torch import Tensor, nn

from locality.attribution.all_at_once import OWN, attribute_all, check_method, names_of
from locality.boundary import find_boundary
from locality.data.boxes import box_mask
from locality.data.image_input import ImageInput, pixels_of
from locality.data.preprocess import fit
from locality.errors import ArgumentError
from locality.imagenet_classes import class_word
from locality.model_calls import model_device, open_model
from locality.model_calls.checks import check_images
from locality.model_calls.decisions import decisions
from locality.report.figures.files import FORMATS, figure_bytes, write_figure
from locality.report.figures.heatmaps import Pixels, draw_scale, draw_tile, heat_picture, shared_limit
from locality.report.figures.style import BLUE, GREY, INK, LONGEST, STYLE, plain
from locality.report.tables.formats import one_line
from locality.scores.locality import map_scores
from locality.types import ABSTAINED, Box, ModelSpec, PathMaps, Sample
from locality.zoo.class_index import class_index

BoxInput: TypeAlias = Box | Sequence[float]

METHODS = ("SM", "IG", "BIG")
TOP = 5  # classes listed
FONT_SIZE = 8  # points, of the sentences
SHORTEST = 8  # characters of a title that is shortened


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """An explained prediction. A notebook displays it as a picture; `save` writes the picture.

    Maps are summed over channels and scaled to a maximum of 1, so that methods can share a colour scale.
    """

    model: str
    name: str  # of the image
    image: Pixels  # H×W×3, as the model sees it
    classes: tuple[tuple[str, float], ...]  # the most probable ones with their probabilities
    maps: dict[str, NDArray[np.float32]]  # method ↦ H×W; nan where undefined
    distance: float  # ℓ2, to the nearest image found with another prediction; inf where none was found
    nearest: str | None  # the class of that image
    search: str
    abstained: bool = False  # nothing is attributed then
    to: str | None = None  # the class that the nearest image must have; None: any other
    target: str | None = None  # the class that is attributed; None: the predicted one
    boxes: tuple[Box, ...] = ()  # in pixels of `image`
    scores: dict[str, tuple[float, float]] = field(default_factory=dict)  # method ↦ F1 and lift against the box

    @property
    def prediction(self) -> str:
        return self.classes[0][0]

    def sentences(self) -> list[str]:
        """Prediction and nearest other class, in sentences."""
        if self.abstained:
            top = f"{self.prediction} ({self.classes[0][1]:.1%})"
            return [f"{self.model} abstains; its most probable class is {top}.", "An abstention is not attributed."]
        attributed = "" if self.target is None else f" The maps are those of {self.target}."
        first = f"{self.model} predicts {self.prediction} ({self.classes[0][1]:.1%}).{attributed}"
        if self.nearest is None:
            sought = "another prediction" if self.to is None else f"the prediction {self.to}"
            return [first, f"No image with {sought} was found (search: {self.search})."]
        levels = 255 * self.distance / math.sqrt(self.image.size)
        return [
            first,
            f"The nearest {'other class is' if self.to is None else 'image predicted as'} {self.nearest}"
            f"{',' if self.to is None else ' is'} at an ℓ2 distance of {self.distance:.3g} "
            f"({levels:.2g} levels of 255 per value, root mean square; search: {self.search}).",
        ]

    def to_json(self) -> dict[str, Any]:
        """The prediction and the nearest other class as plain values; the distance is None where none was found."""
        classes = [{"class": name, "probability": probability} for name, probability in self.classes]
        distance = self.distance if math.isfinite(self.distance) else None
        about = {"model": self.model, "data": self.name, "classes": classes, "abstained": self.abstained}
        return about | {"nearest": self.nearest, "distance": distance, "search": self.search}

    @mpl.rc_context(STYLE)
    def figure(self) -> Figure:
        """The image, its maps, and the predicted classes, side by side."""
        tiles = len(self.maps) + 1
        side = 1.75
        width = tiles * side + 2.4
        space = 72 * (width - 0.15)
        lines = [line for sentence in self.sentences() for line in wrapped(one_line(sentence), space, FONT_SIZE)]
        # Two lines, which is usual, and more if needed.
        height = side + 1.05 + max(0, len(lines) - 2) * 1.4 * FONT_SIZE / 72
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.add_gridspec(2, tiles + 1, width_ratios=[1] * tiles + [1.2], height_ratios=[1, 0.05])
        panels = [figure.add_subplot(grid[0, column]) for column in range(tiles + 1)]
        corners = [(box.x0, box.y0, box.x1, box.y1) for box in self.boxes]
        draw_tile(panels[0], self.image, corners)
        panels[0].set_title(fitted(self.name, 72 * side))
        limit = shared_limit([values for values in self.maps.values() if not np.isnan(values).all()])
        for panel, (name, values) in zip(panels[1:tiles], self.maps.items(), strict=True):
            draw_tile(panel, None if np.isnan(values).all() else heat_picture(self.image, values, limit), corners)
            if name in self.scores:
                f1, lift = (f"{round(score, 2) + 0.0:.2f}".replace("-", "−") for score in self.scores[name])
                panel.set_xlabel(f"F1 {f1}, lift {lift}", fontsize=6.5, labelpad=2)
            panel.set_title(fitted(name, 72 * side))
        draw_scale(figure, limit, under=figure.add_subplot(grid[1, 1:tiles]))
        _draw_classes(panels[tiles], self.classes)
        figure.suptitle("\n".join(map(_unshortened, lines)), fontsize=FONT_SIZE, x=0.008, ha="left", linespacing=1.4)
        return figure

    def save(self, path: str | Path) -> Path:
        """Write the picture as a PNG, PDF or SVG file, depending on the suffix."""
        file = Path(path)
        form = file.suffix.removeprefix(".").lower()
        if form not in FORMATS:
            raise ArgumentError("path", f"a file name that ends in {', '.join(f'.{name}' for name in FORMATS)}", str(path))
        return write_figure(self.figure(), file.parent, file.stem, [form])[0]

    def __repr__(self) -> str:
        return f"<Explanation of {self.name}: {self.sentences()[0]}>"

    def _repr_png_(self) -> bytes:
        return figure_bytes(self.figure(), "png")


def explain_image(
    model: nn.Module,
    image: ImageInput,
    methods: Sequence[str] = METHODS,
    *,
    search: str = "fast",
    spec: ModelSpec | None = None,
    seed: int = 0,
    to: int | str | None = None,
    classes: Sequence[str] | None = None,
    target: int | str | None = None,
    box: BoxInput | None = None,
) -> Explanation:
    """Explain the model's prediction for one image: a file, a Pillow image, an array H×W×3, or a tensor 3×H×W in [0, 1].

    The image is resized and cropped as `spec` or `model.spec` says; without a spec it is used unchanged. `classes` are names
    of the model's classes, in the order of its logits. `target` is the class that is attributed, by number or name; by
    default the predicted one. `to` is a class, too: the nearest image must be predicted as it. `box` is where the object is,
    (x0, y0, x1, y1) in pixels of the image: it is drawn, and the maps are scored against it.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    >>> explained = explain_image(net, torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(0)), ["SM"])
    >>> list(explained.maps), explained.image.shape, len(explained.classes)
    (['SM'], (2, 2, 3), 2)
    """
    if not methods:
        raise ArgumentError("methods", "at least one method, such as SM, IG, BIG", list(methods))
    for name in names_of(methods):
        check_method(name)
    known = spec or getattr(model, "spec", None)
    listed = tuple(classes) if classes is not None else known.classes if known is not None else ()
    attributed = None if target is None else class_index(target, listed, "target")
    towards = None if to is None else class_index(to, listed, "to")
    pixels, title = pixels_of(image)
    sample = _sample(title, pixels, box)
    if known is not None:
        sample = fit(sample, known)
    if box is not None and not bool(sample.mask.any()):
        raise ArgumentError("box", "inside the part of the image that the model sees", box)
    fitted = sample.image
    images = fitted[None].to(model_device(model) or torch.device("cpu"))
    check_images(images)
    with open_model(model, images) as calls:
        logits = calls.logits(images)
        abstained = bool(decisions(model, logits) == ABSTAINED)
        boundary = None if abstained else find_boundary(calls, images, search=search, seed=seed, to=towards)
        if classes is not None and len(listed) != logits.shape[1]:
            raise ArgumentError("classes", f"{logits.shape[1]} names, one per logit", f"{len(listed)}")
        opened = calls if set(methods) <= OWN else model  # other methods open the model themselves
        maps = {} if boundary is None else attribute_all(opened, images, methods, attributed, boundary, seed=seed)
    probabilities = logits.softmax(1)[0]
    names = [class_word(name) for name in listed] or None
    order = probabilities.argsort(descending=True)[:TOP].tolist()
    undefined = np.full(fitted.shape[1:], np.nan, np.float32)
    return Explanation(
        model=known.name if known is not None else type(model).__name__,
        name=title,
        image=(fitted.permute(1, 2, 0) * 255).round().byte().cpu().numpy(),
        classes=tuple((_class_name(names, index), float(probabilities[index])) for index in order),
        maps={name: _scaled(maps[name]) if name in maps else undefined for name in methods},
        distance=math.inf if boundary is None else float(boundary.distance),
        nearest=_class_name(names, int(boundary.crossed_to)) if boundary is not None and bool(boundary.found) else None,
        search=search,
        abstained=abstained,
        to=None if towards is None else _class_name(names, towards),
        target=None if attributed is None else _class_name(names, attributed),
        boxes=sample.boxes,
        scores=_in_box(maps, sample.mask) if box is not None else {},
    )


def _sample(name: str, pixels: Tensor, box: BoxInput | None) -> Sample:
    """The image with its box, before it is fitted to the model."""
    height, width = pixels.shape[-2:]
    boxes: tuple[Box, ...] = ()
    if box is not None:
        if not isinstance(box, Box) and len(box) != 4:
            raise ArgumentError("box", "four numbers (x0, y0, x1, y1) in pixels of the image", box)
        boxes = (box if isinstance(box, Box) else Box(*map(float, box)),)
    return Sample(name, pixels, -1, boxes, box_mask(boxes, height, width))


def _in_box(maps: Mapping[str, PathMaps | Tensor], mask: Tensor) -> dict[str, tuple[float, float]]:
    """F1 and lift of each map."""
    scores = {name: map_scores(_map_of(value), mask[None].to(_map_of(value).device)) for name, value in maps.items()}
    return {name: (float(score.f1), float(score.lift)) for name, score in scores.items()}


def _map_of(value: PathMaps | Tensor) -> Tensor:
    return value.maps if isinstance(value, PathMaps) else value


def _class_name(names: Sequence[str] | None, index: int) -> str:
    return names[index] if names is not None and index < len(names) else f"class {index}"


def _scaled(value: PathMaps | Tensor) -> NDArray[np.float32]:
    """H×W: summed over channels and scaled to a maximum of 1; zeros stay zeros."""
    plane: NDArray[np.float32] = _map_of(value)[0].sum(0).float().cpu().numpy()
    largest = np.abs(plane).max()
    return plane / largest if largest > 0 else plane


def wrapped(text: str, width: float, size: float) -> list[str]:
    """The text in lines of at most `width` points; longer words are broken.

    >>> wrapped("some words", 1000, 8), wrapped("some words", 30, 8)
    (['some words'], ['some', 'words'])
    """
    whole = _length(_unshortened(text), size)
    lines = [text]
    letters = math.ceil(1.3 * len(text) * width / max(whole, width))  # more than fit, unless their widths vary a lot
    while letters > 1 and any(_length(_unshortened(line), size) > width for line in lines):
        lines = textwrap.wrap(text, letters)
        letters = math.floor(0.97 * letters)
    return lines


def _length(line: str, size: float) -> float:
    """Length of the printed line in points."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        return float(TextPath((0, 0), line, size=size).get_extents().x1)


def fitted(name: str, width: float) -> str:
    """A title of a tile, shortened to so many points: titles that are longer than their tile run into each other."""
    size = float(STYLE["axes.titlesize"])
    texts = [plain(name, longest) for longest in range(LONGEST, SHORTEST - 1, -1)]
    return next((text for text in texts if _length(text, size) <= width), texts[-1])


def _unshortened(line: str) -> str:
    return plain(line, len(line))


def _draw_classes(panel: Axes, classes: Sequence[tuple[str, float]]) -> None:
    """A bar per class, the most probable on top, with name and probability above the bar."""
    looks: Any = {"fontsize": 7, "va": "bottom"}
    for row, (name, probability) in enumerate(classes):
        panel.barh(row, probability, height=0.3, color=BLUE if row == 0 else GREY)
        panel.text(0, row - 0.2, plain(name, 24), ha="left", color=INK, fontweight="bold" if row == 0 else "normal", **looks)
        panel.text(1, row - 0.2, f"{probability:.1%}", ha="right", color=INK, **looks)
    panel.set(xlim=(0, 1), ylim=(TOP - 0.5, -0.75), xticks=[], yticks=[])
    panel.set_title("predicted class")
    panel.grid(False)
    for spine in panel.spines.values():
        spine.set_visible(False)
