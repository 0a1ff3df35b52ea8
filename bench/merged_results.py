"""Join the stored tables of studies that were measured in parts, such as other seeds in other folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from locality.errors import ArgumentError
from locality.results.folder import read_results, write_results
from locality.results.results import Results, unfinished
from locality.results.schema import Schema
from locality.runner.measurements import MEASUREMENTS


def merge(folders: Sequence[Path], out: Path) -> Results:
    """Join the results of several folders and write the tables to `out`, which may be one of them."""
    results = merged([read_results(folder) for folder in folders])
    schemas: dict[str, Schema] = {}
    for measurement in MEASUREMENTS.values():
        schemas |= measurement.tables
    write_results(results, out, schemas)
    return results


def merged(several: Sequence[Results], same_images: bool = True) -> Results:
    """The models of all results, each from the first that has it; refused if the suites differ otherwise.

    `same_images=False` joins results on other images, of models that nobody compares with each other.
    """
    first = several[0]
    measured: set[str] = set()
    parts = []
    for results in several:
        if _given(_settings(results, same_images)) != _given(_settings(first, same_images)):
            raise ArgumentError("folders", "results of one suite", f"{first.name} and {results.name} with other settings")
        if unfinished(results) is not None:
            raise ArgumentError("folders", "finished results", results.name, "run the study again to resume it")
        new = set(results.models["model"]) - measured
        parts.append({name: table[table["model"].isin(new)] for name, table in results.items()})
        measured |= new
    names = list(dict.fromkeys(name for part in parts for name in part))
    tables = {name: pd.concat([part[name] for part in parts if name in part], ignore_index=True) for name in names}
    return Results(first.name, tables, _provenance(several))


def _settings(results: Results, images: bool = True) -> dict[str, Any]:
    """What was measured, and on which images: the suite without its models."""
    without = {"models", "pairs"} | (set() if images else {"data"})
    return {key: value for key, value in results.provenance["suite"].items() if key not in without}


def _given(settings: Any) -> Any:
    """Settings without those that are None: results stored before a setting existed lack it, and mean the same."""
    if isinstance(settings, Mapping):
        return {key: _given(value) for key, value in settings.items() if value is not None}
    return [_given(value) for value in settings] if isinstance(settings, list) else settings


def _provenance(several: Sequence[Results]) -> dict[str, Any]:
    """Models, data and notes of all, and as `parts` the versions of each, which may differ."""
    records = [results.provenance for results in several]
    models: dict[str, Any] = {}
    data: dict[str, Any] = {}
    versions: list[Mapping[str, Any]] = []
    for record in records:
        models |= {model["name"]: model for model in record["suite"]["models"] if model["name"] not in models}
        data |= {name: one for name, one in record["data"].items() if name not in data}
        versions += [one for one in record.get("parts", [record["versions"]]) if one not in versions]
    notes = list(dict.fromkeys(note for record in records for note in record["notes"]))
    suite = _settings(several[0]) | {"models": list(models.values())}
    kept = {key: value for key, value in records[0].items() if key != "units"}  # those of one part would be misleading
    return kept | {"suite": suite, "data": data, "notes": notes, "parts": versions}
