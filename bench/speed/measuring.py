"""What a measurement was made with: the command to the letter, the machine, the versions."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def processor() -> str:
    """The processor's name as Linux gives it; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def about(arguments: Sequence[str], packages: Sequence[str]) -> dict[str, Any]:
    """`arguments` are `sys.argv`; where results go is not part of the command."""
    kept = list(arguments)
    if "--out" in kept:
        place = kept.index("--out")
        del kept[place : place + 2]
    script = Path(kept[0]).resolve().relative_to(Path(__file__).resolve().parents[2])
    return {
        "command": shlex.join(["python", str(script), *kept[1:]]),
        "machine": f"{os.cpu_count()} cores, {processor()}, {torch.get_num_threads()} threads",
        "load_before": round(os.getloadavg()[0], 1),
        "versions": {name: version(name) for name in packages},
    }
