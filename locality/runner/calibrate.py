"""`calibrate`: can the verdict be trusted on these images and this architecture? They get an answer that is known.

Stickers are planted on the images and two twins of the model made (`runner.twins`): one uses the stickers and nothing
else, the other does not. Both are measured on other images with stickers, by attribution methods and by region tests.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from locality.attribution.integrated_gradients import Points, quadrature
from locality.data.cues import SIZE as CUE_SIZE
from locality.data.cues import Sticker
from locality.data.dataset import ImageDataset, stack
from locality.errors import ArgumentError
from locality.model_calls import model_device
from locality.model_calls.decisions import correct, decisions
from locality.progress import Progress
from locality.results.calibration import CHANCE, CUE, EDITIONS, PREDICTIONS, REGION_TESTS, RELIANCE, STICKER
from locality.results.region_tests import reliance
from locality.results.schema import SCORES
from locality.runner.calibration import Calibration
from locality.runner.evaluate import batches, name_of, reporting
from locality.runner.explain_batch import METHODS, Explanations, Settings, explain, rows_of, rows_of_batch, scored
from locality.runner.provenance import provenance
from locality.runner.region_rows import region_rows
from locality.runner.twin_training import Training
from locality.runner.twins import Twin, check_folder, checked_train, halves, make_twins
from locality.scores import check_scores
from locality.scores.model_free_maps import random_maps
from locality.scores.region_tests import RegionSettings
from locality.types import ABSTAINED, Batch, ModelSpec, Region
from locality.zoo.state_dict import weights_hash

IMAGES_AT_ONCE = 8  # few, so that progress is seen
MORE_SCORES = ("pointing_game", "relevance_rank_accuracy", "roc_auc")


def calibrate(
    model: nn.Module,
    data: ImageDataset,
    train: ImageDataset | None = None,
    methods: Sequence[str] = METHODS,
    scores: Sequence[str] = MORE_SCORES,
    search: str | None = "fast",
    epochs: int = 3,
    batch_size: int = 16,
    learning_rate: float = 5e-4,
    cue_size: float = CUE_SIZE,
    points: Points = 20,
    seed: int = 0,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: bool | Progress = True,
) -> Calibration:
    """Which methods and scores show what a network uses, on `data` and with the architecture of `model`.

    Two twins of the model are trained on `train`, or on one half of `data`, and measured on `data`, or on the other half,
    with stickers (`cue_size`: their side as a share of the image's). `data.region` is the region of the object: "box" or
    "object". Data without boxes are measured against the sticker only. `scores` are names in `locality.scores.SCORES`
    besides precision, recall, F1 and lift. With a `folder`, the twins are stored there, so that the same call trains them
    only once. Twins that learn too little in `epochs` at `learning_rate`, as small networks do, have up to five more
    rounds.

    Model and data stay as they are. The catch: the twins are of this architecture, but they are not this model, and a
    sticker is an easier cue than most; what misses it is not to be trusted, what finds it has passed one test.
    """
    settings = Settings(tuple(methods), search, seed=seed)
    check_scores(scores)
    quadrature("trapezoid", points)
    sticker = Sticker(size=cue_size, seed=seed)
    if data.source.has_cue or data.region == CUE:
        raise ArgumentError("data", "images without a cue, which is planted here", data.name, "shapes:none has none")
    place = None if folder is None else Path(folder)
    if place is not None:
        check_folder(place, data, *(() if train is None else (train,)))
    measured, trained_on = (data, checked_train(data, train)) if train is not None else halves(data, seed)
    if train is None:
        checked_train(measured, trained_on)

    check_methods(model, measured, settings, points)

    def open_progress(title: str, unit: str) -> AbstractContextManager[Progress]:
        return reporting(progress, title, unit)

    training = Training(epochs, batch_size, learning_rate, seed)
    twins = make_twins(model, measured, trained_on, sticker, training, device, place, open_progress)
    more = tuple(score for score in dict.fromkeys(scores) if score not in SCORES)
    predictions, rows = [], []
    for twin in twins:
        on_device = twin.model if device is None else copy.deepcopy(twin.model).to(device)
        with open_progress(f"measuring the {twin.name} twin", "images") as report:
            report(0, len(measured))
            predictions.append(_predictions(on_device, twin))
            rows += _rows(on_device, twin, settings, more, points, report)
    about = provenance(
        model, measured, asdict(settings) | {"scores": list(more), "points": str(points)}, measured.fingerprint()
    )
    about["calibration"] = {
        "sticker": asdict(sticker),
        "training": asdict(training) | {"images": len(trained_on), "data_sha256": trained_on.fingerprint()},
        "twins": {twin.name: weights_hash(twin.model) for twin in twins},
    }
    return Calibration(
        name_of(model),
        data.name,
        pd.concat(rows, ignore_index=True),
        pd.concat(predictions, ignore_index=True)[list(PREDICTIONS)],
        about,
        {twin.name: twin.model for twin in twins},
        tuple(twin.name for twin in twins if twin.trained),
        ("lift", *(score for score in dict.fromkeys(("f1", *scores)) if score != "lift")),
    )


def check_methods(model: nn.Module, data: ImageDataset, settings: Settings, points: Points) -> None:
    """Raise what a method raises that cannot explain the model, on one image and before the twins are trained."""
    spec = getattr(model, "spec", None)
    if isinstance(spec, ModelSpec) and len(data):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again with the twins
            explain(model, stack([data.for_model(spec)[0]]), settings, points=points)


@torch.no_grad()
def _predictions(model: nn.Module, twin: Twin) -> pd.DataFrame:
    """What the twin names on every edition of the images."""
    table: dict[str, list[object]] = {"twin": [], "image_id": [], "label": []}
    for kind in EDITIONS:
        table |= {kind: [], f"right_{kind}": []}
        for batch in batches(twin.images[kind]):
            predicted = decisions(model, model.eval()(batch.images.to(model_device(model) or "cpu")))
            right = correct(predicted, batch.accepted).float()
            right[torch.tensor([not several for several in batch.accepted])] = torch.nan
            table[kind] += predicted.tolist()
            table[f"right_{kind}"] += right.tolist()
            if kind == STICKER:
                table["twin"] += [twin.name] * len(batch)
                table["image_id"] += batch.ids
                table["label"] += batch.labels.tolist()
    return pd.DataFrame(table)


def _rows(
    model: nn.Module, twin: Twin, settings: Settings, more: Sequence[str], points: Points, report: Progress
) -> list[pd.DataFrame]:
    """Scores of one twin's maps on the images with stickers, against either region, with those of random maps and of
    region tests."""
    data = twin.images[STICKER]
    regions: tuple[Region, ...] = (CUE, data.region) if data.source.has_regions else (CUE,)
    tests = RegionSettings(draws=1)
    rows, done = [], 0
    for start in range(0, len(data), IMAGES_AT_ONCE):
        samples = [data[index] for index in range(start, min(start + IMAGES_AT_ONCE, len(data)))]
        batch = stack(samples)
        masks = {data.region: batch.masks, CUE: torch.stack([one.cue for one in samples if one.cue is not None])}
        explanations = explain(model, batch, settings, points=points)
        for region in regions:
            seen = _against(explanations, masks[region])
            attributed = rows_of(seen, settings, twin.name, more)
            by_chance = scored(random_maps(batch.images, settings.seed), masks[region], settings, more)
            chance = pd.DataFrame(
                {"image_id": batch.ids, "method": CHANCE} | {name: values.tolist() for name, values in by_chance.items()}
            )
            tested = region_rows(model, seen.batch, data.on(data.source, region), twin.name, tests, settings.seed)
            without_maps = reliance(tested).rename_axis("image_id").reset_index().assign(method=REGION_TESTS)
            table = pd.concat([attributed, chance, without_maps.rename(columns={"reliance": RELIANCE})], ignore_index=True)
            rows.append(table.assign(twin=twin.name, region=region))
        done += len(batch)
        report(done, len(data))
    return rows


def _against(explanations: Explanations, masks: Tensor) -> Explanations:
    """The same explanations against other masks."""
    batch = replace(explanations.batch, masks=masks)
    decided = explanations.predictions != ABSTAINED
    attributed: Batch = batch if bool(decided.all()) else rows_of_batch(batch, decided.cpu())
    return replace(explanations, batch=batch, attributed=attributed)
