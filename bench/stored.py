"""Stored results of bench/results, and tables of documents as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def result(name: str) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return numbers
