"""Attacks on what locality stores, downloads and reads, counted. Each must be held.

    python bench/attack_test.py [--only kills,axes,flips,stale,downloads,hostile] [--kills 102] [--flips 400] [--seed 0]

- kills: `locality bench`, `robust` and `train` are killed (SIGKILL) at random moments; the results must be those of an
  undisturbed run, byte for byte.
- axes: the same for a small training per loss, regulariser, weight shift, average and step size, and with a monitor.
- flips: one bit of a stored file is inverted; it must be noticed or harmless.
- stale: weights, code, data or settings change after a unit was stored; it must be measured again.
- downloads: a server cuts, stalls, lies and changes its file, and links and pipes lie in the folder; the right bytes arrive,
  or one sentence says why not, and nothing else is left behind.
- hostile: files made to break a reader go through the commands; each ends with one sentence and exit code 2.

The result goes to bench/results/attack_test.json; sections that did not run keep what is there. The exit code is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.counted_tests import counted
from attacks.flips import flips
from attacks.kill_targets import targets
from attacks.killed_axes import axis_targets
from attacks.kills import kill_target

RESULT = Path(__file__).parent / "results/attack_test.json"
LISTS = {  # section ↦ file and test with the list of cases
    "stale": ("tests/runner/test_stale_changes.py", "test_a_change_is_noticed"),
    "downloads": ("tests/test_download_tricks.py", "test_a_trick_is_held"),
    "hostile": ("tests/cli/test_hostile_files.py", "test_a_hostile_file_is_one_sentence"),
}
Section = Callable[[argparse.Namespace], tuple[bool, dict[str, Any]]]  # whether all was held, and the counts


def say(text: str) -> None:
    print(text, flush=True)


def kills(given: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    draw = random.Random(given.seed)
    tallies = {}
    with tempfile.TemporaryDirectory() as name:
        several = targets(Path(name))
        for index, target in enumerate(several):
            share = given.kills // len(several) + (index < given.kills % len(several))
            tallies[target.name] = kill_target(target, Path(name), share, draw, say)
    total = sum(tally.kills for tally in tallies.values())
    held = total >= given.kills and all(tally.held for tally in tallies.values())
    return held, {"kills": total} | {name: tally.to_json() for name, tally in tallies.items()}


def killed_axes(given: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        tallies = {
            target.name: kill_target(target, Path(name), given.axis_kills, draw, say)
            for target in axis_targets()
            if not given.axes or target.name in given.axes
        }
    total = sum(tally.kills for tally in tallies.values())
    inside = sum(tally.inside_a_write for tally in tallies.values())
    failed = [name for name, tally in tallies.items() if tally.different or tally.failures or not tally.finished_runs]
    counts = {"axes": len(tallies), "kills": total, "inside_a_write": inside, "failed": failed, "names": list(tallies)}
    return not failed and total == given.axis_kills * len(tallies) and inside > 0, counts


def flipped_bits(given: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    verdicts = flips(given.flips, given.seed)
    held = verdicts["noticed"] + verdicts["harmless"] == given.flips and not verdicts["tables that differ after repair"]
    return held, {"flips": given.flips, **verdicts}


def listed(section: str) -> Section:
    def run(given: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
        counts = counted(*LISTS[section])
        return bool(counts["cases"]) and not counts["failed"], counts

    return run


SECTIONS: dict[str, Section] = {"kills": kills, "axes": killed_axes, "flips": flipped_bits} | {
    name: listed(name) for name in LISTS
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--kills", type=int, default=102, help="over all three commands")
    parser.add_argument("--axes", nargs="*", metavar="NAME", help="trainings of `axes`, such as loss-rat; by default all")
    parser.add_argument("--axis-kills", type=int, default=4, help="of each training of `axes`")
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    chosen = given.only.split(",")
    unknown = sorted(set(chosen) - set(SECTIONS))
    if unknown:
        parser.error(f"--only has {', '.join(SECTIONS)}, got {', '.join(unknown)}")
    results = json.loads(given.out.read_text()) if given.out.is_file() else {}
    failed = []
    for name in chosen:
        begin = time.monotonic()
        held, counts = SECTIONS[name](given)
        minutes = round((time.monotonic() - begin) / 60, 1)
        results[name] = {
            "all held": held,
            "seed": given.seed,
            "minutes": minutes,
            "python": platform.python_version(),
            **counts,
        }
        shown = {key: value for key, value in counts.items() if isinstance(value, int)} | {
            "failed": counts.get("failed", [])
        }
        say(f"{name}: {'held' if held else 'FAILED'} in {minutes} min: {shown}")
        failed += [] if held else [name]
        given.out.write_text(json.dumps({key: results[key] for key in SECTIONS if key in results}, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
