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


def checked_devices(text: str) -> tuple[str, ...]:
    """The devices between the commas, each of which works here; of one kind, because numbers depend on it.

    >>> checked_devices("cpu, cpu")
    ('cpu', 'cpu')
    >>> checked_devices("cpu,cuda:0")
    Traceback (most recent call last):
    ValueError: `device` must name devices of one kind, got 'cpu,cuda:0': run one kind, numbers of another differ by rounding
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len({name.partition(":")[0] for name in names}) > 1:
        raise ValueError(
            f"`device` must name devices of one kind, got {text!r}: run one kind, numbers of another differ by rounding"
        )
    for name in names:
        problem = _device_problem(name)
        if problem is not None:
            raise ValueError(f"`device` must be one that torch has here, such as cpu, got {name!r}: {problem}")
    if not names:
        raise ValueError(f"`device` must name at least one device, such as cpu, got {text!r}")
    return names


def _device_problem(name: str) -> str | None:
    """Why torch cannot work there. CUDA devices are counted, not used: that would take memory of each in this process."""
    try:
        device = torch.device(name)
        if device.type == "cuda":
            count = torch.cuda.device_count()
            return None if (device.index or 0) < count else f"torch sees {count} CUDA devices"
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].rstrip(".")
    return None


def _lost(task: Task, end: str) -> Measured:
    return Measured.nothing(unit_ids(task), f"its process died twice ({end}): is there enough memory?")
