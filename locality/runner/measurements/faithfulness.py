"""INFD under several noises, and the completeness gap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from locality.errors import Problem
from locality.model_calls import open_model
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work
from locality.scores.faithfulness import faithfulness

# One row per model × image × method × noise.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "noise": str,
    "raw": float,
    "normalised": float,
    "scaled": float,
    "error": float,
    "gap": float,
}


@dataclass(frozen=True)
class FaithfulnessSettings:
    """`samples` perturbations per image and noise; the suite's methods unless others are named."""

    methods: tuple[str, ...] = ()
    limit: int | None = None
    samples: int = 100
    sigma: float = 0.03
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part."""
    for settings in suite.requested("faithfulness"):
        methods = settings.methods or suite.methods
        yield Part(
            "faithfulness",
            "faithfulness",
            settings,
            map_numbers(suite, methods, samples=settings.samples, sigma=settings.sigma),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
            methods=methods,
        )


def rows(block: Block) -> Tables:
    """One row per image × method × noise; a method without a path has no rows for noise along it."""
    settings: FaithfulnessSettings = block.settings
    table = []
    with open_model(block.model, block.images) as calls:
        explanations = block.explanations(calls)
        ids, images = explanations.attributed.ids, explanations.attributed.images.to(block.device)
        for name, maps in explanations.maps.items():
            path = explanations.paths.get(name)
            baseline: Tensor | str | None = None if path is None else "black"
            if name == "BIG" and explanations.boundary is not None:
                baseline = explanations.boundary.points
            scores = faithfulness(
                calls,
                images,
                maps if path is None else path,
                explanations.classes,
                baseline,
                sigma=settings.sigma,
                samples=settings.samples,
                seed=block.suite.seed,
            )
            noises = {scores.gaussian.noise: scores.gaussian, scores.removal.noise: scores.removal}
            if path is not None:
                noises |= {"own path": scores.path, "own baseline": scores.step}
            undefined = maps.isnan().flatten(1).any(1)  # also where the label is no class of the model
            for row, image_id in enumerate(ids):
                for noise, values in noises.items():
                    several = (values.raw, values.normalised, values.scaled, values.raw_error, scores.gap)
                    numbers = [math.nan if undefined[row] else float(column[row]) for column in several]
                    table.append((block.name, image_id, name, noise, *numbers))
    return {"faithfulness": pd.DataFrame(table, columns=list(TABLE))}


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range."""
    found = given_once(suite, "faithfulness")
    for where, settings in suite.located("faithfulness"):
        if not 0 < settings.sigma < math.inf:
            found.append(Problem(f"{where}.sigma", f"must be above 0, such as 0.03, got {settings.sigma}"))
        if settings.samples < 1:
            found.append(Problem(f"{where}.samples", f"must be at least 1, got {settings.samples}"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the maps and of the perturbed images."""
    samples = part.settings.samples
    draws = sum(3 * samples + 3 if name in ("IG", "BIG") else 2 * samples + 1 for name in part.methods)
    return maps_work(suite.search, part.methods) + Work(0, draws)


FAITHFULNESS = Measurement("faithfulness", FaithfulnessSettings, {"faithfulness": TABLE}, parts, rows, problems, work)
