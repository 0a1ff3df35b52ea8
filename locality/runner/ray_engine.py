"""The Ray engine: the same units on a Ray cluster. Needs the extra `ray`.

Every machine of the cluster needs the same versions, the weights and the images; a unit that finds others than planned is a
fault. Only the driver writes tables, so no shared file system is needed. Ray runs what anybody who reaches its ports sends;
a cluster that is started here therefore listens on loopback only.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from locality.errors import ArgumentError
from locality.runner.local_engine import MAX_LOST
from locality.runner.plan import Task
from locality.runner.unit import Measured, measure, smaller, stopped, unit_ids, whole_units

RETRIES = 3  # by Ray itself, of a unit whose worker or machine crashed
CONNECT_SECONDS = 5.0  # in which a cluster's head must answer; Ray itself would wait for minutes
MAX_REASON = 300  # characters of an error of Ray's
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": clusters of one machine, on 127.0.0.1
EXIT_SECONDS = 1.0  # in which a worker sends that its unit was stopped, before it ends
QUEUED = 2  # units submitted per unit that can run, so that the next one waits at its worker


def run_on_ray(
    tasks: Iterable[Task],
    address: str | None = None,
    processes: int | None = None,
    threads: int = 1,
    gpus: float = 0.0,
    minutes: float | None = None,
) -> Iterator[tuple[Task, Measured]]:
    """Measure the tasks on a cluster and yield each with its result when it is finished, in any order.

    `address` is that of a running cluster ("auto" finds one here); without it, a cluster of `processes` workers is started
    on this machine, and stopped at the end. Each unit takes `threads` CPUs and `gpus` GPUs (0.5: two units share one). One
    that takes longer than `minutes` is stopped and listed.
    """
    ray = load_ray()
    ours = not ray.is_initialized()
    if ours:
        _start(ray, address, processes, threads)
    try:
        if address is None:  # another cluster may grow; this one would wait for ever
            _check_size(ray, threads, gpus)
        yield from whole_units(_finished(ray, deque(tasks), threads, gpus, minutes))
    finally:
        if ours:
            ray.shutdown()


def load_ray() -> Any:
    """The package, or an error that says how to install it."""
    try:
        return import_module("ray")
    except ImportError:
        raise ValueError("`--engine ray` needs Ray, which is not installed: pip install 'locality[ray]'") from None


def _start(ray: Any, address: str | None, processes: int | None, threads: int) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        # "local": without it, Ray joins whatever RAY_ADDRESS names or already runs here.
        count = None if processes is None else processes * threads
        with _loopback_only():
            ray.init(address="local", include_dashboard=False, num_cpus=count, **options)
        _check_loopback(ray)
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to the network
    _check_address(address)
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        raise ArgumentError("--address", "the address of a running Ray cluster", address, str(error)) from error


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Inside the block Ray starts clusters that listen on 127.0.0.1, as on macOS and Windows, and reports no usage."""
    ours = {LOOPBACK_VARIABLE: "0", "RAY_USAGE_STATS_ENABLED": "0"}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        constants = import_module("ray._private.ray_constants")  # has read the variable when Ray was imported
        clusters, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        constants = None  # of another version; `_check_loopback` notices
    try:
        yield
    finally:
        if constants is not None:
            constants.ENABLE_RAY_CLUSTER = clusters  # type: ignore[attr-defined]
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_loopback(ray: Any) -> None:
    address = ray.util.get_node_ip_address()
    if not ipaddress.ip_address(address).is_loopback:
        ray.shutdown()
        raise ValueError(
            f"Ray {ray.__version__} listens on {address}, where others could run code: install another version of Ray, or "
            "start a cluster of your own and pass --address"
        )


def _check_address(address: str | None) -> None:
    """Raise if nothing answers at host:port or ray://host:port; other forms, such as "auto", are left to Ray."""
    host_and_port = re.fullmatch(r"(?:ray://)?\[?([^/\]]+?)\]?:(\d+)", address or "")
    if host_and_port is None:
        return
    try:
        socket.create_connection((host_and_port[1], int(host_and_port[2])), CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        hint = f"nothing answers there ({error}); start one with `ray start --head`, or leave it out"
        raise ArgumentError("--address", "the address of a running Ray cluster", address, hint) from error


def _check_size(ray: Any, threads: int, gpus: float) -> None:
    resources = ray.cluster_resources()
    for option, kind, requested in (("--threads", "CPU", threads), ("--gpus", "GPU", gpus)):
        available = resources.get(kind, 0.0)
        if available < requested:
            expected = f"at most the {available:g} {kind}s of this machine"
            raise ArgumentError(option, expected, requested, "pass a smaller number, or --address of a cluster")


def _finished(
    ray: Any, waiting: deque[Task], threads: int, gpus: float, minutes: float | None
) -> Iterator[tuple[Task, Measured]]:
    run = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=RETRIES, name="locality unit")(measure_in_time)
    device = "cuda" if gpus else "cpu"
    running: dict[Any, Task] = {}
    lost: Counter[str] = Counter()
    while waiting or running:
        while waiting and len(running) < QUEUED * _slots(ray, threads, gpus):
            task = waiting.popleft()
            running[run.remote(replace(task, device=device), minutes)] = task
        (done,), _ = ray.wait(list(running), num_returns=1)
        task = running.pop(done)
        try:
            measured: Measured = ray.get(done)
        except ray.exceptions.RayError as error:
            again = smaller(task) if lost[task.unit.key] < MAX_LOST else ()
            if again:
                waiting.extendleft(reversed(again))
                continue
            lost[task.unit.key] += 1
            reason = " ".join(str(error).split())[:MAX_REASON]
            measured = Measured.nothing(
                unit_ids(task), f"the cluster could not measure it ({type(error).__name__}: {reason})"
            )
        yield task, measured


def measure_in_time(task: Task, minutes: float | None) -> Measured:
    """`measure`, or a fault if it takes longer than `minutes`; then this worker ends, because a thread cannot be stopped.

    The worker keeps the time, because the driver does not know when a queued unit starts. A unit that Ray gives to the
    worker before it ends is retried by Ray.
    """
    result: Future[Measured] = Future()

    def work() -> None:
        try:
            result.set_result(measure(task))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return result.result(None if minutes is None else 60 * minutes)
    except TimeoutError:
        if result.done():  # a TimeoutError of its own
            raise
        threading.Timer(EXIT_SECONDS, os._exit, (1,)).start()
        assert minutes is not None
        return stopped(task, minutes)


def _slots(ray: Any, threads: int, gpus: float) -> int:
    """The number of units that the cluster can run at once; queried each time, because clusters grow and shrink."""
    resources = ray.cluster_resources()
    slots = resources.get("CPU", 0.0) / threads
    if gpus:
        slots = min(slots, resources.get("GPU", 0.0) / gpus)
    return max(1, int(slots))
