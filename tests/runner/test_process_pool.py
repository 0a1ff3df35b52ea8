"""Processes that crash: their tasks are retried, and no process outlives its parent."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from pool_tasks import PATIENCE, smaller, work

from locality.runner.process_pool import in_processes


def run(*tasks: str, devices: tuple[str, ...] = ("a", "b")) -> dict[str, str]:
    found = in_processes(
        tasks, work, devices, smaller=smaller, lost=lambda task, end: f"lost: {end}", variables={"POOL_TEST": "7"}
    )
    return dict(found)


def test_tasks_go_to_every_device_with_its_environment() -> None:
    found = run(*(f"task {number}" for number in range(20)))
    assert set(found) == {f"task {number}" for number in range(20)}
    assert {text.split(" on ")[1].split()[0] for text in found.values()} == {"a", "b"}
    assert all("with 7" in text for text in found.values())
    assert len({text.rsplit(maxsplit=1)[1] for text in found.values()}) == 2
    assert "POOL_TEST" not in os.environ


def test_a_crashed_process_is_replaced_and_its_task_retried_smaller() -> None:
    found = run("one", "die!", "two", "exit!!", "three", devices=("a",))
    assert found["die"].startswith("die on a")  # under its smaller name
    assert found["exit"] == "lost: exit code 3"
    assert {name for name, text in found.items() if text.startswith(name)} == {"one", "die", "two", "three"}


def test_a_task_that_hangs_is_stopped_and_the_others_go_on() -> None:
    found = in_processes(
        ["sleep", "one", "two"],
        work,
        ["a"],
        smaller=smaller,
        lost=lambda task, end: f"lost: {end}",
        variables={},
        seconds=3,
        late=lambda task: "late",
    )
    results = dict(found)
    assert results["sleep"] == "late"
    assert all(results[name].startswith(f"{name} on a") for name in ("one", "two"))


def test_tasks_that_kill_every_process_do_not_stop_those_after_them() -> None:
    """A first model that does not fit into memory: its units are lost one by one, the next model is measured."""
    found = run(*(f"exit {number}!" for number in range(9)), "one", devices=("a",))
    assert [found[f"exit {number}"] for number in range(9)] == ["lost: exit code 3"] * 9
    assert found["one"].startswith("one on a")


def test_processes_that_cannot_start_are_an_error(tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__":` runs itself again in every process, which therefore crashes at once."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import pool_tasks as pool
from locality.runner.process_pool import in_processes

print(list(in_processes(["one"], pool.work, ["a"], smaller=pool.smaller, lost=max, variables={{}})))
"""
    script = tmp_path / "unguarded.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "every process crashed before it was ready (exit code 1): a script must call this under" in done.stderr


def test_nothing_to_do_starts_nothing() -> None:
    assert run() == {}


def test_stopping_early_ends_the_processes() -> None:
    before = set(psutil.Process().children())
    found = in_processes(["one", "sleep"], work, ["a", "b"], smaller=smaller, lost=lambda task, end: end, variables={})
    assert next(found)[0] == "one"
    started = set(psutil.Process().children()) - before
    assert started
    found.close()
    assert not [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import pool_tasks as pool
from locality.runner.process_pool import in_processes

if __name__ == "__main__":
    list(in_processes(["sleep", "sleep"], pool.work, ["a", "b"], smaller=pool.smaller, lost=max, variables={{}}))
"""
    script = tmp_path / "parent.py"
    script.write_text(code)
    with (tmp_path / "stderr.txt").open("wb") as errors:
        parent = subprocess.Popen([sys.executable, str(script)], stderr=errors)
    limit = time.monotonic() + PATIENCE
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert parent.poll() is None, (tmp_path / "stderr.txt").read_text()
        assert time.monotonic() < limit
        time.sleep(0.05)
        children = [one for one in psutil.Process(parent.pid).children() if "spawn_main" in " ".join(one.cmdline())]
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs(children, timeout=PATIENCE)[1]
