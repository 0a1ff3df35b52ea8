"""`run_suite`: from the plan of a suite to its tables. An interrupted run resumes where it stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from locality.errors import ArgumentError, unknown_choice
from locality.progress import Progress, no_progress
from locality.runner.local_engine import available_devices, checked_devices, run_locally
from locality.runner.low_accuracy import low_accuracies
from locality.runner.plan import Plan, Task, make_plan
from locality.runner.ray_engine import run_on_ray
from locality.runner.store import Outdated, Store
from locality.runner.suite import Suite
from locality.runner.unit import Measured

Engine = Literal["local", "ray"]
UNIT_MINUTES = 360.0


@dataclass(frozen=True)
class Machine:
    """Where units run. It does not change the numbers, except for rounding where `threads` differ.

    `processes` None: one per `threads` cores, or one per device; 0: this process. `gpus` is per unit, on Ray.
    """

    engine: Engine = "local"
    processes: int | None = None
    threads: int = 1
    devices: tuple[str, ...] = ("cpu",)
    address: str | None = None
    gpus: float = 0.0
    unit_minutes: float = UNIT_MINUTES  # after which a unit is stopped and listed; not in this process

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise unknown_choice("engine", self.engine, get_args(Engine))
        if self.threads < 1:
            raise ArgumentError("threads", "at least 1", self.threads)
        if self.processes is not None and self.processes < 0:
            raise ArgumentError("processes", "0 or more", self.processes)
        if self.engine == "local" and self.address is not None:
            raise ArgumentError("address", "given with engine='ray' only", self.address, "pass --engine ray, too")
        if self.engine == "ray" and self.processes == 0:
            raise ArgumentError("processes", "at least 1 for Ray", 0)
        if not self.unit_minutes > 0:
            raise ArgumentError("unit_minutes", "more than 0", self.unit_minutes)
        if self.gpus < 0:
            raise ArgumentError("gpus", "0 or more", self.gpus)

    @property
    def device(self) -> str:
        """The kind of device that numbers are computed on, which they depend on."""
        if self.engine == "ray":
            return "cuda" if self.gpus else "cpu"
        return self.devices[0].partition(":")[0]

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Measured]]:
        if self.engine == "ray":
            return run_on_ray(tasks, self.address, self.processes, self.threads, self.gpus, self.unit_minutes)
        return run_locally(tasks, self.processes, self.threads, self.devices, minutes=self.unit_minutes)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a run."""

    folder: Path
    units: int
    kept: int  # finished by earlier runs
    faults: pd.DataFrame
    notes: tuple[str, ...]
    seconds: float
    outdated: Outdated  # units of earlier runs that were measured again

    def __repr__(self) -> str:
        return f"<Outcome: {self.units:,} units in {self.folder}, {self.kept:,} kept, {len(self.faults):,} faults>"

    def to_json(self, plan: Plan) -> dict[str, Any]:
        """What the run did, as plain values; the numbers are in its folder."""
        return {
            **plan.to_json(),
            "folder": str(self.folder),
            "units": self.units,
            "kept": self.kept,
            "seconds": self.seconds,
            "faults": self.faults.to_dict("records"),
            "notes": list(self.notes),
        }


def machine_here(
    engine: Engine = "local",
    processes: int | None = None,
    threads: int = 1,
    device: str | None = None,
    address: str | None = None,
    gpus: float | None = None,
    unit_minutes: float = UNIT_MINUTES,
) -> Machine:
    """The machine behind command-line options; by default every CUDA device, or else every core."""
    devices = tuple(available_devices()) if device is None else checked_devices(device)
    return Machine(engine, processes, threads, devices, address, gpus or 0.0, unit_minutes)


def run_suite(
    suite: Suite | Plan,
    out: str | Path,
    machine: Machine | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Measure the units that are missing, store each when it is finished, and merge the tables.

    A run may be killed at any time; the next call resumes. `progress(done, total)` counts the images of the missing units.
    The tables are the same bit for bit whatever was killed and in whatever order units finished, if `threads` is the same.
    """
    start = time.monotonic()
    machine = machine or Machine()
    plan = suite if isinstance(suite, Plan) else make_plan(suite, device=machine.device)
    store = Store(Path(out))
    with store.opened():
        outdated = store.outdated(plan)
        store.write_plan(plan)
        missing = store.missing(plan)
        total, done = sum(map(len, missing)), 0
        progress(done, total)
        for task, measured in machine.run([plan.task(unit, machine.threads) for unit in missing]):
            store.save(task, measured)
            done += len(task.unit)
            progress(done, total)
        faults, notes = store.write_tables()
        notes += tuple(low_accuracies(plan, store.files))
    kept = len(plan.units) - len(missing)
    return Outcome(store.folder, len(plan.units), kept, faults, notes, time.monotonic() - start, outdated)
