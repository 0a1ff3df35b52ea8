"""A pool of processes: the task of a crashed worker is retried in smaller pieces, and one that takes too long is stopped.

Processes are spawned, because torch does not survive a fork. This module imports neither torch nor anything that does, so
that a process starts as fast as what it works with allows.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass
class _Worker(Generic[Task]):
    process: SpawnProcess
    pipe: Connection
    device: str
    task: Task | None = None
    ready: bool = False  # it has started and asked for work
    since: float = 0.0  # it has had its task


def in_processes(
    tasks: Iterable[Task],
    work: Callable[[Task, str], Result],
    devices: Sequence[str],
    *,
    smaller: Callable[[Task], Sequence[Task]],
    lost: Callable[[Task, str], Result],
    variables: Mapping[str, str],
    seconds: float | None = None,
    late: Callable[[Task], Result] | None = None,
) -> Generator[tuple[Task, Result], None, None]:
    """Yield each task with `work(task, device)` when it is finished, in any order, with one process per device.

    `work` must not raise. If its process crashes, the tasks of `smaller(task)` are tried next; if there are none, the result
    is `lost(task, how it ended)`. A task that takes longer than `seconds` is stopped; its result is `late(task)`. Processes
    start with these environment `variables`, and end when this one does.

    A process that crashes before it is ready was not crashed by its task, which is retried as it is; if that happens again
    and again, RuntimeError is raised.
    """
    waiting = deque(tasks)
    workers: list[_Worker[Task]] = [_started(work, device, variables) for device in devices[: len(waiting)]]
    early_crashes = 0  # since a process was last ready
    try:
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.task, worker.since = waiting.popleft(), time.monotonic()
                    with contextlib.suppress(BrokenPipeError):  # it crashed while idle: seen below
                        worker.pipe.send(worker.task)
            busy = [worker for worker in workers if worker.task is not None]
            ends = [] if seconds is None else [worker.since + seconds for worker in busy if worker.ready]
            patience = max(0.0, min(ends) - time.monotonic()) if ends else None
            ready = wait([worker.pipe for worker in busy], patience)
            for index, worker in enumerate(workers):
                task = worker.task
                if task is None or worker.pipe in ready or not _is_late(worker, seconds):
                    continue
                worker.process.kill()
                _ended(worker)
                workers[index] = _started(work, worker.device, variables)
                assert late is not None
                yield task, late(task)
            for pipe in ready:
                index = next(index for index, worker in enumerate(workers) if worker.pipe is pipe)
                worker = workers[index]
                assert worker.task is not None
                try:
                    message = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    end = _ended(worker)
                    early_crashes += not worker.ready
                    if early_crashes > 2 * len(workers) + 2:
                        raise RuntimeError(
                            f"every process crashed before it was ready ({end}): a script must call this under "
                            '`if __name__ == "__main__":`; processes=0 (--processes 0) needs no other process'
                        ) from None
                    workers[index] = _started(work, worker.device, variables)
                    again = smaller(worker.task) if worker.ready else (worker.task,)
                    if again:
                        waiting.extendleft(reversed(again))
                        continue
                    message = lost(worker.task, end)
                else:
                    if not worker.ready:  # its first message
                        worker.ready, worker.since, early_crashes = True, time.monotonic(), 0
                        continue
                finished, worker.task = worker.task, None
                yield finished, message
    finally:
        for worker in workers:
            worker.process.kill()  # its task will be done again
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _is_late(worker: _Worker[Task], seconds: float | None) -> bool:
    return worker.ready and seconds is not None and time.monotonic() - worker.since >= seconds


def _started(work: Callable[[Task, str], Result], device: str, variables: Mapping[str, str]) -> _Worker[Task]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, device), daemon=True)
    with _environment(variables):
        process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return _Worker(process, ours, device)


def _serve(pipe: Connection, work: Callable[[Task, str], Result], device: str) -> None:
    """Work on the tasks that come through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        pipe.send("ready")
        while True:
            pipe.send(work(pipe.recv(), device))


def _follow_parent() -> None:
    """End this process when its parent has ended, for whatever reason: nobody waits for its results."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _ended(worker: _Worker[Task]) -> str:
    worker.process.join()
    worker.pipe.close()
    code = worker.process.exitcode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
