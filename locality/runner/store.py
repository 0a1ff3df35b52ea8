"""Where a run keeps its results: one writer at a time, unit by unit, merged in the end. `results.folder` has the layout."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa

from locality.files import file_hash, locked, source_hashes
from locality.results.folder import FORMAT, RunFolder, about, table_names, write_about, write_json, write_table
from locality.results.parquet import arrow_schema, arrow_table, frame_of, write_parquet
from locality.runner.plan import Plan, Task, Unit
from locality.runner.provenance import SOURCES
from locality.runner.suite_models import model_rows
from locality.runner.unit import Measured

State = Literal["finished", "with faults", "missing"]
SHOWN_FILES = 3  # of those that changed


@dataclass(frozen=True)
class Outdated:
    """Units of an earlier run that are measured again, and what has changed since then."""

    units: int = 0
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Store:
    """Writes the folder of one benchmark. A unit's key is a hash of all its numbers depend on."""

    folder: Path

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The folder locked for this run, with the unfinished files of a killed run removed."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"`out` must be a folder for results, got the file {self.folder}")
        self.files.units.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            for unfinished in self.folder.rglob(".*.part"):
                unfinished.unlink(missing_ok=True)
            yield

    def state(self, key: str) -> State:
        """Whether the unit is there. A unit with faults is measured again by the next run: its cause may be gone."""
        record = self.files.record(key)
        if record is None:
            return "missing"
        return "with faults" if record["faults"] else "finished"

    def missing(self, plan: Plan) -> list[Unit]:
        """The plan's units that are not finished, in its order."""
        return [unit for unit in plan.units if self.state(unit.key) != "finished"]

    def outdated(self, plan: Plan) -> Outdated:
        """The units that were finished by the last run in this folder and have to be measured again; before `write_plan`."""
        try:
            before = self.files.plan()
        except (OSError, ValueError):
            return Outdated()
        keys = {(model, unit): key for model, unit, key in before["units"]}
        count, changed = 0, dict[str, None]()
        for unit in plan.units:
            key = keys.get((unit.model, str(unit)), unit.key)
            record = self.files.record(key) if key != unit.key and self.state(unit.key) != "finished" else None
            if record is not None:
                count += 1
                changed |= dict.fromkeys(_changes(record, plan.task(unit, 1), before.get("sources", {})))
        return Outdated(count, tuple(changed))

    def save(self, task: Task, measured: Measured) -> None:
        """Write a unit's tables, then the record that marks them as complete."""
        files, key = self.files, task.unit.key
        for name, frame in measured.tables.items():
            schema = task.schemas[name]
            write_parquet(files.table_path(key, name), [arrow_table(frame, schema)], arrow_schema(schema))
        record = {
            "model": task.unit.model,
            "unit": str(task.unit),
            "tables": {name: files.table_path(key, name).stat().st_size for name in measured.tables},
            "sha256": {name: file_hash(files.table_path(key, name)) for name in measured.tables},
            "faults": measured.faults,
            "notes": measured.notes,
            "seconds": round(measured.seconds, 3),
            "threads": measured.threads,
            "pieces": measured.pieces,
            "device": task.device,
            "settings": {part.name: json.loads(part.numbers) for part in task.parts},
            "weights_sha256": task.model.weights_sha256,
            "model_sha256": task.model.fingerprint,
            "images_sha256": task.unit.images_sha256,
            "versions": dict(task.versions),
        }
        write_json(files.record_path(key), record)

    def write_plan(self, plan: Plan) -> None:
        """Write which units the results consist of."""
        content = {
            "format": FORMAT,
            "suite": plan.suite.as_table(),
            "device": plan.device,
            "versions": dict(plan.versions),
            "sources": dict(source_hashes()),
            "models": model_rows(plan.models),
            "data": {
                model.name: {"name": model.data, "sha256": digest, "preprocessing": model.preprocessing}
                for model, digest in zip(plan.models, plan.data_sha256, strict=True)
            },
            "units": [(unit.model, str(unit), unit.key) for unit in plan.units],
        }
        write_json(self.files.plan_path, content)

    def write_tables(self) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Merge the units into one file per table, in the order of the plan, holding a few units in memory.

        Tables that were merged from the same units stay. Returns the faults and the notes.
        """
        files = self.files
        plan = files.plan()
        units = files.finished(plan)
        description = about(plan, units)
        merged = [(unit.key, unit.faults) for unit in units]
        description["merged_sha256"] = hashlib.sha256(json.dumps(merged).encode()).hexdigest()
        if not files.holds(description):
            files.tables.mkdir(exist_ok=True)
            counts = {name: write_table(files.tables, name, files.pieces(plan, units, name)) for name in table_names(units)}
            write_about(files.tables, description, counts)
        faults = pa.concat_tables(files.pieces(plan, units, "faults"))
        return frame_of(faults), tuple(description["provenance"]["notes"])


def _changes(record: Mapping[str, Any], task: Task, sources: Mapping[str, str]) -> Iterator[str]:
    """In which ways the task differs from the unit that was stored; `sources` are the hashes of our files at that time."""
    before, model = record["versions"], task.model
    for name, version in task.versions:
        if name == SOURCES and before.get(name) != version:
            files = [file for file, digest in source_hashes().items() if sources and sources.get(file) != digest]
            files += [file for file in sources if file not in source_hashes()]
            shown = ", ".join(files[:SHOWN_FILES]) + (f" and {len(files) - SHOWN_FILES} more" if files[SHOWN_FILES:] else "")
            yield f"the code of locality ({shown})" if files else "the code of locality"
        elif before.get(name) != version:
            yield f"{name} {before.get(name)} to {version}"
    if record["weights_sha256"] != model.weights_sha256:
        yield f"the weights of {model.name}"
    elif record.get("model_sha256", model.fingerprint) != model.fingerprint:
        yield f"what {model.name} computes"
    if record["images_sha256"] != task.unit.images_sha256:
        yield f"the images of {model.data}"
    if record["settings"] != {part.name: json.loads(part.numbers) for part in task.parts}:
        yield f"the settings of {task.part.name}"
    if record["device"].partition(":")[0] != task.device:
        yield f"the device {record['device']} to {task.device}"
