"""The data of the report's gallery, as JSON: pictures, boxes, maps and scores of the stored images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from locality.pictures import png_address
from locality.report.aggregates import USUAL_METHODS
from locality.report.estimates import floats
from locality.report.figures.heatmaps import FAINT, NEGATIVE, POSITIVE, Map, abstained_images
from locality.report.models import Model, models_of, pairs_of
from locality.results.gallery import GalleryImage
from locality.results.results import Results

MOST_BYTES = 30_000_000  # of maps in one page: browsers still open it without delay


def gallery_data(results: Results) -> dict[str, Any] | None:
    """The gallery for JSON, or None where no maps were stored; only the first images if not all fit."""
    shown = {name for image in results.gallery for name, _ in image.maps}
    models = [model for model in models_of(results) if model.name in shown]
    methods = list(dict.fromkeys(method for image in results.gallery for _, method in image.maps))
    if not models or not methods:
        return None
    scores, abstained = _scores(results), abstained_images(results)
    images: list[dict[str, Any]] = []
    size = 0
    for image in results.gallery:
        entry = _entry(image, models, methods, scores)
        entry["abstained"] = [(model.name, image.image_id) in abstained for model in models]
        size += sum(len(address) for row in entry["maps"] for address in row if address is not None)
        if images and size > MOST_BYTES:
            break
        images.append(entry)
    return {
        "images": images,
        "omitted": len(results.gallery) - len(images),
        "models": [{"name": model.name, "training": model.training_text, "kind": model.kind} for model in models],
        "methods": methods,
        "start": {"models": _first_models(models), "methods": _first_methods(methods)},
        "positive": list(POSITIVE),
        "negative": list(NEGATIVE),
        "faint": FAINT,
    }


def map_picture(values: Map) -> str:
    """A map from −1 to 1 as a grey PNG with levels 128 + 127·sign(v)·√|v|, so that small values keep their detail."""
    sizes = np.clip(np.nan_to_num(values.astype(np.float64)), -1, 1)
    levels = np.rint(128 + 127 * np.sign(sizes) * np.sqrt(np.abs(sizes))).astype(np.uint8)
    return _png(levels)


def _entry(
    image: GalleryImage, models: list[Model], methods: list[str], scores: dict[tuple[str, str, str], tuple[float, float]]
) -> dict[str, Any]:
    height, width = image.image.shape[:2]
    maps: list[list[str | None]] = []
    numbers: list[list[list[float | None] | None]] = []
    for model in models:
        own = [image.maps.get((model.name, method)) for method in methods]
        maps.append([None if one is None or np.isnan(one.astype(np.float32)).all() else map_picture(one) for one in own])
        pairs = [scores.get((model.name, image.image_id, method)) for method in methods]
        numbers.append([None if pair is None else [_number(value) for value in pair] for pair in pairs])
    return {
        "id": image.image_id,
        "label": image.label,
        "width": width,
        "height": height,
        "boxes": [list(map(float, box)) for box in image.boxes],
        "picture": _png(image.image),
        "maps": maps,
        "scores": numbers,
        "predictions": [image.predictions.get(model.name) for model in models],
    }


def _scores(results: Results) -> dict[tuple[str, str, str], tuple[float, float]]:
    """F1 and lift of the gallery's images by (model, image, method)."""
    shown = results.rows[results.rows["image_id"].isin([image.image_id for image in results.gallery])]
    keys = zip(shown["model"], shown["image_id"], shown["method"], strict=True)
    pairs = zip(floats(shown["f1"]).tolist(), floats(shown["lift"]).tolist(), strict=True)
    return dict(zip(keys, pairs, strict=True))


def _first_models(models: list[Model]) -> list[int]:
    """The models shown at first: a pair if there is one, else the first two."""
    for pair in pairs_of(models):
        return [models.index(model) for model in pair]
    return list(range(min(2, len(models))))


def _first_methods(methods: list[str]) -> list[int]:
    usual = [index for index, method in enumerate(methods) if method in USUAL_METHODS]
    return usual or list(range(min(3, len(methods))))


def _png(pixels: NDArray[np.uint8]) -> str:
    return png_address(Image.fromarray(np.ascontiguousarray(pixels)))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
