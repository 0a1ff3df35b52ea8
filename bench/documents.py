"""Writes the tables of measured numbers into README.md, from bench/results and the cards of the models that ship.

    python bench/readme.py

Each table stands between `<!-- NAME -->` and `<!-- end -->`. A test checks that the README is what this writes, so that no
number there is older than its result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from locality.zoo.cards import shipped_cards

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def boundary_table() -> str:
    """Every boundary bench: one row per model × search."""
    rows = []
    for path in sorted((RESULTS / "boundary").glob("*.json")):
        for search, row in result(f"boundary/{path.name}")["searches"].items():
            paper = row.get("times_faster_than_paper")
            rows.append(
                (
                    f"[`{path.stem}`](bench/results/boundary/{path.name})",
                    search,
                    row["images"],
                    f"{row['success']:.0%}",
                    f"{row['mean']:.3f}",
                    f"{row['ratio']:.3f}",
                    f"{row['gradients']:.1f} + {row['forwards']:.1f}",
                    f"{row['seconds_per_image']:.3f}",
                    "" if paper is None else f"{paper:g} ×",
                )
            )
    titles = [
        "model",
        "search",
        "images",
        "found",
        "mean ℓ2",
        "ratio",
        "gradients + forwards",
        "s an image",
        "of `paper`'s speed",
    ]
    return markdown(titles, rows)


def attribution_table() -> str:
    """SM, IG, BSM and BIG by `attribute_all` and by Captum."""
    rows = [
        (name, f"{row['seconds']:.1f}", f"{row['times_ours']:.2f} ×", f"{row['peak_mb']:,}", f"{row['more_mb']:,}")
        for name, row in result("attribution.json")["rows"].items()
    ]
    return markdown(["way", "s", "of ours", "peak MB", "MB above the loaded model"], rows)


def models_table() -> str:
    """The models that ship, with the accuracies of their cards."""
    rows = []
    for name, card in sorted(shipped_cards().items()):
        against = (
            "" if card.epsilon is None else f" ℓ{'∞' if card.norm == 'linf' else '2'} {_budget(card.norm, card.epsilon)}"
        )
        training = {"at": "AT", "fast_at": "fast AT", "trades": "TRADES"}.get(card.training, card.training)
        attacked = next(f"{100 * share:.1f} % at {key.split()[1]}" for key, share in card.accuracy.items() if "pgd" in key)
        rows.append((f"`{name}`", card.data, training + against, f"{100 * card.accuracy['clean']:.1f} %", attacked))
    return markdown(["name", "data", "training", "clean", "under PGD-10"], rows)


def _budget(norm: str | None, epsilon: float) -> str:
    return f"{255 * epsilon:g}/255" if norm == "linf" else f"{epsilon:g}"


TABLES: dict[str, Callable[[], str]] = {
    "boundary": boundary_table,
    "attribution": attribution_table,
    "models": models_table,
}


def written(text: str) -> str:
    """The README with its tables as the results have them."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"`README.md` must have a place for the table {name}: <!-- {name} --> … <!-- end -->")
        text = pattern.sub(lambda found, table=table: f"{found[1]}{table()}\n{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text(encoding="utf-8")), encoding="utf-8")
