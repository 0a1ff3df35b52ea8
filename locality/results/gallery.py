"""The gallery: images with their boxes and maps, kept so that figures can be drawn without the models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.results.schema import Schema

# One row per model × image × method. Pixels and maps are bytes in row-major order; `boxes` is JSON.
GALLERY: Schema = {
    "model": str,
    "image_id": str,
    "label": str,
    "prediction": str | None,  # missing for an abstention
    "height": int,
    "width": int,
    "image": bytes,
    "boxes": str,
    "method": str,
    "map": bytes,
}


@dataclass(frozen=True, eq=False)
class GalleryImage:
    """One image of the gallery: its pixels, its boxes, and the maps of each model and method."""

    image_id: str
    image: NDArray[np.uint8]  # H×W×3, as the first model sees it
    boxes: tuple[tuple[float, float, float, float], ...]
    label: str  # the class's name
    maps: dict[tuple[str, str], NDArray[np.float16]]  # (model, method) ↦ H×W, summed over channels, scaled to a maximum of 1
    predictions: dict[str, str]  # model ↦ the predicted class's name; not there for an abstention


def gallery_images(table: pd.DataFrame) -> tuple[GalleryImage, ...]:
    """One entry per image, as the first model sees it; maps of models with another input size are resized to it."""
    entries: dict[str, GalleryImage] = {}
    for row in table.to_dict("records"):
        shape = row["height"], row["width"]
        if row["image_id"] not in entries:
            pixels = np.frombuffer(row["image"], dtype=np.uint8).reshape(*shape, 3)
            boxes = tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in json.loads(row["boxes"]))
            entries[row["image_id"]] = GalleryImage(row["image_id"], pixels, boxes, row["label"], {}, {})
        entry = entries[row["image_id"]]
        heat = np.frombuffer(row["map"], dtype=np.float16).reshape(shape)
        entry.maps[row["model"], row["method"]] = resized(heat, entry.image.shape[:2])
        if row["prediction"] is not None:
            entry.predictions[row["model"]] = row["prediction"]
    return tuple(entries.values())


def gallery_table(images: Iterable[GalleryImage]) -> pd.DataFrame:
    """The rows that `gallery_images` reads."""
    rows: list[dict[str, Any]] = [
        {
            "model": model,
            "image_id": image.image_id,
            "label": image.label,
            "prediction": image.predictions.get(model),
            "height": heat.shape[0],
            "width": heat.shape[1],
            "image": image.image.tobytes(),
            "boxes": json.dumps(image.boxes),
            "method": method,
            "map": heat.astype(np.float16).tobytes(),
        }
        for image in images
        for (model, method), heat in image.maps.items()
    ]
    return pd.DataFrame(rows, columns=list(GALLERY))


def resized(heat: NDArray[np.float16], shape: tuple[int, ...]) -> NDArray[np.float16]:
    """The map at another size, by bilinear interpolation between pixel centres.

    >>> resized(np.array([[0, 1]], dtype=np.float16), (1, 4)).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    if heat.shape == shape:
        return heat
    values = heat.astype(np.float32)
    for axis, size in enumerate(shape):
        low, high, share = _neighbours(values.shape[axis], size)
        weight = share if axis else share[:, None]
        values = values.take(low, axis) * (1 - weight) + values.take(high, axis) * weight
    return values.astype(np.float16)


def _neighbours(before: int, after: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """For each new pixel along an axis, the old pixels on either side and how near it is to the second."""
    centre = np.maximum((np.arange(after) + 0.5) * before / after - 0.5, 0.0)
    low = np.floor(centre).astype(np.intp)
    return low, np.minimum(low + 1, before - 1), (centre - low).astype(np.float32)
