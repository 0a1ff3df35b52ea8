"""Pixels, boxes and maps of a few images, stored for heat maps and for the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from locality.errors import Problem
from locality.results.gallery import GALLERY as TABLE
from locality.runner.gallery_rows import gallery_rows
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work


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
    """One row per image × method."""
    return {"gallery": gallery_rows(block.explanations(), block.data, block.name, block.part.methods)}


def problems(suite: Suite) -> list[Problem]:
    """It can be requested once."""
    return given_once(suite, "gallery")


def work(suite: Suite, part: Part) -> Work:
    """Of the search and the maps."""
    return maps_work(suite.search, part.methods)


GALLERY = Measurement("gallery", GallerySettings, {"gallery": TABLE}, parts, rows, problems, work)
