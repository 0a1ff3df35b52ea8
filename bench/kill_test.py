"""Kill -9 at random moments: the tables must be those of an undisturbed run, byte for byte.

    python bench/kill_test.py [--kills 10] [--images 96] [--seed 0] [--out bench/results/kill_test.json]

A run of `locality bench` with two processes is killed, with all its processes, and restarted, as often as --kills says; then
it may finish. The first kill comes during start-up and the second when the plan has just been written, both before any unit
is finished; the third while the file of a unit is written, the last while the tables are; the others a random time after a
random number of units. A kill inside a write is repeated until it leaves an unfinished file. The test fails if one of these
moments was missed.

The suite has no [searches]: they store wall-clock seconds, which differ between any two runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TRIES = 10  # to kill a run inside a write
SUITE = """
models = ["shapes_cnn"]
methods = ["SM", "IG", "BIG"]
similarity = true
block = 2
gallery = 2
data = {{ name = "shapes", limit = {images} }}
robust = {{ attack = "pgd20", epsilon = "8/255", limit = 16, batch_size = 4 }}
"""


def started(suite: Path, out: Path) -> subprocess.Popen[bytes]:
    """A run in its own process group, so that a kill reaches its processes and no others."""
    words = [sys.executable, "-m", "locality", "bench", str(suite), "--out", str(out), "--processes", "2"]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finished_units(out: Path) -> int:
    return len(list((out / "units").glob("*.json")))


def hashes(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((out / "tables").iterdir())}


def undisturbed(suite: Path, out: Path) -> tuple[float, float]:
    """Seconds until the first unit was finished, and until the end."""
    begin, first = time.monotonic(), 0.0
    run = started(suite, out)
    while run.poll() is None:
        if not first and finished_units(out):
            first = time.monotonic() - begin
        time.sleep(0.05)
    _, error = run.communicate()
    if run.returncode:
        raise SystemExit(f"the undisturbed run failed:\n{error.decode()}")
    return first, time.monotonic() - begin


def unfinished_files(folder: Path) -> int:
    return len(list(folder.rglob("*.part")))


def killed_once(suite: Path, out: Path, moment: Callable[[], bool], delay: float = 0.0) -> dict[str, int | float | str]:
    """A run that is killed `delay` seconds after the moment has come."""
    before = finished_units(out)
    begin = time.monotonic()
    run = started(suite, out)
    while run.poll() is None and not moment():
        time.sleep(0.0002)  # writing a file takes a few milliseconds
    time.sleep(delay)
    ended = "killed" if run.poll() is None else "had finished"
    if ended == "killed":
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    return {
        "after_seconds": round(time.monotonic() - begin, 2),
        "units_before": before,
        "units_after": finished_units(out),
        "unfinished_units": unfinished_files(out / "units"),
        "unfinished_tables": unfinished_files(out / "tables"),
        "end": ended,
    }


def killed_run(
    suite: Path, out: Path, kills: int, units: int, start_up: float, unit_seconds: float, draw: random.Random
) -> Iterator[dict[str, int | float | str]]:
    """The kills, one after the other; one of the `units` takes `unit_seconds`."""
    yield killed_once(suite, out, lambda: True, draw.uniform(0, 0.2 * start_up))
    yield killed_once(suite, out, (out / "plan.json").is_file)
    yield from inside_a_write(suite, out, "units")
    for _ in range(kills - 4):
        enough = finished_units(out) + draw.randint(1, max(1, units // kills))
        yield killed_once(suite, out, lambda: finished_units(out) >= enough, draw.uniform(0, 2 * unit_seconds))  # noqa: B023
    yield from inside_a_write(suite, out, "tables")


def inside_a_write(suite: Path, out: Path, folder: str) -> Iterator[dict[str, int | float | str]]:
    """Kills until one leaves an unfinished file; those before it came too late."""
    for _ in range(TRIES):
        row = killed_once(suite, out, lambda: unfinished_files(out / folder) > 0)
        yield row
        if row[f"unfinished_{folder}"]:
            return


def missed(rows: list[dict[str, int | float | str]], kills: int) -> list[str]:
    """The moments listed at the top that were missed."""
    hit = {
        f"{kills} kills": sum(row["end"] == "killed" for row in rows) >= kills,
        "two kills before the first unit": [row["units_after"] for row in rows[:2]] == [0, 0],
        "a kill inside the write of a unit": any(row["unfinished_units"] for row in rows),
        "a kill inside the write of a table": any(row["unfinished_tables"] for row in rows),
    }
    return [moment for moment, there in hit.items() if not there]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="at least 4")
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = folder / "killed.toml"
        suite.write_text(SUITE.format(images=given.images))
        start_up, whole = undisturbed(suite, folder / "whole")
        units = finished_units(folder / "whole")
        print(f"undisturbed: {units} units, the first after {start_up:.1f} s, all after {whole:.1f} s", flush=True)
        out, unit_seconds = folder / "killed", (whole - start_up) / units
        rows: list[dict[str, int | float | str]] = []
        for row in killed_run(suite, out, given.kills, units, start_up, unit_seconds, draw):
            rows.append(row)
            print(f"kill {len(rows)}: {row}", flush=True)
        last = started(suite, out)
        _, error = last.communicate()
        if last.returncode:
            raise SystemExit(f"the last run failed:\n{error.decode()}")
        expected, after_kills = hashes(folder / "whole"), hashes(out)
    same = expected == after_kills
    kills = sum(row["end"] == "killed" for row in rows)
    print(f"{kills} kills; tables are {'identical' if same else 'DIFFERENT'}: {', '.join(expected)}")
    not_hit = missed(rows, given.kills)
    if not_hit:
        print(f"missed: {', '.join(not_hit)}; run it again, with more --images if needed")
    if given.out is not None:
        about: dict[str, object] = {
            "command": f"python bench/kill_test.py --kills {given.kills} --images {given.images} --seed {given.seed}"
        }
        about |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}", "units": units, "kills": kills}
        given.out.write_text(json.dumps(about | {"runs": rows, "identical": same, "sha256": expected}, indent=2) + "\n")
    if not same or not_hit:
        sys.exit(1)


if __name__ == "__main__":
    main()
