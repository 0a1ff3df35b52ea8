"""The local engine: units on this machine, one process for every few cores or for every device.

Each process gets its share of the threads and no more, because two processes with all threads each are slower than one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from locality.runner.plan import Task
from locality.runner.process_pool import in_processes
from locality.runner.unit import Measured, measure, smaller, unit_ids

# What libraries under torch, numpy and scipy read when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup/cpu.max")


def run_locally(
    tasks: Iterable[Task],
    processes: int | None = None,
    threads: int = 1,
    devices: Sequence[str] = ("cpu",),
    work: Callable[[Task], Any] = measure,
) -> Iterator[tuple[Task, Any]]:
    """Give each task with what `work` makes of it, a `Measured`, as it is finished, in any order.

    `processes` is as many as the cores allow, or one a device, where it is not given; 0 works in this process.
    """
    if processes == 0:
        for task in tasks:
            yield task, on_device(work, task, devices[0])
        return
    count = processes or default_processes(threads, devices)
    places = [devices[number % len(devices)] for number in range(count)]
    variables = {name: str(threads) for name in THREAD_VARIABLES}
    yield from in_processes(
        tasks, functools.partial(on_device, work), places, smaller=smaller, lost=_lost, variables=variables
    )


def on_device(work: Callable[[Task], Any], task: Task, device: str) -> Any:
    """What `work` makes of the task on that device."""
    return work(replace(task, device=device))


def default_processes(threads: int, devices: Sequence[str] = ("cpu",)) -> int:
    """One process a device; on the CPU as many as keep every core busy once."""
    return len(devices) if not devices[0].startswith("cpu") else max(1, available_cores() // threads)


def available_cores() -> int:
    """The cores that this process may use: of its affinity, and of its container's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP.read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroups, or no limit ("max")
        return cores


def available_devices() -> list[str]:
    """Every CUDA device, else the CPU."""
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]


def _lost(task: Task, end: str) -> Measured:
    return Measured.nothing(unit_ids(task), f"its process died twice ({end}): is there enough memory?")
