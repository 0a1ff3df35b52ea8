"""Files made to break a reader go through the commands: one sentence and exit code 2, no traceback, no code run, no hang."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hostile_data import DATA
from hostile_file import CANARY, Hostile
from hostile_formats import FORMATS
from hostile_models import MODELS
from hostile_settings import SETTINGS

from locality.cli import main

FILES: dict[str, Hostile] = MODELS | DATA | FORMATS | SETTINGS
PATIENCE = 40  # seconds after which a command has hung
MOST_MEMORY = 1 << 30  # bytes that a file may add to the memory of the process


class HangsError(BaseException):
    """Not an Exception, so that `main` does not take it for an error of the command."""


def ring(number: int, frame: object) -> None:
    raise HangsError


@contextmanager
def limited() -> Iterator[None]:
    """Inside the block a command that hangs or eats memory ends with an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = psutil.Process().memory_info().vms
    before = signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * MOST_MEMORY, hard))
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hostile = FILES[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    words = hostile.written(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["locality", *words])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with limited(), pytest.raises(SystemExit) as ended:
        main()
    out, error = capfd.readouterr()
    assert ended.value.code == hostile.code, error
    assert hostile.says in error + out
    assert "Traceback" not in error
    assert "locality: unexpected" not in error, "an error that nobody thought of"
    assert "not enough memory" not in error
    assert len(error) < 20_000
    # Besides warnings, and signs of life on a slow machine.
    lines = [one for one in error.splitlines() if not one.startswith("locality: warning: ") and not one.endswith(" so far")]
    if hostile.code:
        assert lines, "it must say what is wrong"
        assert all(line.startswith(("locality: ", "  - ")) for line in lines), lines
        assert sum(line.startswith("locality: ") for line in lines) == 1, "one sentence, or one list"
    assert all(character.isprintable() or character == "\n" for character in error + out)
    assert not (folder / CANARY).exists(), "code inside the file was run"
    assert not list(tmp_path.rglob("*.part"))
    assert not (tmp_path / "evil").exists()
    assert os.listdir(tmp_path) == ["folder"]
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
    assert grown < MOST_MEMORY


def test_there_are_many() -> None:
    assert len(FILES) >= 100
