"""Kill -9 at random moments: the runner must end with the table of an undisturbed run, byte for byte.

    python bench/kill_test.py [--kills 10] [--images 96] [--seed 0] [--out bench/results/kill_test.json]

A run of `locality bench` with two processes is killed, with everything it started, and started again, until it was killed so
often; then it may finish. Moments are drawn from the undisturbed run: some during start-up and planning, most a random time
after a random number of units, and the last one while the tables are merged.
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
from pathlib import Path

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
    """A run in a process group of its own, so that what is killed is its own and nothing else."""
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


def killed_once(suite: Path, out: Path, units: int, delay: float) -> dict[str, object]:
    """A run that is killed some time after it has finished so many units; 0: after it was started."""
    before = finished_units(out)
    begin = time.monotonic()
    run = started(suite, out)
    while run.poll() is None and finished_units(out) < before + units:
        time.sleep(0.002)
    time.sleep(delay)
    ended = "killed" if run.poll() is None else "had finished"
    if ended == "killed":
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    seconds = round(time.monotonic() - begin, 2)
    leftovers = len(list(out.rglob("*.part"))) if out.exists() else 0
    row = {"after_seconds": seconds, "units_before": before, "units_after": finished_units(out)}
    return row | {"unfinished_files": leftovers, "end": ended}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
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
        share, each = units // given.kills, (whole - start_up) / units
        rows: list[dict[str, object]] = []
        for number in range(given.kills):
            target = draw.randint(0, share)
            delay = draw.uniform(0, 2 * each) if target else draw.uniform(0, start_up)
            if number + 1 == given.kills:
                target, delay = units - finished_units(folder / "killed"), draw.uniform(0, 0.05)
            rows.append(killed_once(suite, folder / "killed", target, delay))
            print(f"kill {len(rows)}: {rows[-1]}", flush=True)
        last = started(suite, folder / "killed")
        _, error = last.communicate()
        if last.returncode:
            raise SystemExit(f"the last run failed:\n{error.decode()}")
        expected, found = hashes(folder / "whole"), hashes(folder / "killed")
    same = expected == found
    kills = sum(row["end"] == "killed" for row in rows)
    print(f"{kills} kills; tables are {'identical' if same else 'DIFFERENT'}: {', '.join(expected)}")
    if given.out is not None:
        about = {"command": f"python bench/kill_test.py --kills {given.kills} --images {given.images} --seed {given.seed}"}
        about |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}", "units": units, "kills": kills}
        given.out.write_text(json.dumps(about | {"runs": rows, "identical": same, "sha256": expected}, indent=2) + "\n")
    if not same or kills < given.kills:
        sys.exit(1)


if __name__ == "__main__":
    main()
