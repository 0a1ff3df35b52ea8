"""`evaluate`: a model's locality on a data set, one row per image × method."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution import attribute_all, method
from locality.boundary import SEARCHES, find_boundary
from locality.data.dataset import ImageDataset, stack
from locality.model_calls import model_device, open_model
from locality.model_calls.decisions import correct
from locality.progress import Progress
from locality.progress import progress as progress_bar
from locality.results.schema import ROWS
from locality.scores.locality import map_scores
from locality.types import Batch, Boundary, Channels, ModelSpec, PathMaps

METHODS = ("SM", "IG", "BIG")
MOST_IMAGES = 64  # of a batch
MOST_PIXELS = 32 * 224 * 224


@dataclass(frozen=True)
class Settings:
    """What decides the numbers of an evaluation, besides the model and the images."""

    methods: tuple[str, ...] = METHODS
    search: str | None = "fast"  # None: no boundary, and no method that needs one
    target: Literal["predicted", "label"] = "predicted"
    channels: Channels = "all"
    rho: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError("`methods` must name at least one method, such as SM, IG, BIG")
        for name in self.methods:
            method(name)
            if self.search is None and name in ("BSM", "BIG"):
                raise ValueError(f"`search` must not be None for {name}, which starts at the boundary")
        if self.search is not None and self.search not in SEARCHES and not self.search.startswith("foolbox:"):
            near = difflib.get_close_matches(self.search, SEARCHES, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"`search` must be one of {', '.join(SEARCHES)} or foolbox:NAME, got {self.search!r}{hint}")
        if self.target not in ("predicted", "label"):
            raise ValueError(f"`target` must be 'predicted' or 'label', got {self.target!r}")
        if self.channels not in ("all", "sum"):
            raise ValueError(f"`channels` must be 'all' or 'sum', got {self.channels!r}")


@dataclass(frozen=True, eq=False)
class Explained:
    """A batch with everything that was computed about it, before it becomes rows."""

    batch: Batch
    predictions: Tensor  # N
    targets: Tensor  # N, the class attributed; −1 where the label is asked for and the model does not know it
    boundary: Boundary | None
    maps: dict[str, Tensor]  # method ↦ N×C×H×W, `nan` where undefined
    paths: dict[str, PathMaps]  # of the methods that integrate


def evaluate(
    model: nn.Module,
    data: ImageDataset,
    methods: Sequence[str] = METHODS,
    search: str | None = "fast",
    target: Literal["predicted", "label"] = "predicted",
    channels: Channels = "all",
    rho: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Progress = True,
) -> pd.DataFrame:
    """One row per image × method: how much of the map lies in the box, beside chance, and how far the boundary is.

    `label`, `prediction`, `target` and `crossed_to` index the model's classes; −1 is none. `correct` is <NA> where the model
    does not know the class, scores are `nan` where they are undefined. Images are fitted to `model.spec` where needed.

    >>> from locality.data.dataset import load_dataset
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10))
    >>> rows = evaluate(model, load_dataset("shapes", limit=2, count=10), methods=["SM"], progress=False)
    >>> len(rows), rows["method"].tolist()
    (2, ['SM', 'SM'])
    """
    settings = Settings(tuple(methods), search, target, channels, rho, seed)
    data = fitted(model, data)
    size = batch_size or default_batch_size(data)
    if size < 1:
        raise ValueError(f"`batch_size` must be at least 1, got {batch_size}")
    placed = model if device is None else copy.deepcopy(model).to(device)
    tables = []
    with _reporting(progress, name_of(model)) as report:
        for first in range(0, len(data), size):
            indices = range(first, min(first + size, len(data)))
            tables.append(rows_of(explain(placed, data.batch(indices), settings), settings, name_of(model)))
            report(indices[-1] + 1, len(data))
    return pd.concat(tables, ignore_index=True)


def explain(model: nn.Module, batch: Batch, settings: Settings) -> Explained:
    """Predictions, boundary points and maps of one batch."""
    place = model_device(model) or torch.device("cpu")
    images = batch.images.to(place)
    with open_model(model, images) as calls:
        predictions = calls.logits(images).argmax(1)
    labels = batch.labels.to(place)
    targets = predictions if settings.target == "predicted" else labels
    edge = None
    if settings.search is not None:
        edge = find_boundary(model, images, search=settings.search, seed=settings.seed)
    # A label that the model does not know cannot be attributed; the row stays, undefined.
    found = attribute_all(
        model,
        images,
        settings.methods,
        torch.where(targets < 0, predictions, targets),
        edge,
        seed=settings.seed,
    )
    paths = {name: value for name, value in found.items() if isinstance(value, PathMaps)}
    maps = {name: value.maps if isinstance(value, PathMaps) else value for name, value in found.items()}
    undefined = (targets < 0)[:, None, None, None]
    maps = {name: value.masked_fill(undefined, torch.nan) for name, value in maps.items()}
    return Explained(batch, predictions, targets, edge, maps, paths)


def rows_of(explained: Explained, settings: Settings, model_name: str) -> pd.DataFrame:
    """The rows of one batch, image by image, methods in the order they were asked for."""
    batch, edge = explained.batch, explained.boundary
    count = len(batch.ids)
    known = pd.array([bool(accepted) for accepted in batch.accepted], dtype="boolean")
    right = pd.array(correct(explained.predictions, batch.accepted).tolist(), dtype="boolean")
    right[~known.to_numpy(dtype=bool)] = pd.NA
    tables = []
    for name, maps in explained.maps.items():
        scores = map_scores(maps, batch.masks.to(maps.device), settings.rho, settings.channels)
        table = pd.DataFrame(
            {
                "model": model_name,
                "image_id": batch.ids,
                "label": batch.labels.tolist(),
                "prediction": explained.predictions.tolist(),
                "target": explained.targets.tolist(),
                "correct": right,
                "abstained": False,
                "method": name,
                "precision": scores.precision.tolist(),
                "recall": scores.recall.tolist(),
                "f1": scores.f1.tolist(),
                "lift": scores.lift.tolist(),
                "box_share": batch.masks.float().mean((1, 2, 3)).tolist(),
                "distance": [float("nan")] * count if edge is None else edge.distance.tolist(),
                "found": False if edge is None else edge.found.tolist(),
                "crossed_to": -1 if edge is None else edge.crossed_to.tolist(),
            }
        )
        tables.append(table)
    together = pd.concat(tables)
    return together.loc[range(count)].reset_index(drop=True)[list(ROWS)]


def fitted(model: nn.Module, data: ImageDataset) -> ImageDataset:
    """The data as the model sees it; left alone where it is fitted already or the model has no `.spec`."""
    spec = getattr(model, "spec", None)
    if not isinstance(spec, ModelSpec) or data.spec == spec:
        return data
    return ImageDataset(data.source, data.indices, spec, data.region, data.left_out, data.faults)


def name_of(model: nn.Module) -> str:
    """The name in the model's spec, else that of its class."""
    spec = getattr(model, "spec", None)
    return spec.name if isinstance(spec, ModelSpec) else type(model).__name__


def default_batch_size(data: ImageDataset) -> int:
    """As many images as are worth handling together; how many go through the network at once is decided there."""
    height, width = stack([data[0]]).images.shape[-2:]
    return max(1, min(MOST_IMAGES, MOST_PIXELS // (height * width)))


@contextmanager
def _reporting(progress: bool | Progress, title: str) -> Iterator[Progress]:
    if callable(progress):
        yield progress
    elif progress:
        with progress_bar(title) as report:
            yield report
    else:
        yield _nothing


def _nothing(done: int, total: int | None) -> Any:
    """Report to nobody."""
