"""Figure 4.3 of the thesis and the η sweep of RAT's Table 1 in miniature: robust accuracy over the strength of a term.

    python bench/training_sweeps.py [--only trh_at,trh_trades,rat_labels,smoothing] [--seeds 1] [--runs runs/training_study]
                                    [--out bench/results/training_sweeps] [--processes 2]

Trainings and images are those of bench/training_study.py, and runs that it has finished are used again. TrH is compared with
its base at the same γ, `rat_labels` and the label smoothing of equal strength with TRADES, on the same images. `sweeps.json`
has the mean and the paired change of every point. Finished runs and measured units are kept; an interrupted study resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from study_runs import train, train_all
from training_study import START, change, means, per_image, recipe_tables, suite_of, verdict

from locality.progress import progress
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.run import Machine, run_suite
from locality.statistics import holm
from locality.training.recipe import recipe_from

IMAGES = 250
# Ten times the thesis': its networks end in a LayerNorm of 1,024 features, tiny_resnet's ‖z‖² is a tenth of that.
LAMBDAS = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1)
ETAS = (0.1, 0.2, 0.4)
COMPARED = ("clean", "robust", "lift SM", "lift IG")


@dataclass(frozen=True)
class Sweep:
    """One setting over several values; `base` is the row of the study that has none of it."""

    base: str
    setting: str
    values: tuple[float, ...]


SWEEPS = {
    "trh_at": Sweep("at_l2", "λ", LAMBDAS),
    "trh_trades": Sweep("trades_l2", "λ", LAMBDAS),
    "rat_labels": Sweep("trades", "η", ETAS),
    "smoothing": Sweep("trades", "η", ETAS),
}


def equal_smoothing(eta: float, classes: int = 10) -> float:
    """The label smoothing of clean images that `rat_labels` amounts to where its tables are uniform.

    Their weight is 1 − η/4 with a true mass of (1 − η) + ¾η · 2/K.

    >>> round(equal_smoothing(0.2), 3)
    0.14
    """
    true_mass = (1 - eta + 0.75 * eta * 2 / classes) / (1 - eta / 4)
    return (1 - true_mass) * classes / (classes - 1)


def point(sweep: str, value: float, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The recipe of one point: a row of the study with one number changed."""
    if sweep.startswith("trh_"):
        row = rows[f"{sweep.removeprefix('trh_')}_trh"]
        penalty = row["regularisers"]["trh"] | {"weight": value}
        return {**row, "regularisers": row["regularisers"] | {"trh": penalty}}
    if sweep == "smoothing":
        row = rows["trades_smoothing"]
        return {**row, "loss": row["loss"] | {"label_smoothing": round(equal_smoothing(value), 2)}}
    row = rows["rat_labels"]
    return {**row, "loss": row["loss"] | {"eta": value}}


def recipes(sweep: str, seed: int, start: Path) -> dict[str, dict[str, Any]]:
    """The recipes of a sweep by row, the base first; a point that is a row of the study is that row, and its run is used."""
    rows = recipe_tables(seed, start)
    known = {row: recipe_from(table | {"name": "one"}, row) for row, table in rows.items()}
    base = SWEEPS[sweep].base
    found = {base: rows[base]}
    for value in SWEEPS[sweep].values:
        table = point(sweep, value, rows)
        row = next(
            (row for row, one in known.items() if recipe_from(table | {"name": "one"}, row) == one), f"{sweep}_{value:g}"
        )
        found[row] = table | {"name": f"{row}_{seed}"}
    return found


def compared(results: Results, sweep: str, rows: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """One record per point: its means, and its changes against the base, Holm-corrected over the points of the sweep."""
    base, *points = rows
    table = means(results, rows, seeds)
    records: list[dict[str, Any]] = [
        {"value": value, "row": row, "means": table.loc[row].dropna().to_dict(), "changes": {}}
        for row, value in zip(rows, (0.0, *SWEEPS[sweep].values), strict=True)
    ]
    for number in COMPARED:
        changes = [change(per_image(results)[number], row, base, seeds) for row in points]
        adjusted = holm([one["p"] for one in changes])
        for record, one, p in zip(records[1:], changes, adjusted, strict=True):
            record["changes"][number] = one | {"holm_p": p, "verdict": verdict(one, p)}
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SWEEPS), help="sweeps, separated by commas")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--runs", type=Path, default=Path("runs/training_study"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/training_sweeps"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    start = train(START | {"name": "standard"}, given.runs)
    tables = {sweep: {seed: recipes(sweep, seed, start) for seed in seeds} for sweep in given.only.split(",")}
    runs = {table["name"]: table for own in tables.values() for rows in own.values() for table in rows.values()}
    models = train_all(runs, given.runs, given.processes)
    suite = replace(suite_of("training_sweeps", models, IMAGES), methods=("SM", "IG"), search="none")
    with progress("training_sweeps", "images") as report:
        run_suite(suite, given.out, Machine(processes=given.processes), report)
    results = read_results(given.out)
    summary = {
        "command": f"python bench/training_sweeps.py --only {given.only} --seeds {given.seeds}",
        "seeds": seeds,
        "images": IMAGES,
        "sweeps": {
            sweep: {
                "setting": SWEEPS[sweep].setting,
                "base": SWEEPS[sweep].base,
                "points": compared(results, sweep, list(own[seeds[0]]), seeds),
            }
            for sweep, own in tables.items()
        },
    }
    (given.out / "sweeps.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(
        means(results, list(dict.fromkeys(row for own in tables.values() for row in own[seeds[0]])), seeds)
        .round(3)
        .to_string()
    )


if __name__ == "__main__":
    main()
