"""bench/attack_test.py with a few attacks, and with commands that do not hold them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Ten pieces, each written to a new name and then renamed; a killed run resumes. The result lists them.
HONEST = """
import os, sys, time
from pathlib import Path
out = Path(sys.argv[1])
out.mkdir(exist_ok=True)
for number in range(10):
    piece = out / f"{number}.piece"
    if not piece.exists():
        part = out / f".{number}.part"
        part.write_text(str(number))
        time.sleep(0.02)
        os.replace(part, piece)
(out / "result").write_text("".join(path.read_text() for path in sorted(out.glob("*.piece"))))
"""
CARELESS = HONEST.replace("if not piece.exists():", "if not piece.exists() and not (out / f'.{number}.part').exists():")
FAILING = HONEST.replace("out.mkdir(exist_ok=True)", "out.mkdir()")


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("attack_test")


def killed(attacks: ModuleType, folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the kills were held, and whether there were as many as asked."""
    from attacks import kill_targets, kills

    monkeypatch.setattr(kills, "MOMENTS", {"write": 0.5, "work": 0.5})
    target = kill_targets.Target(
        "toy",
        lambda out: [sys.executable, "-c", code, str(out)],
        lambda out: len(list(out.glob("*.piece"))),
        ("result",),
    )
    tally = kills.kill_target(target, folder, 6, random.Random(0), lambda text: None)
    assert tally.to_json()["held"] == tally.held
    return [tally.held, tally.kills == 6, bool(tally.different), bool(tally.failures)]


def test_kills_are_held_by_a_command_that_resumes(
    attacks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert killed(attacks, tmp_path, HONEST, monkeypatch) == [True, True, False, False]


def test_a_command_that_trusts_unfinished_files_is_caught(
    attacks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, _, different, failed = killed(attacks, tmp_path, CARELESS, monkeypatch)
    assert not held
    assert different
    assert not failed


def test_a_command_that_cannot_resume_is_caught(
    attacks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, enough, _, failed = killed(attacks, tmp_path, FAILING, monkeypatch)
    assert (held, enough, failed) == (False, False, True)


def test_the_commands_to_kill_are_those_of_the_command_line(attacks: ModuleType, tmp_path: Path) -> None:
    from attacks import kill_targets

    several = kill_targets.targets(tmp_path)
    assert [target.name for target in several] == ["bench", "robust", "train"]
    for target in several:
        assert target.name in target.words(tmp_path / "out")
        assert target.hashes(tmp_path / "nothing") == {}


def test_every_part_of_a_training_is_killed(attacks: ModuleType) -> None:
    """Each name of a table has a training of its own; a new attacked loss, shift, average or step size must be added."""
    from attacks.killed_axes import AXES, RECIPE

    from locality.training.averaging import AVERAGES
    from locality.training.losses import LOSSES
    from locality.training.losses.split import AttackedLoss
    from locality.training.recipe import recipe_from
    from locality.training.regularisers import REGULARISERS
    from locality.training.step_size import STEP_SIZES
    from locality.training.weight_shifts import WEIGHT_SHIFTS

    names = {axis: set(several) for axis, several in AXES.items()}
    # Losses and regularisers of networks that certify need such a network, which these trainings do not have.
    assert names["loss"] <= set(LOSSES)
    assert {name for name, loss in LOSSES.items() if issubclass(loss, AttackedLoss)} <= names["loss"] | {"standard"}
    assert names["regularisers"] <= set(REGULARISERS)
    assert names["weight_shift"] == set(WEIGHT_SHIFTS)
    assert names["average"] == set(AVERAGES)
    assert names["step_size"] == set(STEP_SIZES)
    known = RECIPE | {"net": {"name": "shapes_cnn"}}
    recipes = [recipe_from(known | change, name) for several in AXES.values() for name, change in several.items()]
    assert len(set(map(repr, recipes))) == len(recipes) - 3  # AT itself, no shift, no average, and one cycle are the same


@pytest.mark.slow
def test_killed_trainings_end_with_the_same_bytes(tmp_path: Path) -> None:
    """SIGKILL for one training of each axis; `python bench/attack_test.py --only axes` does it for all."""
    names = ["loss-rat", "regularisers-trh_full", "weight_shift-awp", "average-swa", "step_size-wci", "validation-patience"]
    command = [sys.executable, "bench/attack_test.py", "--only", "axes", "--axis-kills", "2", "--axes", *names]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*command, "--out", str(tmp_path / "result.json")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = json.loads((tmp_path / "result.json").read_text())["axes"]
    assert (counts["names"], counts["kills"], counts["failed"]) == (names, 2 * len(names), [])


def test_flipped_bits_are_noticed_or_harmless(attacks: ModuleType) -> None:
    held, verdicts = attacks.SECTIONS["flips"](argparse.Namespace(flips=60, seed=1))
    assert held
    assert verdicts["noticed"] > 40
    assert (verdicts["kept after damage"], verdicts["tables that differ after repair"]) == (0, 0)


def test_cases_of_a_list_are_counted(attacks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_list.py").write_text(
        "import pytest\n@pytest.mark.parametrize('number', [1, 2, 3])\ndef test_small(number):\n    assert number < 3\n"
        "def test_another():\n    pass\n"
    )
    counts = attacks.counted("test_list.py", "test_small", tmp_path)
    assert counts == {"cases": 3, "held": 2, "failed": ["3"], "names": ["1", "2", "3"]}


@pytest.mark.parametrize("section", ["stale", "downloads", "hostile"])
def test_the_lists_are_tests_of_ours(attacks: ModuleType, section: str) -> None:
    path, name = attacks.LISTS[section]
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
