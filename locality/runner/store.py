"""Where a benchmark keeps its results: a folder of finished units, the plan they belong to, and the tables made of them.

    plan.json           the suite, its models, and the key of every unit, in the order of the results
    units/KEY.*.parquet the tables of one unit; KEY.json, written last, says that they are complete
    tables/*.parquet    all units merged in the order of the plan, with results.json; enough to keep or to publish

A key is made of everything that its numbers depend on, so that a changed setting looks up other files.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from locality.files import write_atomically
from locality.runner.plan import Plan, Task
from locality.runner.results import TABLES, GalleryImage, Results
from locality.runner.suite_models import model_rows
from locality.runner.table_files import (
    STORED,
    arrow_table,
    frame_of,
    is_table,
    read_parquet,
    schema_of,
    write_parquet,
)
from locality.runner.unit import Measured

State = Literal["finished", "with faults", "missing"]
FORMAT = 1
PLAN_KEYS = ("suite", "device", "versions", "models", "data", "units")


@dataclass(frozen=True)
class Finished:
    """A unit that is there, with what the results need to know of it."""

    model: str
    unit: str
    key: str
    tables: tuple[str, ...]
    faults: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    threads: int


@dataclass(frozen=True)
class Store:
    """The folder of one benchmark."""

    folder: Path

    @property
    def units(self) -> Path:
        return self.folder / "units"

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The folder ready to be written, by nobody else meanwhile; what a killed run left unfinished is removed."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"`out` must be a folder for results, got the file {self.folder}")
        self.units.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            for unfinished in self.folder.rglob(".*.part"):
                unfinished.unlink(missing_ok=True)
            yield

    def state(self, key: str) -> State:
        """Whether the unit is there. One with faults is measured again by the next run: its cause may be gone."""
        told = self.told(key)
        if told is None:
            return "missing"
        return "with faults" if told["faults"] else "finished"

    def told(self, key: str) -> dict[str, Any] | None:
        """What stands in the unit's KEY.json, or None where it or a table is incomplete or damaged."""
        try:
            told = json.loads((self.units / f"{key}.json").read_text(encoding="utf-8"))
            sizes = {name: self.table_path(key, name).stat().st_size for name in told["tables"]}
        except (OSError, ValueError, TypeError, KeyError):
            return None
        whole = sizes == told["tables"] and all(is_table(self.table_path(key, name)) for name in sizes)
        return told if whole else None

    def table_path(self, key: str, name: str) -> Path:
        return self.units / f"{key}.{name}.parquet"

    def save(self, task: Task, measured: Measured) -> None:
        """Keep what a unit gave, its tables first."""
        key = task.unit.key
        for name, frame in measured.tables.items():
            write_parquet(name, [arrow_table(name, frame)], self.table_path(key, name))
        told = {
            "model": task.unit.model,
            "unit": str(task.unit),
            "tables": {name: self.table_path(key, name).stat().st_size for name in measured.tables},
            "faults": measured.faults,
            "notes": measured.notes,
            "seconds": round(measured.seconds, 3),
            "threads": measured.threads,
            "device": task.device,
            "settings": json.loads(task.part.settings),
            "weights_sha256": task.model.weights_sha256,
            "images_sha256": task.unit.images_sha256,
            "versions": dict(task.versions),
        }
        _write_json(self.units / f"{key}.json", told)

    def write_plan(self, plan: Plan) -> None:
        """Say which units the results consist of."""
        written = {
            "format": FORMAT,
            "suite": asdict(plan.suite),
            "device": plan.device,
            "versions": dict(plan.versions),
            "models": model_rows(plan.models),
            "data": {
                model.name: {"name": model.data, "sha256": digest}
                for model, digest in zip(plan.models, plan.data_sha256, strict=True)
            },
            "units": [(unit.model, str(unit), unit.key) for unit in plan.units],
        }
        _write_json(self.folder / "plan.json", written)

    def write_tables(self) -> tuple[pd.DataFrame, tuple[str, ...]]:
        """Merge the units into one file a table, in the order of the plan and with the memory of a few units.

        Gives what a person wants to hear of: the faults, and the notes.
        """
        plan = read_json(self.folder / "plan.json", PLAN_KEYS)
        there = self.there(plan)
        folder = self.folder / "tables"
        folder.mkdir(exist_ok=True)
        counts = {}
        for name in STORED:
            path = folder / f"{name}.parquet"
            counts[name] = write_parquet(name, self.pieces(plan, there, name), path)
            if not counts[name]:
                path.unlink()
        about = _about(plan, there)
        _write_json(folder / "results.json", about | {"rows": counts})
        faults = pa.concat_tables(self.pieces(plan, there, "faults"))
        return frame_of("faults", faults), tuple(about["provenance"]["notes"])

    def there(self, plan: dict[str, Any]) -> list[Finished]:
        """The plan's units as far as they are there, in its order."""
        found = []
        for model, unit, key in plan["units"]:
            told = self.told(key)
            if told is not None:
                faults = tuple((ids, problem) for ids, problem in told["faults"])
                found.append(
                    Finished(model, unit, key, tuple(told["tables"]), faults, tuple(told["notes"]), told["threads"])
                )
        return found

    def pieces(self, plan: dict[str, Any], there: list[Finished], name: str) -> Iterator[pa.Table]:
        """One table, unit by unit."""
        if name == "models":
            yield arrow_table(name, pd.DataFrame(plan["models"], columns=list(TABLES["models"])))
        elif name == "faults":
            faults = [(one.model, one.unit, ids, problem) for one in there for ids, problem in one.faults]
            yield arrow_table(name, pd.DataFrame(faults, columns=list(TABLES["faults"])))
        else:
            for one in there:
                if name in one.tables:
                    yield read_parquet(name, self.table_path(one.key, name))


def _about(plan: dict[str, Any], there: list[Finished]) -> dict[str, Any]:
    """Name and provenance: nothing that would differ between two runs of the same plan on the same machine."""
    with_faults = sum(bool(one.faults) for one in there)
    provenance = {
        "suite": plan["suite"],
        "versions": plan["versions"],
        "device": plan["device"],
        "threads": sorted({one.threads for one in there}),
        "data": plan["data"],
        "units": {"planned": len(plan["units"]), "finished": len(there) - with_faults, "with faults": with_faults},
        "notes": list(dict.fromkeys(f"{one.model}: {note}" for one in there for note in one.notes)),
    }
    return {"name": plan["suite"]["name"], "provenance": provenance}


def read_results(folder: str | Path) -> Results:
    """What a benchmark left in its folder, as far as it came; the folder `tables` alone is enough.

    Rows are in the order of the plan: models as the suite names them, images as the data set has them, methods as asked for.
    """
    place = Path(folder)
    store = Store(place)
    if (place / "plan.json").is_file() and store.units.is_dir():
        plan = read_json(place / "plan.json", PLAN_KEYS)
        there = store.there(plan)
        about = _about(plan, there)
        found = {
            name: pa.concat_tables([schema_of(name).empty_table(), *store.pieces(plan, there, name)]) for name in STORED
        }
    else:
        tables = next((one for one in (place / "tables", place) if (one / "results.json").is_file()), None)
        if tables is None:
            raise ValueError(f"`{folder}` holds no results: pass the folder that `locality bench SUITE --out` wrote")
        about = read_json(tables / "results.json", ("name", "provenance"))
        paths = {name: tables / f"{name}.parquet" for name in STORED}
        found = {
            name: read_parquet(name, path) if path.is_file() else schema_of(name).empty_table()
            for name, path in paths.items()
        }
    frames = {name: frame_of(name, found[name]) for name in TABLES}
    return Results(about["name"], **frames, gallery=_gallery(found["gallery"]), provenance=about["provenance"])


def _gallery(table: pa.Table) -> tuple[GalleryImage, ...]:
    """One entry an image, as the first model sees it; maps of models with another view are resized to it."""
    entries: dict[str, GalleryImage] = {}
    for row in table.to_pylist():
        shape = row["height"], row["width"]
        if row["image_id"] not in entries:
            image = np.frombuffer(row["image"], dtype=np.uint8).reshape(*shape, 3)
            boxes = tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in json.loads(row["boxes"]))
            entries[row["image_id"]] = GalleryImage(row["image_id"], image, boxes, row["label"], {}, {})
        entry = entries[row["image_id"]]
        plane = np.frombuffer(row["map"], dtype=np.float16).reshape(shape)
        entry.maps[row["model"], row["method"]] = _resized(plane, entry.image.shape[:2])
        entry.predictions[row["model"]] = row["prediction"]
    return tuple(entries.values())


def _resized(plane: NDArray[np.float16], shape: tuple[int, ...]) -> NDArray[np.float16]:
    if plane.shape == shape:
        return plane
    values = torch.from_numpy(plane.astype(np.float32))[None, None]
    found = torch.nn.functional.interpolate(values, shape, mode="bilinear", align_corners=False)
    return found[0, 0].numpy().astype(np.float16)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held by one run at a time, and let go of by the system however the run ends."""
    try:
        import fcntl
    except ImportError:  # not a Unix: nobody else is assumed
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"`{folder}` is being written by another run: wait for it, or pass another --out") from None
        except OSError:
            pass  # a file system without locks
        yield


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_atomically(path, text + "\n")


def read_json(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """What a file of ours holds, if it is of this version and has these keys."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, or of UTF-8
        raise _damaged(path, str(error)) from error
    if not isinstance(found, dict):
        raise _damaged(path, "not a table")
    if found.get("format", FORMAT) != FORMAT:
        raise ValueError(f"`{path}` is of another version of locality: run the suite again")
    missing = [key for key in keys if key not in found]
    if missing:
        raise _damaged(path, f"without {', '.join(missing)}")
    return found


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"`{path}` is damaged ({reason}): run the suite again; units that are finished are kept")
