"""Pixels, boxes and maps of a few images, stored for heat maps and for the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from locality.errors import Problem
from locality.imagenet_classes import class_word
from locality.results.gallery import GALLERY as TABLE
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work
from locality.types import ABSTAINED


@dataclass(frozen=True)
class GallerySettings:
    """The number of images. `gallery = 12` is short for `gallery = { limit = 12 }`."""

    limit: int = 12


def parts(suite: Suite) -> Iterator[Part]:
    """One part."""
    for settings in suite.requested("gallery"):
        numbers = map_numbers(suite, suite.methods)
        yield Part("gallery", "gallery", settings, numbers, settings.limit, suite.block, methods=suite.methods)


def rows(block: Block) -> Tables:
    """One row per image × method. The map of an abstention is `nan`, and its prediction missing."""
    explanations = block.explanations()
    manifest = block.data.manifest.images
    wnids = dict(zip(manifest["id"], manifest["wnid"], strict=True))
    pixels = (block.batch.images * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    map_row = {image_id: row for row, image_id in enumerate(explanations.attributed.ids)}
    table = []
    for row, image_id in enumerate(block.batch.ids):
        boxes = json.dumps([(box.x0, box.y0, box.x1, box.y1) for box in block.batch.boxes[row]])
        predicted = _class_name(int(explanations.predictions[row]), block.data.classes)
        about = (block.name, image_id, class_word(wnids[image_id].split()[0]), predicted)
        picture = (*pixels[row].shape[:2], pixels[row].tobytes(), boxes)
        for name in block.part.methods:
            if image_id in map_row:
                plane = explanations.maps[name][map_row[image_id]].sum(0)
            else:
                plane = torch.full(pixels[row].shape[:2], torch.nan)
            table.append((*about, *picture, name, _stored(plane)))
    return {"gallery": pd.DataFrame(table, columns=list(TABLE))}


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


def problems(suite: Suite) -> list[Problem]:
    """It can be requested once."""
    return given_once(suite, "gallery")


def work(suite: Suite, part: Part) -> Work:
    """Of the search and the maps."""
    return maps_work(suite.search, part.methods)


GALLERY = Measurement("gallery", GallerySettings, {"gallery": TABLE}, parts, rows, problems, work)
