"""Accuracy, boundary distance and locality scores: measured by default on data with boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from locality.errors import Problem
from locality.results.schema import MODEL_FREE, ROWS
from locality.runner.explain_batch import rows_of
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json
from locality.runner.suite import Suite
from locality.runner.summary import model_free_rows
from locality.runner.work import Work, maps_work


@dataclass(frozen=True)
class LocalitySettings:
    """None of its own: those of the suite decide."""


def parts(suite: Suite) -> Iterator[Part]:
    """One part, also where the suite does not name it; none if it says `locality = false`."""
    if _is_off(suite):
        return
    numbers = as_json(asdict(suite.settings))
    yield Part("locality", "locality", LocalitySettings(), numbers, block=suite.block, methods=suite.methods)


def rows(block: Block) -> Tables:
    """One row per image × method, and per image × map that depends on neither the model nor the image."""
    settings = block.explain_settings
    return {
        "rows": rows_of(block.explanations(), settings, block.name),
        "model_free": model_free_rows(block.batch, settings, block.name),
    }


def problems(suite: Suite) -> list[Problem]:
    """Without locality there must be something else to measure."""
    if _is_off(suite) and not any(suite.measurements.values()):
        return [Problem("locality", "must not be false where nothing else is measured")]
    return []


def _is_off(suite: Suite) -> bool:
    return "locality" in suite.measurements and not suite.requested("locality")


def work(suite: Suite, part: Part) -> Work:
    """Of the search and the maps."""
    return maps_work(suite.search, part.methods)


LOCALITY = Measurement(
    "locality", LocalitySettings, {"rows": ROWS, "model_free": MODEL_FREE}, parts, rows, problems, work, needs_regions=True
)
