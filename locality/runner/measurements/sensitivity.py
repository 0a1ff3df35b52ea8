"""Random logit and max-sensitivity: whether a map depends on the class, and by how much it changes with noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from locality.attribution.all_at_once import OWN
from locality.errors import Problem
from locality.model_calls import open_model
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work, method_work
from locality.scores.max_sensitivity import RADIUS, SAMPLES
from locality.scores.model_scores import Explained

# One row per model × image × method.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "random_logit": float,  # SSIM with the map of another class
    "random_logit_chance": float,  # with that map's pixels shuffled
    "class_cosine": float,  # of the two signed maps
    "max_sensitivity": float,  # the largest relative change under noise
    "max_sensitivity_chance": float,  # if the values were shuffled
}


@dataclass(frozen=True)
class SensitivitySettings:
    """`samples` perturbations within ℓ∞ `radius`; each is attributed anew, so limit the images."""

    methods: tuple[str, ...] = ()
    limit: int | None = None
    radius: float = RADIUS
    samples: int = SAMPLES
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part."""
    for settings in suite.requested("sensitivity"):
        methods = settings.methods or suite.methods
        yield Part(
            "sensitivity",
            "sensitivity",
            settings,
            map_numbers(suite, methods, radius=settings.radius, samples=settings.samples),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
            methods=methods,
        )


def rows(block: Block) -> Tables:
    """One row per image × method; an abstention has no maps and no row."""
    settings: SensitivitySettings = block.settings
    table = []
    with open_model(block.model, block.images) as calls:
        explanations = block.explanations(calls)
        if explanations.maps:
            explained = Explained(
                # Methods that are not our own open the model themselves.
                calls if OWN.issuperset(explanations.maps) else block.model,
                explanations.attributed.images.to(block.device),
                explanations.classes,
                explanations.maps,
                explanations.boundary,
                block.suite.settings.search,
                seed=block.suite.seed,
            )
            changes = explained.sensitivity_at(radius=settings.radius, samples=settings.samples)
            for name in explanations.maps:
                logit, change = explained.random_logit[name], changes[name]
                columns = (logit.ssim, logit.ssim_chance, logit.cosine, change.relative, change.chance)
                for image_id, *values in zip(explanations.attributed.ids, *(one.tolist() for one in columns), strict=True):
                    table.append((block.name, image_id, name, *values))
    return {"sensitivity": pd.DataFrame(table, columns=list(TABLE))}


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range."""
    found = given_once(suite, "sensitivity")
    for where, settings in suite.located("sensitivity"):
        if not 0 < settings.radius < math.inf:
            found.append(Problem(f"{where}.radius", f"must be above 0, such as 0.02, got {settings.radius}"))
        if settings.samples < 1:
            found.append(Problem(f"{where}.samples", f"must be at least 1, got {settings.samples}"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the maps, of those of another class, and of those of each perturbed image."""
    return maps_work(suite.search, part.methods).times(1 + part.settings.samples) + method_work(part.methods)


SENSITIVITY = Measurement("sensitivity", SensitivitySettings, {"sensitivity": TABLE}, parts, rows, problems, work)
