"""`evaluate`: a model's locality on a data set, one row per image × method."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution.integrated_gradients import Points, quadrature
from locality.data.dataset import ImageDataset, stack
from locality.errors import ArgumentError
from locality.files import write_atomically, write_csv
from locality.progress import Progress, no_progress
from locality.progress import progress as progress_bar
from locality.results.schema import SCORES
from locality.runner.explain_batch import METHODS, Settings, brackets_of, explain, gaps_of, rows_of
from locality.runner.provenance import provenance
from locality.runner.summary import ModelSummary, model_free_rows, model_summary
from locality.scores import check_scores
from locality.types import Batch, Channels, ModelSpec, TargetName

MAX_BATCH_IMAGES = 64
MAX_BATCH_PIXELS = 32 * 224 * 224


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` measured.

    `rows` has one row per image × method, with the columns of `results.schema.ROWS` and those of further scores:

    - `label`, `prediction`, `target` and `crossed_to` index the model's classes; −1 is none.
    - `correct` is <NA> where the model does not know the label. An abstention has `abstained` True, prediction −1 and
      `correct` False: it is not a right answer, and not a wrong one either (a wrong one has neither flag). Accuracy is
      right / all images with known labels; the share of abstentions stands beside it.
    - Scores are `nan` where they are undefined, as for abstentions, which are never attributed.

    `model_free` has the same scores of maps that know neither the model nor the image, for comparison. `gaps` has the
    completeness gap of IG and BIG, |Σ map − (f(x) − f(b))| / |f(x) − f(b)|, one row per image × method. `brackets` has the
    certified radius and the distance of each boundary point, between which the nearest boundary lies; it has rows for
    networks made for small Lipschitz constants, such as `liresnet`.
    """

    model: str
    data: str
    rows: pd.DataFrame
    model_free: pd.DataFrame
    gaps: pd.DataFrame
    brackets: pd.DataFrame
    provenance: dict[str, Any]

    @functools.cached_property
    def summary(self) -> ModelSummary:
        """Means with 95 % intervals."""
        return model_summary(self.rows, self.model_free, gaps=self.gaps, brackets=self.brackets)

    def to_json(self) -> dict[str, Any]:
        """The summary and the provenance as plain values; undefined is None."""
        return {"model": self.model, "data": self.data, **self.summary.to_json(), "provenance": self.provenance}

    def write(self, folder: str | Path) -> None:
        """Write rows.parquet, rows.csv and summary.json, each atomically."""
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "rows.parquet", lambda path: self.rows.to_parquet(path, index=False))
        write_csv(out / "rows.csv", self.rows)
        write_atomically(out / "summary.json", json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False))


def evaluate(
    model: nn.Module,
    data: ImageDataset,
    methods: Sequence[str] = METHODS,
    search: str | None = "fast",
    target: TargetName = "predicted",
    channels: Channels = "all",
    rho: float = 0.0,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Progress = True,
    scores: Sequence[str] = (),
    points: Points = 20,
    to: int | None = None,
) -> Evaluation:
    """Measure how much of each map lies in the box, against chance, and how far the decision boundary is.

    Images are fitted to `model.spec` where needed. Each is decoded once, and the model is opened once per batch. `scores`
    are names in `locality.scores.SCORES` to measure besides precision, recall, F1 and lift. `points` are those on the
    paths of IG and BIG; "auto" takes as many as completeness needs. `to` is the class that boundary points must
    have: images that have it are at distance 0, and their BIG is zero.

    >>> from locality.data.dataset import load_dataset
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10))
    >>> evaluation = evaluate(model, load_dataset("shapes", limit=2, count=10), methods=["SM"], progress=False)
    >>> len(evaluation.rows), evaluation.rows["method"].tolist(), evaluation.summary.images
    (2, ['SM', 'SM'], 2)
    """
    settings = Settings(tuple(methods), search, target, channels, rho, seed)
    return evaluate_with(settings, model, data, batch_size, device, progress, scores=scores, points=points, to=to)


def evaluate_with(
    settings: Settings,
    model: nn.Module,
    data: ImageDataset,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Progress = True,
    name: str | None = None,
    scores: Sequence[str] = (),
    points: Points = 20,
    to: int | None = None,
) -> Evaluation:
    """`evaluate` with settings that are checked already; `name` is that of the result, the model's own by default."""
    check_scores(scores)
    if not data.has_regions:
        raise ArgumentError(
            "data",
            "images with boxes, which locality is measured against",
            data.name,
            "without boxes, `locality robust`, `certify`, `curvature`, `explain` and suites with similarity or robust work",
        )
    quadrature("trapezoid", points)
    more_scores = [score for score in dict.fromkeys(scores) if score not in SCORES]
    if batch_size is not None and batch_size < 1:
        raise ArgumentError("batch_size", "at least 1", batch_size)
    data = fitted(model, data)
    on_device = model if device is None else copy.deepcopy(model).to(device)
    own_name = name_of(model)
    rows, model_free, gaps, brackets = [], [], [], []
    hashed = set(data.fingerprint_indices())
    pixels: dict[int, Tensor] = {}
    with _reporting(progress, own_name) as report:
        done = 0
        report(done, len(data))  # the start: after the first batch, rate and time left are known
        for batch in batches(data, batch_size):
            explanations = explain(on_device, batch, settings, points=points, to=to)
            rows.append(rows_of(explanations, settings, own_name, more_scores))
            gaps.append(gaps_of(explanations))
            brackets.append(brackets_of(explanations))
            model_free.append(model_free_rows(batch, settings, more_scores))
            pixels |= {done + row: batch.images[row] for row in range(len(batch)) if done + row in hashed}
            done += len(batch)
            report(done, len(data))
    chosen = {"scores": more_scores, "points": str(points), "to": to}
    return Evaluation(
        name or own_name,
        data.name,
        pd.concat(rows, ignore_index=True),
        pd.concat(model_free, ignore_index=True),
        pd.concat(gaps, ignore_index=True),
        pd.concat(brackets, ignore_index=True),
        provenance(model, data, asdict(settings) | chosen, data.fingerprint(pixels)),
    )


def batches(data: ImageDataset, size: int | None = None) -> Iterator[Batch]:
    """The images in batches, each image decoded once.

    Without a size, as many as are worth handling together; how many pass the network at once is decided there.
    """
    first = []
    if size is None and data.spec is None:
        first = [data[0]]  # its size is not known before it is decoded
    if size is None:
        height, width = first[0].image.shape[-2:] if data.spec is None else data.spec.input_size
        size = max(1, min(MAX_BATCH_IMAGES, MAX_BATCH_PIXELS // (height * width)))
    for start in range(0, len(data), size):
        decoded = first if start == 0 else []
        rest = range(start + len(decoded), min(start + size, len(data)))
        yield stack([*decoded, *(data[index] for index in rest)])


def fitted(model: nn.Module, data: ImageDataset) -> ImageDataset:
    """The data as the model sees it; unchanged if it is fitted already or the model has no `.spec`."""
    spec = getattr(model, "spec", None)
    if not isinstance(spec, ModelSpec) or data.spec == spec:
        return data
    return ImageDataset(data.source, data.indices, spec, data.region, data.left_out, data.faults)


def name_of(model: nn.Module) -> str:
    """The name in the model's spec, else that of its class."""
    spec = getattr(model, "spec", None)
    return spec.name if isinstance(spec, ModelSpec) else type(model).__name__


@contextmanager
def _reporting(progress: bool | Progress, title: str) -> Iterator[Progress]:
    if callable(progress):
        yield progress
    elif progress:
        with progress_bar(title) as report:
            yield report
    else:
        yield no_progress
