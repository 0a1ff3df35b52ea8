"""`evaluate`: a model's locality on a data set, one row per image × method."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution.all_at_once import names_of
from locality.attribution.integrated_gradients import Points, quadrature
from locality.data.dataset import ImageDataset, stack
from locality.data.donors import unstack
from locality.errors import ArgumentError
from locality.model_calls import model_device, open_model
from locality.progress import Progress, no_progress
from locality.progress import progress as progress_bar
from locality.results.localisation import MODEL_FREE
from locality.results.region_tests import REGIONS
from locality.results.results import empty_table
from locality.runner.evaluation import Evaluation
from locality.runner.explain_batch import METHODS, Settings, brackets_of, explain, gaps_of, rows_of
from locality.runner.further_scores import FurtherScores, with_columns
from locality.runner.gallery_rows import extreme_images, gallery_rows
from locality.runner.provenance import provenance
from locality.runner.region_rows import region_rows
from locality.runner.suite_models import family_of, model_row
from locality.runner.summary import model_free_rows
from locality.scores.region_tests import RegionSettings
from locality.types import Batch, Channels, ModelSpec, Sample, TargetName
from locality.zoo.load import known_card
from locality.zoo.pixel_model import PixelModel

MAX_BATCH_IMAGES = 64
MAX_BATCH_PIXELS = 32 * 224 * 224
FIRST_BATCH_PIXELS = 4 * 224 * 224  # so that rate and time left are known soon


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
    gallery: int = 0,
    region_tests: bool = True,
) -> Evaluation:
    """Measure how much of each map lies in the box, against chance, and how far the decision boundary is.

    Images are fitted to `model.spec` where needed. Each is decoded once, and the model is opened once per batch. (For region
    tests, those of other batches that lend their background are read again.) `scores`
    are further names in `locality.scores.SCORES`, `MODEL_SCORES` or `POOLED_SCORES`. `points` are those on the
    paths of IG and BIG; "auto" takes as many as completeness needs. `to` is the class that boundary points must
    have: images that have it are at distance 0, and their BIG is zero. `gallery` is the number of images whose maps are
    kept: those with the highest and the lowest lift. `region_tests` also measures decisions on images whose region or rest
    is greyed, blurred, swapped or noisy: 19 forward passes per image, no attribution.

    >>> from locality.data.dataset import load_dataset
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 10))
    >>> evaluation = evaluate(model, load_dataset("shapes", limit=2, count=10), methods=["SM"], progress=False)
    >>> len(evaluation.rows), evaluation.rows["method"].tolist(), evaluation.summary.images
    (2, ['SM', 'SM'], 2)
    """
    settings = Settings(tuple(names_of(methods)), search, target, channels, rho, seed)
    return evaluate_with(
        settings,
        model,
        data,
        batch_size,
        device,
        progress,
        scores=scores,
        points=points,
        to=to,
        gallery=gallery,
        region_tests=region_tests,
    )


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
    gallery: int = 0,
    region_tests: bool = True,
) -> Evaluation:
    """`evaluate` with settings that are checked already; `name` is that of the result, the model's own by default."""
    further = FurtherScores.named(scores)
    if not data.has_regions:
        instead = (
            "without boxes, `locality robust`, `certify`, `curvature`, `explain` and suites with similarity or robust work"
        )
        if data.source.has_cue:
            instead = 'measure against the planted cue with --region cue (`region="cue"`)'
        raise ArgumentError(
            "data",
            "images with boxes, which locality is measured against",
            data.name,
            instead,
        )
    quadrature("trapezoid", points)
    if batch_size is not None and batch_size < 1:
        raise ArgumentError("batch_size", "at least 1", batch_size)
    if gallery < 0:
        raise ArgumentError("gallery", "a number of images", gallery)
    data = fitted(model, data)
    on_device = model if device is None else copy.deepcopy(model).to(device)
    own_name = name_of(model)
    changes = RegionSettings() if region_tests else None
    rows, model_free, gaps, brackets, localisation, regions = [], [], [], [], [], [empty_table(REGIONS)]
    hashed = set(data.fingerprint_indices())
    pixels: dict[int, Tensor] = {}
    with reporting(progress, own_name) as report:
        done = 0
        report(done, len(data))  # the start: after the first batch, rate and time left are known
        for batch in batches(data, batch_size):
            with open_model(on_device, batch.images.to(model_device(on_device) or "cpu")) as calls:
                explanations = explain(on_device, batch, settings, calls, points=points, to=to)
                if changes is not None:
                    possible = explanations.batch  # without labels that the model cannot have
                    read = dict(enumerate(unstack(batch), start=done))
                    regions.append(region_rows(on_device, possible, data, own_name, changes, settings.seed, read, calls))
                against, pooled = further.of_batch(explanations, on_device, calls, settings.search, settings.seed, own_name)
            rows.append(with_columns(rows_of(explanations, settings, own_name, further.of_maps), against))
            localisation.append(pooled)
            gaps.append(gaps_of(explanations))
            brackets.append(brackets_of(explanations))
            free = model_free_rows(batch, settings, own_name, further.of_maps)
            model_free.append(with_columns(free, against, MODEL_FREE))
            pixels |= {done + row: batch.images[row] for row in range(len(batch)) if done + row in hashed}
            done += len(batch)
            report(done, len(data))
    scored = pd.concat(rows, ignore_index=True)
    chosen = {"scores": further.names, "points": str(points), "to": to, "region_tests": changes and asdict(changes)}
    about = provenance(model, data, asdict(settings) | chosen, data.fingerprint(pixels))
    evaluation = Evaluation(
        name or own_name,
        data.name,
        scored,
        pd.concat(model_free, ignore_index=True),
        pd.concat(gaps, ignore_index=True),
        pd.concat(brackets, ignore_index=True),
        about,
        _described(model, name or own_name, data.name, about["weights_sha256"]),
        regions=pd.concat(regions[1:] or regions, ignore_index=True),
        localisation=pd.concat([one for one in localisation if len(one)] or localisation[:1], ignore_index=True),
        pooled=further.pooled,
    )
    extreme = extreme_images(scored, gallery)
    if not extreme:
        return evaluation
    # Maps do not depend on the batch, so those of a few images are computed again instead of keeping all.
    explanations = explain(on_device, data.batch(extreme), settings, points=points, to=to)
    return replace(evaluation, gallery=gallery_rows(explanations, data, own_name, settings.methods))


def _described(model: nn.Module, name: str, data: str, weights_sha256: str) -> pd.DataFrame:
    """The row of the table `models`: the model's card says how it was trained, if `load_model` knows one."""
    own_name = name_of(model)
    card = known_card(name) if isinstance(model, PixelModel) else None
    family = own_name if card is None else family_of(own_name)
    return pd.DataFrame([model_row(own_name, card, family, data, weights_sha256)])


def batches(data: ImageDataset, size: int | None = None) -> Iterator[Batch]:
    """The images in batches, each image decoded once.

    Without a size, as many as are worth handling together, and few at first; how many pass the network at once is decided
    there.
    """
    decoded: list[Sample] = []
    if size is None:
        decoded = [data[0]] if data.spec is None else []  # its size is not known before it is decoded
        height, width = data.spec.input_size if data.spec is not None else decoded[0].image.shape[-2:]
        first, most = (
            max(1, min(MAX_BATCH_IMAGES, pixels // (height * width))) for pixels in (FIRST_BATCH_PIXELS, MAX_BATCH_PIXELS)
        )
    else:
        first = most = size
    start, end = 0, min(first, len(data))
    while start < len(data):
        yield stack([*decoded, *(data[index] for index in range(start + len(decoded), end))])
        decoded, start, end = [], end, min(end + most, len(data))


def fitted(model: nn.Module, data: ImageDataset) -> ImageDataset:
    """The data as the model sees it; unchanged if it is fitted already or the model has no `.spec`."""
    spec = getattr(model, "spec", None)
    if not isinstance(spec, ModelSpec) or data.spec == spec:
        return data
    return data.for_model(spec)


def name_of(model: nn.Module) -> str:
    """The name in the model's spec, else that of its class."""
    spec = getattr(model, "spec", None)
    return spec.name if isinstance(spec, ModelSpec) else type(model).__name__


@contextmanager
def reporting(progress: bool | Progress, title: str, unit: str = "images") -> Iterator[Progress]:
    """What the caller gave to report progress with, or a bar with this title, or nothing."""
    if callable(progress):
        yield progress
    elif progress:
        with progress_bar(title, unit) as report:
            yield report
    else:
        yield no_progress
