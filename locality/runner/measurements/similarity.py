"""How close SM is to BSM and IG to BIG (Table 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from locality.errors import Problem
from locality.results.schema import Schema
from locality.runner.measurement import Block, Measurement, Part, Tables, given_once, map_numbers
from locality.runner.suite import Suite
from locality.runner.work import Work, maps_work, method_work
from locality.scores.similarity import boundary_similarity
from locality.types import PathMaps

COMPARED = ("SM", "BSM", "IG", "BIG")
# One row per model × image × pair of methods: "SM-BSM", "IG-BIG" and "IG-BIG integral".
TABLE: Schema = {"model": str, "image_id": str, "pair": str, "l2": float, "cosine": float, "unit_l2": float}


@dataclass(frozen=True)
class SimilaritySettings:
    """None of its own: the maps are those of the suite."""


def parts(suite: Suite) -> Iterator[Part]:
    """One part, in the units of locality where that is measured, which has the maps."""
    for settings in suite.requested("similarity"):
        numbers = map_numbers(suite, COMPARED)
        yield Part("similarity", "similarity", settings, numbers, block=suite.block, methods=COMPARED, along="locality")


def rows(block: Block) -> Tables:
    """One row per image × pair. An abstention has no maps and no row."""
    explanations = block.explanations()
    if not explanations.maps:
        return {"similarity": pd.DataFrame([], columns=list(TABLE))}
    found: dict[str, Tensor | PathMaps] = {name: explanations.maps[name] for name in ("SM", "BSM")}
    found |= {name: explanations.paths[name] for name in ("IG", "BIG")}
    pairs = boundary_similarity(found).pairs()
    table = [
        (
            block.name,
            image_id,
            pair,
            float(values.distance[row]),
            float(values.cosine[row]),
            float(values.unit_distance[row]),
        )
        for row, image_id in enumerate(explanations.attributed.ids)
        for pair, values in pairs.items()
    ]
    return {"similarity": pd.DataFrame(table, columns=list(TABLE))}


def problems(suite: Suite) -> list[Problem]:
    """It needs boundary points."""
    found = given_once(suite, "similarity")
    if suite.requested("similarity") and suite.search == "none":
        found.append(Problem("search", "must not be 'none' where similarity is measured, which needs boundary points"))
    return found


def work(suite: Suite, part: Part) -> Work:
    """Of the search and the maps, as far as locality does not make them anyway."""
    if not part.along:
        return maps_work(suite.search, part.methods)
    together = tuple(dict.fromkeys((*suite.methods, *part.methods)))
    return method_work(together) - method_work(suite.methods)


SIMILARITY = Measurement("similarity", SimilaritySettings, {"similarity": TABLE}, parts, rows, problems, work)
