"""Boundary searches side by side on the same images: distance, success, evaluations, time (Table B.2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from locality.boundary import SEARCHES as BOUNDARY_SEARCHES
from locality.boundary import find_boundary
from locality.boundary.search import resolve_search
from locality.errors import Problem
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, as_json, given_once
from locality.runner.suite import Suite
from locality.runner.work import Work, search_work

# One row per model × image × search.
TABLE: Schema = {
    "model": str,
    "image_id": str,
    "search": str,
    "distance": float,
    "found": bool,
    "gradients": float,
    "forwards": float,
    "seconds": float,
}


@dataclass(frozen=True)
class SearchesSettings:
    """The searches to compare."""

    names: tuple[str, ...] = ("fast", "paper")
    limit: int = 64
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class OneSearch:
    """The settings of one part."""

    search: str


def parts(suite: Suite) -> Iterator[Part]:
    """One part per search."""
    for settings in suite.requested("searches"):
        for name in settings.names:
            yield Part(
                f"searches {name}",
                "searches",
                OneSearch(name),
                as_json({"search": name, "seed": suite.seed}),
                limit=settings.limit,
                block=suite.block,
                models=settings.models,
            )


def rows(block: Block) -> Tables:
    """One row per image. Evaluations and seconds are those of the block, divided by its number of images.

    An abstention leaves no class and has no row.
    """
    name, batch = block.settings.search, block.decided()
    if not len(batch):
        return {"searches": pd.DataFrame([], columns=list(TABLE))}
    start = time.perf_counter()
    boundary = find_boundary(block.model, batch.images.to(block.device), search=name, seed=block.suite.seed)
    seconds = (time.perf_counter() - start) / len(batch)
    table = pd.DataFrame(
        {
            "model": block.name,
            "image_id": batch.ids,
            "search": name,
            "distance": boundary.distance.tolist(),
            "found": boundary.found.tolist(),
            "gradients": boundary.gradients / len(batch),
            "forwards": boundary.forwards / len(batch),
            "seconds": seconds,
        }
    )
    return {"searches": table[list(TABLE)]}


def problems(suite: Suite) -> list[Problem]:
    """Searches that do not exist, or are named twice."""
    found = given_once(suite, "searches")
    for where, settings in suite.located("searches"):
        names = settings.names
        if not names:
            found.append(Problem(f"{where}.names", "must name at least one search, such as fast"))
        twice = sorted({name for name in names if names.count(name) > 1})
        found += [Problem(f"{where}.names", f"names {name!r} twice: once is enough") for name in twice]
        for name in names:
            try:
                resolve_search(name, BOUNDARY_SEARCHES)
            except (ValueError, TypeError) as error:
                found.append(Problem.of(f"{where}.names", error))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the search."""
    return search_work(part.settings.search)


SEARCHES = Measurement("searches", SearchesSettings, {"searches": TABLE}, parts, rows, problems, work)
