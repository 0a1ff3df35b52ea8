"""Deletion and insertion curves and ROAD: the class's probability while pixels are removed in the order of a map."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import torch

from locality.attribution.baselines import NAMES
from locality.errors import Problem, unknown_choice
from locality.model_calls import open_model
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work
from locality.scores.removal import STEPS, removal_curves
from locality.scores.road import NOISE, SHARES, road

# One row per model × image × method.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "deletion": float,
    "deletion_chance": float,  # of one random order of the image's pixels
    "insertion": float,
    "insertion_chance": float,
    "road_most": float,  # share of steps at which the class is kept, most relevant pixels first
    "road_least": float,
    "road": float,  # the difference; chance is 0
}


@dataclass(frozen=True)
class RemovalSettings:
    """`steps` of the curves, what replaces pixels (`fill`) and what insertion begins with; `shares` and noise of ROAD."""

    methods: tuple[str, ...] = ()
    limit: int | None = None
    steps: int = STEPS
    fill: str = "mean"
    start: str = "blur"
    shares: tuple[float, ...] = SHARES
    noise: float = NOISE
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part."""
    for settings in suite.requested("removal"):
        methods = settings.methods or suite.methods
        chosen = {name: getattr(settings, name) for name in ("steps", "fill", "start", "shares", "noise")}
        yield Part(
            "removal",
            "removal",
            settings,
            map_numbers(suite, methods, **chosen),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
            methods=methods,
        )


def rows(block: Block) -> Tables:
    """One row per image × method; an abstention has no maps and no row."""
    settings: RemovalSettings = block.settings
    table = []
    with open_model(block.model, block.images) as calls:
        explanations = block.explanations(calls)
        if explanations.maps:
            images, classes, seed = explanations.attributed.images.to(block.device), explanations.classes, block.suite.seed
            chosen = {"steps": settings.steps, "fill": settings.fill, "start": settings.start, "seed": seed}
            maps = {**explanations.maps, "": torch.zeros_like(images)}  # a constant map is a random order
            curves = removal_curves(calls, images, maps, classes, **chosen)  # type: ignore[arg-type]
            roads = road(calls, images, explanations.maps, classes, shares=settings.shares, noise=settings.noise, seed=seed)
            chance = curves[""]
            for name in explanations.maps:
                areas = (curves[name].deletion, chance.deletion, curves[name].insertion, chance.insertion)
                columns = [*(curve.area for curve in areas), roads[name].most, roads[name].least, roads[name].gap]
                for image_id, *values in zip(explanations.attributed.ids, *(one.tolist() for one in columns), strict=True):
                    table.append((block.name, image_id, name, *values))
    return {"removal": pd.DataFrame(table, columns=list(TABLE))}


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range and unknown baselines."""
    found = given_once(suite, "removal")
    for where, settings in suite.located("removal"):
        if settings.steps < 1:
            found.append(Problem(f"{where}.steps", f"must be at least 1, got {settings.steps}"))
        for key in ("fill", "start"):
            if getattr(settings, key) not in NAMES:
                found.append(Problem.of(f"{where}.{key}", unknown_choice(key, getattr(settings, key), NAMES)))
        if not settings.shares or not all(0 < share < 1 for share in settings.shares):
            found.append(Problem(f"{where}.shares", f"must be numbers between 0 and 1, got {list(settings.shares)}"))
        if not 0 <= settings.noise < math.inf:
            found.append(Problem(f"{where}.noise", f"must be 0 or larger, got {settings.noise}"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the maps; of two curves for each method and for chance; and of ROAD."""
    steps, shares, methods = part.settings.steps, part.settings.shares, len(part.methods)
    return maps_work(suite.search, part.methods) + Work(0, 3 + 2 * (steps - 1) * (methods + 1) + 2 * len(shares) * methods)


REMOVAL = Measurement("removal", RemovalSettings, {"removal": TABLE}, parts, rows, problems, work)
