"""The work of processes in tests; a module of its own, because they import it by name."""

import os
import signal
import time

PATIENCE = 300  # seconds: tests may run beside other work


def work(task: str, device: str) -> str:
    """A task is a command; a smaller one has fewer exclamation marks."""
    if task.startswith("die") and task.endswith("!"):
        os.kill(os.getpid(), signal.SIGKILL)
    if task.startswith("exit"):
        os._exit(3)
    if task.startswith("sleep"):
        time.sleep(PATIENCE)
    return f"{task} on {device} with {os.environ.get('POOL_TEST')} in {os.getpid()}"


def smaller(task: str) -> tuple[str, ...]:
    return (task[:-1],) if task.endswith("!") else ()
