"""Kill -9 at random moments: the results must be those of an undisturbed run, byte for byte.

`locality bench`, `robust` and `train` are killed, with all their processes, and started again, one after the other. A kill
comes during start-up, as soon as a file is being written, or a random time after a random number of finished pieces. A run
that finishes is compared, and the next one begins in a new folder; after the last kill the run may finish and is compared.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks.kill_targets import Target

MOMENTS = {"start": 0.1, "write": 0.5, "work": 0.4}  # with the share of kills that come then
PATIENCE = 300.0  # seconds; a run that takes longer has hung
GLANCE = 0.0005  # seconds between looks: writing a file takes a few milliseconds


@dataclass
class Tally:
    """What happened to the runs of one command."""

    kills: int = 0
    inside_a_write: int = 0  # kills that left an unfinished file
    before_the_first_piece: int = 0
    finished_runs: int = 0
    different: int = 0  # finished runs with other results than the undisturbed one
    failures: list[str] = field(default_factory=list)  # last lines of runs that ended by themselves, and not well
    moments: Counter[str] = field(default_factory=Counter)

    @property
    def held(self) -> bool:
        """Whether every run finished with the same bytes, and at least one kill came inside a write."""
        return bool(self.finished_runs and self.inside_a_write) and not self.different and not self.failures

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self) | {"moments": dict(self.moments), "held": self.held}


@dataclass(frozen=True)
class Pace:
    """How long an undisturbed run takes."""

    start_up: float  # seconds until the first piece is finished
    piece: float  # seconds per piece


def unfinished_files(out: Path) -> int:
    """The number of files that a killed write left behind."""
    try:
        return len(list(out.rglob("*.part")))
    except FileNotFoundError:  # a folder was removed while it was searched
        return 0


def undisturbed(target: Target, out: Path) -> Pace:
    """Run the command to its end."""
    begin, first, pieces, last = time.monotonic(), 0.0, 0, target.stage(out)
    run = target.start(out)
    while run.poll() is None:
        stage = target.stage(out)
        if stage != last:
            first, last, pieces = first or time.monotonic() - begin, stage, pieces + 1
        time.sleep(0.01)
    _, error = run.communicate()
    if run.returncode:
        raise SystemExit(f"the undisturbed run of {target.name} failed:\n{error.decode()}")
    return Pace(first, (time.monotonic() - begin - first) / max(1, pieces))


def killed_once(target: Target, out: Path, moment: Callable[[], bool], delay: float = 0.0) -> tuple[str, str]:
    """Whether a run was "killed" `delay` seconds after the moment, had "finished", or "failed" with its last line."""
    run = target.start(out)
    end = time.monotonic() + PATIENCE
    while run.poll() is None and not moment() and time.monotonic() < end:
        time.sleep(GLANCE)
    late = time.monotonic() >= end
    time.sleep(delay)
    ended = "killed" if run.poll() is None else "failed" if run.returncode else "finished"
    if ended == "killed":
        run.kill()
    _, error = run.communicate()
    if late:
        return "failed", f"nothing happened for {PATIENCE:.0f} s"
    return ended, (error.decode(errors="replace").strip().splitlines() or [""])[-1]


def drawn_moment(
    target: Target, out: Path, pace: Pace, draw: random.Random, is_new: bool
) -> tuple[str, Callable[[], bool], float]:
    """A moment, the condition it comes with, and the delay after that; a new run is first killed at its start."""
    [name] = ["start"] if is_new else draw.choices(list(MOMENTS), list(MOMENTS.values()))
    if name == "start":
        return name, lambda: True, draw.uniform(0, pace.start_up)
    if name == "write":
        skipped = draw.randint(0, 2)  # pieces, so that not always the first write is hit
        return name, _all(_after(target, out, skipped), lambda: unfinished_files(out) > 0), 0.0
    return name, _after(target, out, draw.randint(1, 3)), draw.uniform(0, 2 * pace.piece)


def _after(target: Target, out: Path, pieces: int) -> Callable[[], bool]:
    """Whether so many pieces were finished since now."""
    last, seen = target.stage(out), 0

    def reached() -> bool:
        nonlocal last, seen
        stage = target.stage(out)
        seen, last = seen + (stage != last), stage
        return seen >= pieces

    return reached


def _all(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() and second()


def kill_target(target: Target, folder: Path, kills: int, draw: random.Random, say: Callable[[str], None]) -> Tally:
    """Kill the command so many times, and compare every run that finishes with an undisturbed one."""
    whole = folder / f"{target.name}-whole"
    pace = undisturbed(target, whole)
    expected, tally = target.hashes(whole), Tally()
    if not expected:
        raise SystemExit(f"{target.name} left no results")
    say(f"{target.name}: first piece after {pace.start_up:.1f} s, then {pace.piece:.2f} s each; {', '.join(expected)}")
    number, last_round = 0, False
    while not last_round:
        out = folder / f"{target.name}-{number}"
        last_round = _one_round(target, out, kills, pace, draw, tally)
        tally.finished_runs += not tally.failures
        tally.different += target.hashes(out) != expected
        say(f"{target.name}: {tally.kills} of {kills} kills, {tally.finished_runs} runs finished, {tally.different} differ")
        number += 1
    return tally


def _one_round(target: Target, out: Path, kills: int, pace: Pace, draw: random.Random, tally: Tally) -> bool:
    """Kill and restart one run until it finishes; True if no further kill is due."""
    begin, is_new = target.stage(out), True
    while tally.kills < kills:
        name, moment, delay = drawn_moment(target, out, pace, draw, is_new)
        is_new = False
        ended, line = killed_once(target, out, moment, delay)
        if ended == "failed":
            tally.failures.append(line)
            return True
        if ended == "finished":
            return False
        tally.kills += 1
        tally.moments[name] += 1
        tally.inside_a_write += unfinished_files(out) > 0
        tally.before_the_first_piece += target.stage(out) == begin
    ended, line = killed_once(target, out, lambda: False)
    if ended != "finished":
        tally.failures.append(line)
    return True
