"""The state that an interrupted run resumes from, and the log: written atomically, and read as data only."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locality.files import write_atomically
from locality.toml_settings import read_limited

# Tensors, numbers, texts, and lists and dictionaries of them: what torch.load reads without executing code.
State = dict[str, Any]
MAX_STATE_BYTES = 64 * 2**30
SEAL = b"\nsha256 "  # before the hash of all bytes in front of it, at the end of the file


@dataclass
class RunState:
    """Where a run stands. `memory` holds what the parts of the step keep between steps, by part; only they can read it."""

    step: int  # steps done
    weights: dict[str, Tensor]
    optimizer: State
    memory: dict[str, State]
    seconds: float  # spent so far, over all sittings
    recipe: dict[str, Any]
    data: str  # the fingerprint of the training data


def write_state(state: RunState, path: Path) -> None:
    """Write the state so that a power cut leaves the old one or the new one."""
    buffer = io.BytesIO()
    torch.save(vars(state), buffer)
    content = buffer.getvalue()
    write_atomically(path, content + SEAL + hashlib.sha256(content).hexdigest().encode())


def read_state(path: Path) -> RunState | None:
    """The state of an interrupted run, None where there is none."""
    if not path.exists():
        return None
    try:
        content, seal, digest = read_limited(path, MAX_STATE_BYTES).rpartition(SEAL)
        if seal and hashlib.sha256(content).hexdigest().encode() != digest:
            raise ValueError("its bytes are not those that were written")
        # Without a seal, as earlier versions wrote it, all of the file is behind it.
        file = io.BytesIO(content if seal else digest)
        return RunState(**torch.load(file, map_location="cpu", weights_only=True))
    except Exception:  # whatever a damaged file makes torch raise, the remedy is the same
        raise ValueError(f"`{path}` is not the state of a run, or is damaged: delete it to start over") from None


def check_state(state: RunState, path: Path, recipe: dict[str, Any], data: str) -> None:
    """Raise if the state belongs to another recipe or to other data."""
    changed = sorted(key for key in {*recipe, *state.recipe} if recipe.get(key) != state.recipe.get(key))
    if changed:
        raise ValueError(
            f"`{path}` belongs to another recipe ({', '.join(changed)} changed): delete it, or choose another --out"
        )
    if state.data != data:
        raise ValueError(
            f"`{path}` belongs to other data (fingerprint {state.data[:16]}, now {data[:16]}): restore the data, delete the "
            "state, or choose another --out"
        )


@dataclass(frozen=True)
class Log:
    """Lines of JSON; each has a `step`."""

    path: Path

    def rewind(self, step: int) -> None:
        """Drop the lines after `step`: those steps are about to be repeated."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        kept = []
        for line in lines:
            try:
                if line.endswith("\n") and json.loads(line)["step"] <= step:
                    kept.append(line)
            except (json.JSONDecodeError, KeyError, TypeError):
                continue  # truncated by the interruption
        write_atomically(self.path, "".join(kept))

    def write(self, entry: Mapping[str, float]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
