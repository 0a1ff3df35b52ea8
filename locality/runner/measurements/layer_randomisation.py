"""Maps before and after layers are randomised from the top (Figure 2.4)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from locality.attribution.all_at_once import AT_BOUNDARY
from locality.errors import Problem
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, method_work, search_work
from locality.scores.layer_randomisation import REFERENCE, sanity_check

# One row per model × image × method × step of randomisation.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "method": str,
    "step": int,
    "layers": int,
    "layer": str,
    "spearman": float,
    "ssim": float,
}
TYPICAL_STEPS = 10  # of a network that nobody has opened


@dataclass(frozen=True)
class LayerRandomisationSettings:
    """`layers_at_once` layers are randomised per step; the suite's methods unless others are named."""

    methods: tuple[str, ...] = ()
    limit: int = 16
    layers_at_once: int = 5
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part. BatchNorm statistics of randomised layers are those of the part's first images, in every unit."""
    for settings in suite.requested("layer_randomisation"):
        methods = settings.methods or suite.methods
        yield Part(
            "layer_randomisation",
            "layer_randomisation",
            settings,
            map_numbers(suite, methods, layers_at_once=settings.layers_at_once),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
            methods=methods,
            reference=REFERENCE,
        )


def rows(block: Block) -> Tables:
    """One row per image × method × step. An abstention is not attributed and has no row."""
    from locality.attribution.methods import method  # here, because it imports Captum

    batch = block.decided()
    reference = block.first_images(REFERENCE)
    table = []
    for name in block.part.methods if len(batch) else ():
        curve = sanity_check(
            block.model,
            batch.images.to(block.device),
            functools.partial(method(name), **_method_options(name, block.suite)),
            layers_at_once=block.settings.layers_at_once,
            reference=reference,
            seed=block.suite.seed,
        )
        for row, image_id in enumerate(batch.ids):
            for step, layers in enumerate(curve.randomised):
                layer = curve.layers[layers - 1] if layers else ""
                likeness = float(curve.correlation[step, row]), float(curve.ssim[step, row])
                table.append((block.name, image_id, name, step, layers, layer, *likeness))
    return {"layer_randomisation": pd.DataFrame(table, columns=list(TABLE))}


def _method_options(name: str, suite: Suite) -> dict[str, Any]:
    """The suite's settings that the method's class takes."""
    if name in AT_BOUNDARY:
        return {"search": suite.search, "seed": suite.seed}
    return {"seed": suite.seed} if name in ("SmoothGrad", "AGI") else {}


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range."""
    found = given_once(suite, "layer_randomisation")
    for where, settings in suite.located("layer_randomisation"):
        if settings.layers_at_once < 1:
            found.append(Problem(f"{where}.layers_at_once", f"must be at least 1, got {settings.layers_at_once}"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the maps, again in every step."""
    single = (method_work([name]) + (search_work(suite.search) if name in AT_BOUNDARY else Work()) for name in part.methods)
    return sum(single, Work()).times(TYPICAL_STEPS)


LAYER_RANDOMISATION = Measurement(
    "layer_randomisation", LayerRandomisationSettings, {"layer_randomisation": TABLE}, parts, rows, problems, work
)
