"""Region tests: decisions with the region, or all but the region, greyed, blurred, swapped or under noise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields

from locality.errors import ArgumentError, Problem
from locality.results.region_tests import REGIONS
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json, given_once
from locality.runner.region_rows import region_rows
from locality.runner.suite import Suite
from locality.runner.work import Work
from locality.scores.region_tests import RegionSettings


@dataclass(frozen=True)
class RegionsSettings(RegionSettings):
    """How regions are changed, and on which images and models."""

    limit: int | None = None
    models: tuple[str, ...] = ()


def parts(suite: Suite) -> Iterator[Part]:
    """One part. Any image of the part may lend its background to any other, so each unit depends on all of them."""
    for settings in suite.requested("regions"):
        numbers = {field.name: getattr(settings, field.name) for field in fields(RegionSettings)}
        yield Part(
            "regions",
            "regions",
            settings,
            as_json(numbers | {"seed": suite.seed}),
            limit=settings.limit,
            block=suite.block,
            models=settings.models,
            reference=sys.maxsize,
        )


def rows(block: Block) -> Tables:
    """One row per image × test."""
    seed, settings = block.suite.seed, block.settings
    return {"regions": region_rows(block.model, block.batch, block.data, block.name, settings, seed, block.decoded)}


def problems(suite: Suite) -> list[Problem]:
    """Numbers out of range."""
    found = given_once(suite, "regions")
    for where, settings in suite.located("regions"):
        try:
            settings.check()
        except ArgumentError as error:
            found.append(Problem.of(f"{where}.{error.argument}", error))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the unchanged image and of each changed one."""
    return Work(0, part.settings.forwards)


REGION_TESTS = Measurement("regions", RegionsSettings, {"regions": REGIONS}, parts, rows, problems, work, needs_regions=True)
