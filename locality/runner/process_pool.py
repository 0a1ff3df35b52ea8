"""Work in other processes that survives their death: whoever dies takes one task with it, which is tried again, smaller.

Processes are spawned, because torch does not survive a fork. This module does not import torch, nor anything that does, so
that the start of a process is as quick as what it works with.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    place: str
    task: Task | None = None
    ready: bool = False  # it has come as far as asking for work


def in_processes(
    tasks: Iterable[Task],
    work: Callable[[Task, str], Result],
    places: Sequence[str],
    *,
    smaller: Callable[[Task], Task | None],
    lost: Callable[[Task, str], Result],
    variables: Mapping[str, str],
) -> Iterator[tuple[Task, Result]]:
    """Each task with `work(task, place)` as it is finished, in any order, by one process for every place.

    `work` must not raise. Where its process dies, `smaller(task)` is tried next; where that is None, the result is
    `lost(task, how it ended)`. Processes start with these environment `variables`, and end themselves when this one dies.

    A process that dies before it is ready was not killed by its task, which is kept as it is; where that happens again and
    again, RuntimeError says so.
    """
    waiting = deque(tasks)
    workers: list[_Worker[Task]] = [_started(work, place, variables) for place in places[: len(waiting)]]
    early_deaths = 0  # since one was last ready
    try:
        while waiting or any(worker.task is not None for worker in workers):
            for worker in workers:
                if worker.task is None and waiting:
                    worker.task = waiting.popleft()
                    with contextlib.suppress(BrokenPipeError):  # it died while idle: seen below
                        worker.pipe.send(worker.task)
            for pipe in wait([worker.pipe for worker in workers if worker.task is not None]):
                number = next(number for number, worker in enumerate(workers) if worker.pipe is pipe)
                worker = workers[number]
                assert worker.task is not None
                try:
                    told = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    end = _ended(worker)
                    early_deaths += not worker.ready
                    if early_deaths > 2 * len(workers) + 2:
                        raise RuntimeError(
                            f"every process died before it was ready to work ({end}): a script must call this under "
                            '`if __name__ == "__main__":`; processes=0 (--processes 0) works without others'
                        ) from None
                    workers[number] = _started(work, worker.place, variables)
                    again = smaller(worker.task) if worker.ready else worker.task
                    if again is not None:
                        waiting.appendleft(again)
                        continue
                    told = lost(worker.task, end)
                else:
                    if not worker.ready:  # the first thing that a process tells
                        worker.ready, early_deaths = True, 0
                        continue
                task, worker.task = worker.task, None
                yield task, told
    finally:
        for worker in workers:
            worker.process.kill()  # whatever it is doing will be done again
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _started(work: Callable[[Task, str], Result], place: str, variables: Mapping[str, str]) -> _Worker[Task]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, place), daemon=True)
    with _environment(variables):
        process.start()
    theirs.close()  # so that its death is the end of the pipe
    return _Worker(process, ours, place)


def _serve(pipe: Connection, work: Callable[[Task, str], Result], place: str) -> None:
    """Do what comes through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):
        pipe.send("ready")
        while True:
            pipe.send(work(pipe.recv(), place))


def _follow_parent() -> None:
    """End this process when its parent is gone, however that happened: nobody waits for its results."""
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
