"""The folder of a benchmark: finished units, the plan they belong to, and the tables merged from them.

    plan.json           the suite, its models, and the key of every unit, in the order of the results
    units/KEY.*.parquet the tables of one unit; KEY.json, written last, marks them as complete
    tables/*.parquet    all units merged in the order of the plan, with results.json; enough to publish

KEY.json and results.json hold the sha256 of the tables beside them, and every JSON file one of its own content. A damaged
unit counts as missing, so that the next run measures it again.

Reading needs no torch and nothing about the measurements: each Parquet file carries its schema.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from locality.files import file_hash, is_intact, sealed, write_atomically
from locality.results.parquet import arrow_table, frame_of, is_parquet, read_parquet, write_parquet
from locality.results.results import Results
from locality.results.schema import CORE, FAULTS, MODELS, Schema
from locality.toml_settings import read_json as read_json_file

FORMAT = 2
MAX_JSON_BYTES = 2**30
PLAN_KEYS = ("suite", "device", "versions", "models", "data", "units")

OPTIONAL = {"abstained"}  # columns that older results may lack: in those nobody abstained


@dataclass(frozen=True)
class FinishedUnit:
    """A unit whose tables are complete, with what the results say about it."""

    model: str
    unit: str
    key: str
    tables: tuple[str, ...]
    faults: tuple[tuple[str, str], ...]  # (ids of images, problem)
    notes: tuple[str, ...]
    threads: int


@dataclass(frozen=True)
class RunFolder:
    """Reads what a run has written so far."""

    path: Path

    @property
    def units(self) -> Path:
        return self.path / "units"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def plan_path(self) -> Path:
        return self.path / "plan.json"

    def plan(self) -> dict[str, Any]:
        return read_json(self.plan_path, PLAN_KEYS)

    def table_path(self, key: str, name: str) -> Path:
        return self.units / f"{key}.{name}.parquet"

    def record_path(self, key: str) -> Path:
        return self.units / f"{key}.json"

    def record(self, key: str) -> dict[str, Any] | None:
        """The content of the unit's KEY.json, or None where it or a table is incomplete or damaged."""
        try:
            record: dict[str, Any] = read_json_file(self.record_path(key), MAX_JSON_BYTES)
            sizes = {name: self.table_path(key, name).stat().st_size for name in record["tables"]}
            if not is_intact(record) or sizes != record["tables"]:
                return None
            if "sha256" in record:
                whole = record["sha256"] == {name: file_hash(self.table_path(key, name)) for name in sizes}
            else:  # of an earlier version
                whole = all(is_parquet(self.table_path(key, name)) for name in sizes)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return record if whole else None

    def finished(self, plan: Mapping[str, Any]) -> list[FinishedUnit]:
        """The plan's units that are complete, in its order."""
        units = []
        for model, unit, key in plan["units"]:
            record = self.record(key)
            if record is not None:
                faults = tuple((ids, problem) for ids, problem in record["faults"])
                tables, notes = tuple(record["tables"]), tuple(record["notes"])
                units.append(FinishedUnit(model, unit, key, tables, faults, notes, record["threads"]))
        return units

    def holds(self, description: Mapping[str, Any]) -> bool:
        """Whether the merged tables are undamaged and have this description."""
        try:
            stored = read_json(self.tables / "results.json", ("sha256", *description))
            hashes = {path.stem: file_hash(path) for path in self.tables.glob("*.parquet")}
        except (OSError, ValueError):
            return False
        plain = json.loads(json.dumps(description))  # as a file has it: without tuples
        return hashes == stored["sha256"] and all(stored[key] == plain[key] for key in plain)

    def pieces(self, plan: Mapping[str, Any], units: Sequence[FinishedUnit], name: str) -> Iterator[pa.Table]:
        """One table, unit by unit."""
        if name == "models":
            yield arrow_table(pd.DataFrame(plan["models"], columns=list(MODELS)), MODELS)
        elif name == "faults":
            faults = [(unit.model, unit.unit, ids, problem) for unit in units for ids, problem in unit.faults]
            yield arrow_table(pd.DataFrame(faults, columns=list(FAULTS)), FAULTS)
        else:
            for unit in units:
                if name in unit.tables:
                    yield read_parquet(self.table_path(unit.key, name))


def table_names(units: Sequence[FinishedUnit]) -> list[str]:
    """The tables that the units have, those that every benchmark has first."""
    return list(dict.fromkeys([*CORE, *(name for unit in units for name in unit.tables)]))


def about(plan: Mapping[str, Any], units: Sequence[FinishedUnit]) -> dict[str, Any]:
    """Name and provenance: nothing that would differ between two runs of the same plan on the same machine."""
    with_faults = sum(bool(unit.faults) for unit in units)
    provenance = {
        "suite": plan["suite"],
        "versions": plan["versions"],
        "device": plan["device"],
        "threads": sorted({unit.threads for unit in units}),
        "data": plan["data"],
        "units": {"planned": len(plan["units"]), "finished": len(units) - with_faults, "with faults": with_faults},
        "notes": list(dict.fromkeys(f"{unit.model}: {note}" for unit in units for note in unit.notes)),
    }
    return {"name": plan["suite"]["name"], "provenance": provenance}


def read_results(folder: str | Path) -> Results:
    """The results in the folder of a benchmark, also of an unfinished one; its folder `tables` alone is enough.

    Rows are in the order of the plan: models as in the suite, images as in the data set, methods as requested.
    """
    run = RunFolder(Path(folder))
    if run.plan_path.is_file() and run.units.is_dir():
        plan = run.plan()
        units = run.finished(plan)
        damaged = len(plan["units"]) - len(units) - sum(not run.record_path(key).exists() for _, _, key in plan["units"])
        if damaged:
            count = "1 unit is" if damaged == 1 else f"{damaged:,} units are"
            warnings.warn(f"`{folder}`: {count} damaged and left out: run the suite again", stacklevel=2)
        description = about(plan, units)
        pieces = {name: list(run.pieces(plan, units, name)) for name in table_names(units)}
        tables = {name: pa.concat_tables(several) for name, several in pieces.items() if several}
    else:
        tables_folder = next((one for one in (run.tables, run.path) if (one / "results.json").is_file()), None)
        if tables_folder is None:
            raise ValueError(f"`{folder}` holds no results: pass the folder that `locality bench` or `eval --out` wrote")
        description = read_json(tables_folder / "results.json", ("name", "provenance"))
        paths = sorted(tables_folder.glob("*.parquet"))
        hashes = description.get("sha256", {path.stem: None for path in paths})  # earlier versions stored none
        tables = {name: read_parquet(tables_folder / f"{name}.parquet", sha256) for name, sha256 in hashes.items()}
    for name in CORE.keys() & tables.keys():
        missing = CORE[name].keys() - {*tables[name].column_names, *OPTIONAL}
        if missing:
            raise ValueError(
                f"`{folder}` was written by another version of locality: its table {name} has no column "
                f"{', '.join(sorted(missing))}; run the suite into a new folder"
            )
    frames = {name: frame_of(tables[name]) for name in sorted(tables)}
    return Results(description["name"], frames, description["provenance"])


def write_results(results: Results, folder: Path, schemas: Mapping[str, Schema]) -> Path:
    """Write the merged tables as `locality bench` leaves them; `schemas` has those that not every benchmark has."""
    known = {**CORE, **schemas}
    tables = RunFolder(folder).tables
    tables.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, frame in results.items():
        counts[name] = write_table(tables, name, [arrow_table(frame, known[name])])
    write_about(tables, {"name": results.name, "provenance": dict(results.provenance)}, counts)
    return folder


def write_table(folder: Path, name: str, pieces: Sequence[pa.Table] | Iterator[pa.Table]) -> int:
    """Write NAME.parquet from pieces of one schema and return the number of rows; a table without rows leaves no file."""
    path, several = folder / f"{name}.parquet", iter(pieces)
    first = next(several, None)
    rows = 0 if first is None else write_parquet(path, _with(first, several), first.schema)
    if not rows:
        path.unlink(missing_ok=True)
    return rows


def _with(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    for other in others:
        if other.schema != first.schema:
            raise ValueError("the folder's units were measured by different versions: run the suite into a new folder")
        yield other


def write_about(folder: Path, description: Mapping[str, Any], rows: Mapping[str, int]) -> None:
    """Write results.json: name, provenance, and rows and sha256 of each table; tables that are not named are removed."""
    for path in folder.glob("*.parquet"):
        if path.stem not in rows:
            path.unlink()  # of earlier results in this folder
    hashes = {name: file_hash(folder / f"{name}.parquet") for name, count in rows.items() if count}
    write_json(folder / "results.json", {**description, "rows": dict(rows), "sha256": hashes})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mapping as one of the folder's JSON files, with a hash of itself."""
    write_atomically(path, json.dumps(sealed(content), ensure_ascii=False, indent=1) + "\n")


def read_json(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """The content of one of the folder's JSON files, if it is of this format and has these keys."""
    try:
        content = read_json_file(path, MAX_JSON_BYTES)
    except ValueError as error:  # of JSON, or of UTF-8; or it is too large, too deep, or a pipe
        raise _damaged(path, str(error)) from error
    if not isinstance(content, dict):
        raise _damaged(path, "not a table")
    if content.get("format", FORMAT) != FORMAT:
        raise ValueError(f"`{path}` was written by another version of locality: run the suite again")
    if not is_intact(content):
        raise _damaged(path, "its content is not what was written")
    missing = [key for key in keys if key not in content]
    if missing:
        raise _damaged(path, f"without {', '.join(missing)}")
    if "provenance" in keys and not isinstance(content["provenance"], dict):
        raise _damaged(path, "its provenance is not a table")
    return content


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"`{path}` is damaged ({reason}): run the suite again; finished units are kept")
