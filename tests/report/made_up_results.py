"""Invented results for tests of tables, figures and pages: plausible numbers with known properties.

Robust models score higher than their standard counterparts with every method, the random model scores lowest, and the maps
of the gallery lie on the object for robust models and are noise for the others.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality import load_dataset
from locality.results import folder as results_folder
from locality.results.gallery import GalleryImage, gallery_table
from locality.results.results import Results
from locality.results.schema import CORE, Schema
from locality.runner.measurements import MEASUREMENTS
from locality.scores.region_tests import TESTS
from locality.zoo.trainings import kind_of

SCHEMAS: dict[str, Schema] = {name: table for one in MEASUREMENTS.values() for name, table in one.tables.items()}
TABLES: dict[str, Schema] = {**CORE, **SCHEMAS}
METHODS = ("SM", "IG", "BIG")
STEPS = (0, 5, 10, 15, 20, 24)
Pixel = TypeVar("Pixel", bound=np.generic)


@dataclass(frozen=True)
class MadeUp:
    """What a model's numbers are drawn around."""

    name: str
    family: str
    training: str
    norm: str | None
    epsilon: float | None
    counterpart: str | None
    accuracy: float
    robust: float
    f1: tuple[float, float, float]  # SM, IG, BIG
    distance: float

    @property
    def kind(self) -> str:
        return kind_of(self.training)


MODELS = (
    MadeUp("tiny_squeeze", "SqueezeNet", "standard", None, None, None, 0.62, 0.0, (0.43, 0.42, 0.46), 0.11),
    MadeUp("tiny_vgg", "VGG", "standard", None, None, None, 0.83, 0.005, (0.44, 0.43, 0.50), 0.14),
    MadeUp("tiny_resnet", "ResNet", "standard", None, None, None, 0.86, 0.0, (0.43, 0.44, 0.49), 0.12),
    MadeUp("tiny_vit", "ViT", "standard", None, None, None, 0.78, 0.01, (0.42, 0.43, 0.44), 0.20),
    MadeUp("tiny_vgg_robust", "VGG", "at", "linf", 4 / 255, "tiny_vgg", 0.74, 0.47, (0.47, 0.55, 0.56), 0.85),
    MadeUp("tiny_resnet_robust", "ResNet", "at", "linf", 4 / 255, "tiny_resnet", 0.76, 0.50, (0.48, 0.56, 0.58), 0.90),
    MadeUp("tiny_resnet_robust8", "ResNet", "at", "linf", 8 / 255, "tiny_resnet", 0.66, 0.52, (0.50, 0.59, 0.61), 1.3),
    MadeUp("tiny_resnet_trades", "ResNet", "trades", "linf", 4 / 255, "tiny_resnet", 0.73, 0.51, (0.48, 0.57, 0.59), 1.0),
    MadeUp("tiny_resnet_l2", "ResNet", "at", "l2", 0.5, "tiny_resnet", 0.78, 0.41, (0.46, 0.52, 0.54), 0.95),
    MadeUp("tiny_vit_robust", "ViT", "fast_at", "linf", 4 / 255, "tiny_vit", 0.63, 0.42, (0.46, 0.53, 0.55), 0.8),
    MadeUp("tiny_resnet_random", "ResNet", "random", None, None, None, 0.1, 0.0, (0.42, 0.42, 0.43), 0.02),
)

# Beside MODELS, so that results have all kinds.
CERTIFIED = (
    MadeUp("tiny_vgg_certified", "VGG", "certified", "l2", 0.5, "tiny_vgg", 0.60, 0.38, (0.49, 0.53, 0.60), 1.1),
    MadeUp("tiny_vit_certified", "ViT", "certified", "l2", 0.5, "tiny_vit", 0.55, 0.33, (0.48, 0.51, 0.57), 1.2),
)


def made_up_results(
    images: int = 60, gallery: int = 3, models: tuple[MadeUp, ...] = MODELS, name: str = "made up", size: int = 64
) -> Results:
    """All tables of a suite, drawn with a fixed seed."""
    random = np.random.default_rng(0)
    rows, robust, similarity, faithfulness, randomised, searches = [], [], [], [], [], []
    curvature = Curvature()
    tested: list[tuple[object, ...]] = []
    kept = np.random.default_rng(3)
    certified: list[tuple[object, ...]] = []
    margins = np.random.default_rng(2)  # its own, so that other tables are as they were
    ids = [f"image-{index}" for index in range(images)]
    shares = random.uniform(0.1, 0.7, images)
    for model in models:
        correct = random.random(images) < model.accuracy
        distance = model.distance * random.lognormal(0, 0.5, images)
        found = random.random(images) > 0.02
        for number, (method, level) in enumerate(zip(METHODS, model.f1, strict=True)):
            f1 = np.clip(level + 0.03 * np.log(distance / model.distance) + random.normal(0, 0.1, images), 0.01, 0.99)
            f1[~found] = math.nan if method == "BIG" else f1[~found]
            for index in range(images):
                score = float(f1[index])
                values = (score + 0.03, score - 0.02, score, (score - 0.42) / 0.58)
                edge = (float(distance[index]), True, 1) if found[index] else (math.inf, False, -1)
                right = bool(correct[index])
                rows.append((model.name, ids[index], index % 10, 0, 0, right, False, method, *values, shares[index], *edge))
            for step, layers in enumerate(STEPS):
                for index in range(min(16, images)):
                    spearman = math.exp(-0.5 * step * (1 + 0.2 * number)) + (step > 0) * random.normal(0, 0.05)
                    randomised.append((model.name, ids[index], method, step, layers, f"layer{layers}", spearman, spearman))
            for index in range(min(32, images)):
                raw = float(random.lognormal(0, 1))
                faithfulness.append((model.name, ids[index], method, "gauss 0.1", raw, 0.3 * raw, 0.1, 0.01, 0.02))
        for index in range(images):
            share = 0.4 if model.kind == "certified" else 1e-5  # of the distance
            radius = float(distance[index] * share * margins.uniform(0.5, 1.0))
            stated = (0, False, bool(correct[index]), radius, "l2", 0.0, 1 / share, "36/255 72/255")
            certified.append((model.name, ids[index], "lipschitz", "{}", *stated))
            held = correct[index] and random.random() < model.robust / max(model.accuracy, 1e-9)
            robust.append((model.name, ids[index], "autoattack", "linf", 4 / 255, bool(correct[index]), bool(held)))
            for pair, scale in (("SM-BSM", 8.0), ("IG-BIG", 12.0), ("IG-BIG integral", 9.0)):
                far = float(scale * random.lognormal(0, 0.3) * (0.1 if model.epsilon else 1))
                similarity.append((model.name, ids[index], pair, far, 0.7 if model.epsilon else 0.2, 0.9))
        for search, factor, gradients, seconds in (("fast", 1.0, 19, 0.02), ("paper", 1.07, 1001, 1.1)):
            for index in range(min(64, images)):
                there = bool(found[index]) and (search == "fast" or index % 8 > 0)
                far = float(distance[index] * factor) if there else math.inf
                searches.append((model.name, ids[index], search, far, there, gradients, gradients // 2, seconds))
    for model in models:
        curvature.add(model, images)
        tested += _region_rows(model, ids, shares.tolist(), kept)
    free = [
        (model.name, image, name, share, 1.0, 2 * share / (1 + share), lift)
        for model in models
        for image, share in zip(ids, shares.tolist(), strict=True)
        for name, lift in (("uniform", 0.0), ("centred Gaussian", 0.15 + 0.1 * (share - 0.4)))
    ]
    described = [
        (one.name, one.family, one.training, one.kind, one.norm, one.epsilon, one.counterpart, "tiny-imagenet", "0" * 64)
        for one in models
    ]
    several = {
        "rows": rows,
        "models": described,
        "model_free": free,
        "faults": [(models[0].name, "block 3", "image-7", "out of memory")],
        "robust": robust,
        "regions": tested,
        "certified": certified,
        "similarity": similarity,
        "faithfulness": faithfulness,
        "layer_randomisation": randomised,
        "searches": searches,
        "curvature": curvature.layers,
        "curvature_models": curvature.models,
        "curvature_images": curvature.images,
    }
    several |= _removal_scores(models, ids[: min(16, images)])
    tables = {name: pd.DataFrame(values, columns=list(TABLES[name])) for name, values in several.items()}
    tables["rows"] = tables["rows"].astype({"correct": "boolean"})
    pictures = [_gallery_image(ids[index], index, models, random, size) for index in range(min(gallery, images))]
    tables["gallery"] = gallery_table(pictures)
    return Results(name, tables, {"suite": name, "seed": 0, "versions": {"locality": "0.1.0"}})


def _region_rows(
    model: MadeUp, ids: list[str], shares: list[float], random: np.random.Generator
) -> list[tuple[object, ...]]:
    """Decisions are kept without the background and lost without the object, the more often the higher the F1 of BIG."""
    rows: list[tuple[object, ...]] = []
    for index, image in enumerate(ids):
        right = bool(random.random() < model.accuracy)
        for test in TESTS:
            needed = 2 * (model.f1[2] - 0.42) if model.training != "random" else 0.0
            chance = 0.5 + (0.5 if test.startswith("outside") else -0.5) * needed
            here, there = float(random.random() < chance), float(random.random() < 0.5)
            donor = ("image-0", 3) if test == "outside_swapped" else (None, -1)
            numbers = (right * here, here, here - 1, int(random.integers(10)), right * there, there, there - 1, 0)
            rows.append((model.name, image, "box", shares[index], 0.2, test, right, *numbers, *donor))
    return rows


def _removal_scores(models: tuple[MadeUp, ...], ids: list[str]) -> dict[str, list[tuple[object, ...]]]:
    """Removal, sensitivity and localisation; BIG is the best, the random map at chance."""
    random = np.random.default_rng(3)
    removal: list[tuple[object, ...]] = []
    sensitivity: list[tuple[object, ...]] = []
    localisation: list[tuple[object, ...]] = []
    for model in models:
        for number, method in enumerate((*METHODS, "model-free: random")):
            for index in ids:
                level = 0.2 * number * random.random()
                if method in METHODS:
                    road = (0.6 - level, 0.6 + level, 2 * level)
                    removal.append((model.name, index, method, 0.5 - level, 0.5, 0.5 + level, 0.5, *road))
                    sensitivity.append((model.name, index, method, 0.6 - level, 0.1, level, 1.0 - level, 1.4))
                overlaps = np.clip(random.normal(0.3 + 0.1 * (number % 3), 0.2, 255), 0, 1).astype(np.float32)
                inside, outside = (random.integers(0, 20, 256, dtype=np.int32) for _ in range(2))
                localisation.append((model.name, index, method, overlaps.tobytes(), inside.tobytes(), outside.tobytes()))
    return {"removal": removal, "sensitivity": sensitivity, "localisation": localisation}


class Curvature:
    """Three layers per model: flat for robust models, probed with errors for transformers; test losses are larger."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)  # its own, so that other tables are as they were
        self.layers: list[tuple[object, ...]] = []
        self.models: list[tuple[object, ...]] = []
        self.images: list[tuple[object, ...]] = []

    def add(self, model: MadeUp, images: int) -> None:
        sharp = 2.0 / (0.2 + model.distance)
        traces, norms = [sharp, 4 * sharp, 2 * sharp], [2.0, 8.0, 4.0]
        probed = model.family == "ViT"
        error = 0.1 * sharp if probed else 0.0
        for layer, (trace, norm) in enumerate(zip(traces, norms, strict=True)):
            self.layers.append((model.name, f"layer{layer}.weight", images, norm, trace, error))
        wci = sum(norm * math.sqrt(trace) for trace, norm in zip(traces, norms, strict=True))
        method = ("probed", 4) if probed else ("exact", 0)
        measured = (images, wci, 5 * error, 1.1 * wci, traces[2], 0, *method, 500, 100, "linf", 8 / 255, 10)
        self.models.append((model.name, *measured))
        for split, extra in (("train", 0.0), ("test", 0.3 + model.robust)):
            for index in range(images):
                loss = float(self.random.lognormal(0, 0.5)) + extra
                top = float(traces[2] * self.random.lognormal(0, 0.3)) if split == "train" else math.nan
                values = (0.2 * loss, loss, False, loss > 1.5, top)
                name = f"image-{index}" if split == "test" else f"{split}-{index}"
                self.images.append((model.name, split, name, *values))


def nothing_measured(name: str = "nothing") -> Results:
    """Results of a suite that measured nothing at all."""
    return Results(name)


def abstaining(results: Results, model: str, images: int) -> Results:
    """The results as if a model had abstained on the first images: not correct, nothing attributed."""
    rows = results.rows.copy()
    first = [f"image-{index}" for index in range(images)]
    there = (rows["model"] == model) & rows["image_id"].isin(first)
    rows.loc[there, "abstained"], rows.loc[there, "correct"] = True, False
    rows.loc[there, ["prediction", "target"]] = -1
    rows.loc[there, ["precision", "recall", "f1", "lift"]] = math.nan
    rows.loc[there, "distance"], rows.loc[there, "found"] = math.inf, False
    return results.with_tables(rows=rows)


def without(results: Results, table: str) -> Results:
    """The results as if one table had not been measured."""
    return replace(results, tables={name: frame for name, frame in results.items() if name != table})


@functools.cache
def small_results() -> Results:
    """Few images and few models, made once for all tests."""
    kept = ("tiny_vgg", "tiny_resnet", "tiny_vgg_robust", "tiny_resnet_robust", "tiny_resnet_robust8", "tiny_resnet_random")
    return made_up_results(24, 2, tuple(model for model in MODELS if model.name in kept))


def write_results(results: Results, folder: Path) -> Path:
    """A folder as `locality bench` leaves it: the merged tables alone."""
    return results_folder.write_results(results, folder, SCHEMAS)


def _gallery_image(
    image_id: str, index: int, models: tuple[MadeUp, ...], random: np.random.Generator, size: int
) -> GalleryImage:
    sample = load_dataset("shapes", count=10 + index)[index]
    image = (sample.image.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    assert sample.outline is not None
    outline = sample.outline[0].numpy().astype(np.float64)
    maps = {}
    for model in models:
        for method, level in zip(METHODS, model.f1, strict=True):
            strength = 0.8 if model.epsilon else 0.15 * (level > 0.45)
            noise = random.normal(0, 1, outline.shape) * random.lognormal(0, 0.6, outline.shape)
            maps[model.name, method] = _scaled(strength * outline * 3 + (1 - strength) * noise)
    if size != 64:
        image, maps = _repeated(image, size), {key: _repeated(value, size) for key, value in maps.items()}
    boxes = tuple((box.x0 * size / 64, box.y0 * size / 64, box.x1 * size / 64, box.y1 * size / 64) for box in sample.boxes)
    label = load_dataset("shapes", count=10).classes[index % 10]
    return GalleryImage(image_id, image, boxes, label, maps, {model.name: label for model in models})


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float16]:
    scaled: NDArray[np.float16] = (values / np.abs(values).max()).astype(np.float16)
    return scaled


def _repeated(values: NDArray[Pixel], size: int) -> NDArray[Pixel]:
    indices = np.arange(size) * values.shape[0] // size
    return np.asarray(values[indices][:, indices])
