"""The Ray engine: the same units on a Ray cluster. Needs the extra `ray`.

Every machine of the cluster needs the same versions, the weights and the images; a unit that finds others than planned says
so instead of measuring. Tables travel back to the driver, which alone writes: no shared file system is needed.
"""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from locality.runner.plan import Task
from locality.runner.unit import Measured, measure, smaller, unit_ids

RETRIES = 3  # of a unit whose worker or machine died, by Ray itself
REACHED_WITHIN = 5.0  # seconds in which a cluster's head must answer; Ray itself would wait for minutes
QUEUED = 2  # units in flight for each that can run: the next one waits where it will run


def run_on_ray(
    tasks: Iterable[Task],
    address: str | None = None,
    processes: int | None = None,
    threads: int = 1,
    gpus: float = 0.0,
) -> Iterator[tuple[Task, Measured]]:
    """Measure the tasks on a cluster and give each with its result as it is finished, in any order.

    `address` is that of a running cluster ("auto" finds one here); without it a cluster of `processes` workers is started on
    this machine, and stopped in the end. Each unit asks for `threads` CPUs and `gpus` GPUs (0.5: two units share one).
    """
    ray = load_ray()
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address, processes, threads)
    try:
        if address is None:  # a cluster elsewhere may grow; this one would wait for ever
            _check_size(ray, threads, gpus)
        yield from _finished(ray, deque(tasks), threads, gpus)
    finally:
        if ours:
            ray.shutdown()


def load_ray() -> Any:
    """The package, or an error that says how to get it."""
    try:
        return import_module("ray")
    except ImportError:
        raise ValueError("`--engine ray` needs Ray, which is not here: pip install 'locality[ray]'") from None


def _start(ray: Any, address: str | None, processes: int | None, threads: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing goes to the network unasked
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        options["address"] = address
    else:
        options |= {"include_dashboard": False, "num_cpus": None if processes is None else processes * threads}
    _check_address(address)
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise ValueError(f"`--address` must be that of a running Ray cluster, got {address!r}: {error}") from error


def _check_address(address: str | None) -> None:
    """Raise if nothing answers at host:port or ray://host:port; other forms, such as "auto", are Ray's to judge."""
    found = re.fullmatch(r"(?:ray://)?\[?([^/\]]+?)\]?:(\d+)", address or "")
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), REACHED_WITHIN).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"`--address` must be that of a running Ray cluster, got {address!r}, where nothing answers ({error}): "
            "start one there with `ray start --head`, or leave it out"
        ) from error


def _check_size(ray: Any, threads: int, gpus: float) -> None:
    there = ray.cluster_resources()
    for option, kind, asked in (("--threads", "CPU", threads), ("--gpus", "GPU", gpus)):
        most = there.get(kind, 0.0)
        if most < asked:
            raise ValueError(
                f"`{option}` must not ask for more than the {most:g} {kind}s of this machine, got {asked:g}: "
                "ask for fewer, or pass --address of a cluster"
            )


def _finished(ray: Any, waiting: deque[Task], threads: int, gpus: float) -> Iterator[tuple[Task, Measured]]:
    run = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=RETRIES, name="locality unit")(measure)
    device = "cuda" if gpus else "cpu"
    running: dict[Any, Task] = {}
    while waiting or running:
        while waiting and len(running) < QUEUED * _slots(ray, threads, gpus):
            task = waiting.popleft()
            running[run.remote(replace(task, device=device))] = task
        (done,), _ = ray.wait(list(running), num_returns=1)
        task = running.pop(done)
        try:
            measured: Measured = ray.get(done)
        except ray.exceptions.RayError as error:
            again = smaller(task)
            if again is not None:
                waiting.appendleft(again)
                continue
            reason = " ".join(str(error).split())[:300]
            measured = Measured.nothing(
                unit_ids(task), f"the cluster could not measure it ({type(error).__name__}: {reason})"
            )
        yield task, measured


def _slots(ray: Any, threads: int, gpus: float) -> int:
    """How many units the cluster can run at once; asked anew each time, because clusters grow and shrink."""
    there = ray.cluster_resources()
    slots = there.get("CPU", 0.0) / threads
    if gpus:
        slots = min(slots, there.get("GPU", 0.0) / gpus)
    return max(1, int(slots))
