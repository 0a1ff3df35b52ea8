"""A measurement of a user's own: the brightness of each image. Other processes import it by name."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from locality.errors import Problem
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json
from locality.runner.suite import Suite
from locality.runner.work import Work

TABLE = {"model": str, "image_id": str, "half": str, "brightness": float, "bright": bool}


@dataclass(frozen=True)
class BrightnessSettings:
    threshold: float = 0.5
    limit: int | None = None


def parts(suite: Suite) -> Iterator[Part]:
    for settings in suite.requested("brightness"):
        yield Part("brightness", "brightness", settings, as_json({"threshold": settings.threshold}), settings.limit)


def rows(block: Block) -> Tables:
    means = block.batch.images.mean((1, 2, 3)).tolist()
    table = [
        (block.name, image_id, half, mean, mean > block.settings.threshold)
        for image_id, mean in zip(block.batch.ids, means, strict=True)
        for half in ("left", "right")
    ]
    return {"brightness": pd.DataFrame(table, columns=list(TABLE))}


def problems(suite: Suite) -> list[Problem]:
    return [
        Problem(f"{where}.threshold", f"must lie in [0, 1], got {settings.threshold}")
        for where, settings in suite.located("brightness")
        if not 0 <= settings.threshold <= 1
    ]


def work(suite: Suite, part: Part) -> Work:
    return Work()


BRIGHTNESS = Measurement("brightness", BrightnessSettings, {"brightness": TABLE}, parts, rows, problems, work)
