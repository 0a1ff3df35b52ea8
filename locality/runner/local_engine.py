"""The local engine: units on this machine, in one process per core or per device.

Each process gets its share of the threads, because two processes with all threads each are slower than one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from locality.errors import ArgumentError
from locality.runner.plan import Task
from locality.runner.process_pool import in_processes
from locality.runner.unit import Measured, measure, smaller, stopped, unit_ids, whole_units

# Read by the libraries under torch, numpy and scipy when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MAX_LOST = 2  # images or pieces of a unit that crashed their processes, before the rest is not tried one by one
CGROUP = Path("/sys/fs/cgroup/cpu.max")


def run_locally(
    tasks: Iterable[Task],
    processes: int | None = None,
    threads: int = 1,
    devices: Sequence[str] = ("cpu",),
    work: Callable[[Task], Any] = measure,
    minutes: float | None = None,
) -> Iterator[tuple[Task, Any]]:
    """Yield each task with the result of `work(task)`, by default a `Measured`, when it is finished, in any order.

    `processes` is by default the number of cores divided by `threads`, or one per device; 0 works in this process. There, a
    crash or a unit that never ends cannot be handled. Elsewhere, a unit that takes longer than `minutes` is stopped and
    listed, and one whose process crashed is measured in halves, so that an image that kills its process costs that image.
    """
    if processes == 0:
        for task in tasks:
            yield task, on_device(work, task, devices[0])
        return
    count = processes or default_processes(threads, devices)
    worker_devices = [devices[index % len(devices)] for index in range(count)]
    variables = {name: str(threads) for name in THREAD_VARIABLES}
    lost_pieces: Counter[str] = Counter()

    def halves(task: Task) -> Sequence[Task]:
        """None for other work than measuring, and for a unit that has cost many processes already."""
        return smaller(task) if work is measure and lost_pieces[task.unit.key] < MAX_LOST else ()

    def lost(task: Task, end: str) -> Measured:
        lost_pieces[task.unit.key] += 1
        return Measured.nothing(unit_ids(task), f"its process crashed ({end}): is there enough memory?")

    results = in_processes(
        tasks,
        functools.partial(on_device, work),
        worker_devices,
        smaller=halves,
        lost=lost,
        variables=variables,
        seconds=None if minutes is None else 60 * minutes,
        late=lambda task: stopped(task, minutes or 0.0),
    )
    with contextlib.closing(results):
        yield from whole_units(results)


def on_device(work: Callable[[Task], Any], task: Task, device: str) -> Any:
    """The result of `work(task)` on that device."""
    return work(replace(task, device=device))


def default_processes(threads: int, devices: Sequence[str] = ("cpu",)) -> int:
    """One process per device; on the CPU, one per `threads` cores."""
    return len(devices) if not devices[0].startswith("cpu") else max(1, available_cores() // threads)


def available_cores() -> int:
    """The number of cores that this process may use, by its affinity and its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP.read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroups, or no limit ("max")
        return cores


def available_devices() -> list[str]:
    """Every CUDA device, else the CPU."""
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]


def checked_devices(text: str) -> tuple[str, ...]:
    """The devices between the commas; they must exist and be of one kind, because numbers depend on it.

    >>> checked_devices("cpu, cpu")
    ('cpu', 'cpu')
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len({name.partition(":")[0] for name in names}) > 1:
        raise ArgumentError("device", "devices of one kind", text, "numbers from another kind differ by rounding")
    for name in names:
        problem = _device_problem(name)
        if problem is not None:
            raise ArgumentError("device", "a device that torch has here, such as cpu", name, problem)
    if not names:
        raise ArgumentError("device", "at least one device, such as cpu", text)
    return names


def _device_problem(name: str) -> str | None:
    """Why torch cannot use the device. CUDA devices are counted, not opened, which would take memory in this process."""
    try:
        device = torch.device(name)
        if device.type == "cuda":
            count = torch.cuda.device_count()
            return None if (device.index or 0) < count else f"torch sees {count} CUDA devices"
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].rstrip(".")
    return None
