"""Start-up of `locality bench`: a dry run and a resume of a finished suite of many units, and a suite that is refused.

    python bench/speed/resume.py [--units 1000] [--repeats 3] [--out bench/results/resume.json]

The suite has one image per unit. Its units are measured once; then each command runs in a process of its own. Seconds are
those of the processor (user and system), the least of all repeats; wall-clock seconds depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from measuring import about

SUITE = """
models = ["shapes_cnn"]
methods = ["SM"]
search = "none"
block = 1
data = {{ name = "shapes", limit = {units}, options = {{ count = {units} }} }}
"""


def seconds(words: list[str], code: int = 0) -> tuple[float, float]:
    """Of the processor and of the clock."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "locality", *words], capture_output=True, text=True)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        raise SystemExit(done.stderr)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        suite, broken, out = Path(name) / "many.toml", Path(name) / "broken.toml", Path(name) / "out"
        suite.write_text(SUITE.format(units=given.units))
        broken.write_text('models = ["shapes_cn"]')
        seconds(["bench", str(suite), "--out", str(out), "--processes", "0"])
        units = len(list((out / "units").glob("*.json")))
        commands = {
            "--help": (["bench", "--help"], 0),
            "a suite that is refused": (["bench", str(broken)], 2),
            "dry run of finished units": (["bench", str(suite), "--out", str(out), "--dry-run"], 0),
            "resume of finished units": (["bench", str(suite), "--out", str(out), "--processes", "0"], 0),
        }
        for title, (words, code) in commands.items():
            runs = [seconds(words, code) for _ in range(given.repeats)]
            rows[title] = {
                "processor": round(min(run[0] for run in runs), 2),
                "clock": round(min(run[1] for run in runs), 2),
            }
            print(title, rows[title], flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps({**about(sys.argv, ["torch"]), "units": units, "seconds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
