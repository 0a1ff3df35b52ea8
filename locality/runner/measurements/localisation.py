"""MaxBoxAccV2 and PxAP: what both are computed from, for every map that locality makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from locality.errors import Problem
from locality.results.localisation import LOCALISATION
from locality.runner.localisation_rows import localisation_rows
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work


@dataclass(frozen=True)
class LocalisationSettings:
    """None of its own: the maps are those of the suite."""


def parts(suite: Suite) -> Iterator[Part]:
    """One part, in the units of locality where that is measured, which has the maps."""
    for settings in suite.requested("localisation"):
        numbers = map_numbers(suite, suite.methods)
        methods = suite.methods
        yield Part("localisation", "localisation", settings, numbers, block=suite.block, methods=methods, along="locality")


def rows(block: Block) -> Tables:
    """One row per image × method or model-free map."""
    return {"localisation": localisation_rows(block.explanations(), block.name, block.suite.seed)}


def problems(suite: Suite) -> list[Problem]:
    """Given once."""
    return given_once(suite, "localisation")


def work(suite: Suite, part: Part) -> Work:
    """None beside the maps."""
    return Work() if part.along else maps_work(suite.search, part.methods)


LOCALISATION_SCORES = Measurement(
    "localisation", LocalisationSettings, {"localisation": LOCALISATION}, parts, rows, problems, work, needs_regions=True
)
