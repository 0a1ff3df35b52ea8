"""`run_suite`: a suite from its plan to its tables, going on where an earlier run stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from locality.progress import Progress
from locality.runner.local_engine import available_devices, checked_devices, run_locally
from locality.runner.plan import Plan, Task, make_plan
from locality.runner.ray_engine import run_on_ray
from locality.runner.store import Store
from locality.runner.suite_file import Suite
from locality.runner.unit import Measured

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Machine:
    """Where units run. It does not change the numbers, but for rounding where `threads` differ.

    `processes` None: as many as keep every core (or every device) busy once; 0: this process. `gpus` is of each unit on Ray.
    """

    engine: Engine = "local"
    processes: int | None = None
    threads: int = 1
    devices: tuple[str, ...] = ("cpu",)
    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise ValueError(f"`engine` must be local or ray, got {self.engine!r}")
        if self.threads < 1:
            raise ValueError(f"`threads` must be at least 1, got {self.threads}")
        if self.processes is not None and self.processes < 0:
            raise ValueError(f"`processes` must not be negative, got {self.processes}")
        if self.engine == "local" and self.address is not None:
            raise ValueError("`address` is that of a Ray cluster: pass engine='ray' (--engine ray) beside it")
        if self.engine == "ray" and self.processes == 0:
            raise ValueError("`processes` must be at least 1 for Ray, got 0")
        if self.gpus < 0:
            raise ValueError(f"`gpus` must not be negative, got {self.gpus}")

    @property
    def device(self) -> str:
        """The kind of device that numbers are computed on, which they depend on."""
        if self.engine == "ray":
            return "cuda" if self.gpus else "cpu"
        return self.devices[0].partition(":")[0]

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Measured]]:
        if self.engine == "ray":
            return run_on_ray(tasks, self.address, self.processes, self.threads, self.gpus)
        return run_locally(tasks, self.processes, self.threads, self.devices)


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a run ended."""

    folder: Path
    units: int
    kept: int  # finished by earlier runs
    faults: pd.DataFrame
    notes: tuple[str, ...]
    seconds: float


def machine_here(
    engine: str = "local",
    processes: int | None = None,
    threads: int = 1,
    device: str | None = None,
    address: str | None = None,
    gpus: float | None = None,
) -> Machine:
    """The machine behind command-line options: every CUDA device, or every core, unless told otherwise."""
    devices = tuple(available_devices()) if device is None else checked_devices(device)
    return Machine(engine, processes, threads, devices, address, gpus or 0.0)  # type: ignore[arg-type]


def run_suite(
    suite: Suite | Plan,
    out: str | Path,
    machine: Machine | None = None,
    progress: Progress = lambda done, total: None,
) -> Outcome:
    """Measure what is not there yet, keep it unit by unit, and merge the tables; killed at any time, the next call goes on.

    `progress(done, total)` counts the images of units still to be measured. The tables are the same to the last digit
    whatever was killed and in whatever order units finished, as long as each unit gets as many threads.
    """
    start = time.monotonic()
    machine = machine or Machine()
    plan = suite if isinstance(suite, Plan) else make_plan(suite, device=machine.device)
    store = Store(Path(out))
    with store.opened():
        store.write_plan(plan)
        left = [unit for unit in plan.units if store.state(unit.key) != "finished"]
        total, done = sum(map(len, left)), 0
        progress(done, total)
        for task, measured in machine.run([plan.task(unit, machine.threads) for unit in left]):
            store.save(task, measured)
            done += len(task.unit)
            progress(done, total)
        faults, notes = store.write_tables()
    return Outcome(store.folder, len(plan.units), len(plan.units) - len(left), faults, notes, time.monotonic() - start)
