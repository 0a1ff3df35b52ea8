"""What a run needs to go on after a kill, and its log: written whole or not at all, and read as data only."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass
class RunState:
    """Where a run stands. `average` are the averaged weights, empty where the recipe wants none."""

    step: int  # steps done
    weights: dict[str, Tensor]
    average: dict[str, Tensor]
    optimizer: dict[str, Any]
    seconds: float  # spent so far, over all sittings
    recipe: dict[str, Any] = field(default_factory=dict)
    data: str = ""  # the fingerprint of what is trained on; unknown in states written before it was kept


def write_state(state: RunState, path: Path) -> None:
    """Write the state so that a power cut leaves the old one or the new one."""
    part = path.with_name(f"{path.name}.part")
    with open(part, "wb") as file:
        torch.save(vars(state), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def read_state(path: Path, recipe: dict[str, Any], data: str) -> RunState | None:
    """The state of an earlier sitting, None where there is none; an error where the recipe or the data was another."""
    if not path.exists():
        return None
    try:
        state = RunState(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception:  # whatever a damaged file makes torch raise, the way out is the same
        raise ValueError(f"`{path}` is not the state of a run, or is damaged: delete it to begin anew") from None
    if state.recipe != recipe:
        changed = sorted(key for key in {*recipe, *state.recipe} if recipe.get(key) != state.recipe.get(key))
        raise ValueError(
            f"`{path}` belongs to another recipe ({', '.join(changed)} changed): delete it, or choose another --out"
        )
    if state.data not in ("", data):
        raise ValueError(
            f"`{path}` belongs to other data (its fingerprint was {state.data[:16]}, now it is {data[:16]}): bring the data "
            "back, delete the state, or choose another --out"
        )
    return state


@dataclass(frozen=True)
class Log:
    """Lines of JSON, one an entry; each entry has a `step`."""

    path: Path

    def rewind(self, step: int) -> None:
        """Drop what was written after `step`: those steps are about to be done again."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        kept = []
        for line in lines:
            try:
                if line.endswith("\n") and json.loads(line)["step"] <= step:
                    kept.append(line)
            except (json.JSONDecodeError, KeyError, TypeError):
                continue  # cut off by the kill
        part = self.path.with_name(f"{self.path.name}.part")
        part.write_text("".join(kept), encoding="utf-8")
        os.replace(part, self.path)

    def write(self, **entry: Any) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
