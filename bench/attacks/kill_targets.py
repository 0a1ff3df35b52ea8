"""The commands that `kills` kills: small runs of `locality bench`, `robust` and `train`, and what each leaves behind."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

# The suite has no [searches]: they store wall-clock seconds, which differ between any two runs.
SUITE = """
models = ["shapes_cnn"]
methods = ["SM", "IG", "BIG"]
similarity = true
block = 2
gallery = 2
data = { name = "shapes", limit = 24 }
robust = { attack = "pgd20", epsilon = "8/255", limit = 12, batch_size = 4 }
"""
RECIPE = """
name = "killed"
net = {{ name = "shapes_cnn" }}
data = {{ name = "{images}" }}
epochs = 24
batch_size = 8
augmentation = {{ flip = true, shift = 2 }}
average = {{ name = "ema", decay = 0.9 }}
[loss]
name = "at"
attack = {{ epsilon = "8/255", steps = 2 }}
"""
# A run stores its state once a minute; here at every step that takes longer than this.
TRAIN = "import locality.training.loop as loop; loop.SECONDS_BETWEEN_STATES = 0.05; from locality.cli import main; main()"
TRAINING_IMAGES = 48


class Process(Protocol):
    """What `kills` asks of a run."""

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def communicate(self) -> tuple[Any, bytes]: ...


class Command(subprocess.Popen[bytes]):
    """A run whose kill reaches all of its processes."""

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Target:
    """A command to kill. It writes to a folder and resumes there."""

    name: str
    words: Callable[[Path], list[str]]  # of the command that writes to a folder
    stage: Callable[[Path], int]  # changes whenever a piece of the work is finished
    results: tuple[str, ...]  # the files that must be the same, by patterns within the folder

    def start(self, out: Path) -> Process:
        """A run in its own process group, so that a kill reaches its processes and no others."""
        return Command(self.words(out), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def hashes(self, out: Path) -> dict[str, str]:
        """The sha256 of every result."""
        paths = sorted(path for pattern in self.results for path in out.glob(pattern))
        return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def targets(folder: Path) -> tuple[Target, ...]:
    """The three commands; their inputs are written to `folder`."""
    suite, recipe = folder / "killed.toml", folder / "recipe.toml"
    suite.write_text(SUITE)
    recipe.write_text(RECIPE.format(images=_manifest(folder / "images")))
    locality = [sys.executable, "-m", "locality"]
    robust = ["robust", "--model", "shapes_cnn", "--eps", "8/255", "--attack", "pgd20", "--limit", "96", "--batch-size", "2"]
    return (
        Target(
            "bench",
            lambda out: [*locality, "bench", str(suite), "--out", str(out), "--processes", "1"],
            lambda out: _count(out, "units/*.json"),
            ("tables/*",),
        ),
        Target(
            "robust",
            lambda out: [*locality, *robust, "--out", str(out)],
            lambda out: _count(out, "batches/*.json"),
            ("robust.*",),
        ),
        Target(
            "train",
            lambda out: [sys.executable, "-c", TRAIN, "train", str(recipe), "--out", str(out), "--threads", "1"],
            lambda out: modified(out / "killed/state.pt"),
            ("killed/killed.safetensors", "killed/log.jsonl"),  # the card holds the minutes
        ),
    )


def _manifest(folder: Path) -> Path:
    """A manifest of a few small random images of two classes."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    rows = ["id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence"]
    for number in range(TRAINING_IMAGES):
        pixels = draw.integers(0, 128, (32, 32, 3)) + 127 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number},{number}.png,,{number % 2},n0000000{number % 2},4,4,20,20,32,32,made,CC0-1.0")
    path = folder / "images.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def _count(out: Path, pattern: str) -> int:
    return len(list(out.glob(pattern)))


def modified(path: Path) -> int:
    """When a file was written last, in nanoseconds; 0 if it does not exist."""
    return path.stat().st_mtime_ns if path.exists() else 0
