"""Flipped bits in what locality has stored: each must be noticed or harmless.

One bit of one file is inverted, then the file is read again. The files are the units, the plan and the merged tables of a
benchmark, the state of a training run, and the store of `locality robust`. "noticed": the unit or batch counts as missing,
or one sentence says that the file is damaged. "harmless": the same is read as before. "wrong": other numbers are read.
"stopped": the next run of a benchmark could not go on.

In the end the benchmark runs over a folder in which every unit has a flipped bit: its tables must be those of the first run.
"""

from __future__ import annotations

import functools
import hashlib
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from locality.results.folder import read_results
from locality.robustness.attack_cache import AttackCache
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.training.run_state import RunState, read_state, write_state

SUITE = Suite("attacked", (ModelChoice("shapes_cnn"),), DataChoice("shapes", limit=6), ("SM",), block=2)
HERE = Machine(processes=0)
Read = Callable[[], Any]  # what is stored; None or an error where it is damaged


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def flip_a_bit(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def stored_results(folder: Path, units: int) -> Any:
    """All numbers in the folder as text; None if some units are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = read_results(folder)
    if results.provenance["units"]["finished"] != units:
        return None
    return [results.name, dict(results.provenance), {name: table.to_json() for name, table in results.items()}]


def made_files(folder: Path) -> list[tuple[Path, Read]]:
    """The files to attack, each with the function that reads it."""
    bench, state, store = folder / "bench", folder / "state.pt", AttackCache(folder / "batches")
    units = run_suite(SUITE, bench, HERE).units
    weights = {"weight": torch.rand(20, 20), "bias": torch.rand(20)}
    write_state(RunState(7, weights, {"lr": 0.1}, {"average": {"decay": 0.99}}, 12.5, {"name": "small"}, "f" * 64), state)
    for name in "abc":
        store.save(name, {"survived": [True, False, True], "steps": [3, 1, 20], "margin": [0.25, -0.5, 1.0]})
    files: list[tuple[Path, Read]] = [(state, lambda: repr(read_state(state)))]
    files += [(path, functools.partial(store.load, path.stem)) for path in sorted((folder / "batches").iterdir())]
    whole = [*sorted((bench / "units").iterdir()), bench / "plan.json"]
    files += [(path, lambda: stored_results(bench, units)) for path in whole]
    files += [(path, lambda: stored_results(bench / "tables", units)) for path in sorted((bench / "tables").iterdir())]
    return files


def judged(path: Path, read: Read, before: Any) -> str:
    try:
        after = read()
    except ValueError as error:
        if path.parent.name == "units" or ("damaged" not in str(error) and "another version" not in str(error)):
            return "stopped"
        return "noticed"
    if after is None:
        return "noticed"
    return "harmless" if after == before else "wrong"


def flips(count: int, seed: int) -> dict[str, int]:
    """How many of the flipped bits were noticed, harmless, read as other numbers, or stopped the run."""
    draw = random.Random(seed)
    verdicts: Counter[str] = Counter(noticed=0, harmless=0, wrong=0, stopped=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = made_files(folder)
        expected = [read() for _, read in files]
        if None in expected:
            raise SystemExit("a file cannot be read before any bit is flipped")
        tables = hashes(folder / "bench/tables")
        for number in range(count):
            path, read = files[number % len(files)]
            content = path.read_bytes()
            flip_a_bit(path, draw)
            verdict = judged(path, read, expected[number % len(files)])
            verdicts[verdict] += 1
            if verdict in ("wrong", "stopped"):
                print(f"{verdict}: {path.relative_to(folder)}", flush=True)
            path.write_bytes(content)
        for path in (folder / "bench/units").glob("*.parquet"):
            flip_a_bit(path, draw)
        verdicts["kept after damage"] = run_suite(SUITE, folder / "bench", HERE).kept
        verdicts["tables that differ after repair"] = int(hashes(folder / "bench/tables") != tables)
    return dict(verdicts)
