"""Rows of the gallery: pixels, boxes and maps of images, for heat maps and for the report."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from locality.data.dataset import ImageDataset
from locality.imagenet_classes import class_word
from locality.results.gallery import GALLERY
from locality.runner.explain_batch import Explanations
from locality.types import ABSTAINED


def gallery_rows(explanations: Explanations, data: ImageDataset, model_name: str, methods: Sequence[str]) -> pd.DataFrame:
    """One row per image × method. The map of an abstention is `nan`, and its prediction missing."""
    batch = explanations.batch
    manifest = data.manifest.images
    wnids = dict(zip(manifest["id"], manifest["wnid"], strict=True))
    pixels = (batch.images * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    map_row = {image_id: row for row, image_id in enumerate(explanations.attributed.ids)}
    table = []
    for row, image_id in enumerate(batch.ids):
        boxes = json.dumps([(box.x0, box.y0, box.x1, box.y1) for box in batch.boxes[row]])
        label, prediction = class_word(wnids[image_id].split()[0]), int(explanations.predictions[row])
        # The model may write the name of a class in another way than the data.
        predicted = label if prediction in batch.accepted[row] else _class_name(prediction, data.classes)
        about = (model_name, image_id, label, predicted)
        picture = (*pixels[row].shape[:2], pixels[row].tobytes(), boxes)
        for name in methods:
            if image_id in map_row:
                plane = explanations.maps[name][map_row[image_id]].sum(0)
            else:
                plane = torch.full(pixels[row].shape[:2], torch.nan)
            table.append((*about, *picture, name, _stored(plane)))
    return pd.DataFrame(table, columns=list(GALLERY))


def extreme_images(rows: pd.DataFrame, count: int) -> list[int]:
    """The places, in the order of the rows, of the `count` images whose lift, the mean over methods, is highest and lowest.

    Half of them are of either kind; images without a lift are left out.

    >>> rows = pd.DataFrame({"image_id": list("aabbccdd"), "lift": [0.1, 0.1, 0.9, 0.7, -0.2, 0.0, 0.3, float("nan")]})
    >>> extreme_images(rows, 2), extreme_images(rows, 3)  # b is the best, c the worst, d the second best
    ([1, 2], [1, 2, 3])
    """
    lifts = rows.groupby("image_id", sort=False)["lift"].mean().reset_index(drop=True).dropna()
    order = lifts.sort_values(ascending=False, kind="stable").index.tolist()
    if len(order) <= count:
        return sorted(order)
    worst = count // 2
    return sorted([*order[: count - worst], *order[len(order) - worst :]])


def _class_name(prediction: int, classes: tuple[str, ...]) -> str | None:
    if prediction == ABSTAINED:
        return None
    return class_word(classes[prediction]) if prediction < len(classes) else f"class {prediction}"


def _stored(plane: Tensor) -> bytes:
    """The map scaled to a largest absolute value of 1, in half precision."""
    values = plane.cpu().double()
    largest = float(values.abs().max())
    scaled = values / largest if largest > 0 else values  # nan where undefined
    return scaled.numpy().astype(np.float16).tobytes()
