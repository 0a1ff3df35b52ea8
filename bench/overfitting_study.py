"""Robust overfitting: does the weight-curvature index follow the gap, and does a learning rate that it controls help?

    python bench/overfitting_study.py [--seeds 0,1,2] [--runs runs/overfitting] [--out bench/results/overfitting.json]
    python bench/overfitting_study.py --merge JSON JSON … [--out bench/results/overfitting.json]

Figures 1, 4, 5 and 9 of the WCI paper in miniature. Adversarial training at ℓ∞ 8/255 on 1,000 photographs of 32×32 pixels,
without augmentation, whose learning rate falls to a tenth at half of the run. `wci` lowers it further where the index
is above its first value after the fall, `wci_half` above half of that; `wci_half_control` is the control of the latter, a
plain decay with the same mean rate and without the index.
Finished runs are kept, and an interrupted study resumes. `--merge` trains nothing: it joins the results of other seeds.

Epochs of one run are not independent, so there are no p-values of correlations over epochs: they are given per seed, of the
values and of their changes from one measurement to the next.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from study_runs import checkpoint, train_all

from locality.errors import ArgumentError
from locality.statistics import correlation
from locality.training.control_recipe import control_recipe

EPOCHS = 40
DROP = {"name": "piecewise", "milestones": [0.5]}
RECIPE: dict[str, Any] = {
    "net": {"name": "tiny_resnet"},
    "data": {"name": "tiny-imagenet", "size": 32, "limit": 1_000},
    "epochs": EPOCHS,
    "batch_size": 50,
    "precision": "bf16",
    "loss": {"name": "at", "attack": {"epsilon": "8/255", "steps": 2, "step_size": 0.7}},
    "optimizer": {"name": "sgd", "learning_rate": 0.1, "weight_decay": 5e-4, "clip_norm": 5.0},
    "monitor": {"every": 2, "images": 128, "steps": 10, "probes": 4},
    "evaluate_epsilon": "8/255",
}
# What each run does after the drop. The threshold of the index is a multiple of its first value after the drop.
STEP_SIZES: dict[str, dict[str, Any]] = {
    "static": DROP,
    "wci": {"name": "wci", "plan": DROP, "start": 0.5},
    "wci_half": {"name": "wci", "plan": DROP, "start": 0.5, "multiple": 0.5},
}
CONTROLLED = ("wci_half",)  # whose controls are trained, too
FOLLOWERS = {
    "wci": "wci",
    "squared norms": "squared_norm",
    "sum of traces": "trace",
    "epoch": "epoch",
    "train robust loss": "train_robust_loss",
}
CURVES = ("epoch", "learning_rate", "train_robust_loss", "eval_robust_loss", "train_robust_error", "eval_robust_error",
          "loss_gap", "error_gap", "wci", "wci_error", "trace", "squared_norm", "top_trace")  # fmt: skip


def monitored(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a run's monitor."""
    return [json.loads(line) for line in (folder / name / "monitor.jsonl").read_text(encoding="utf-8").splitlines()]


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float | None:
    """Spearman's; None if one of them is constant."""
    spearman = correlation(np.asarray(first, float), np.asarray(second, float), resamples=1).spearman
    return None if np.isnan(spearman) else spearman


def follows(lines: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """How well each number follows the gap of the robust loss in one run: rank correlations of values and of changes."""
    gap = [line["loss_gap"] for line in lines]
    found: dict[str, dict[str, float | None]] = {}
    for name, column in FOLLOWERS.items():
        values = [line[column] for line in lines]
        found[name] = {"values": rank_correlation(values, gap), "changes": rank_correlation(np.diff(values), np.diff(gap))}
    return found


def accuracy(folder: Path, name: str) -> dict[str, float]:
    """The accuracies of the final weights on all evaluation photographs, from the card."""
    card: dict[str, Any] = json.loads(checkpoint(folder, name).with_suffix(".json").read_text(encoding="utf-8"))
    shares: dict[str, float] = card["accuracy"]
    return shares


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The runs of several results in one, ordered by seed; refused if their recipes differ or a seed is in two of them."""
    seeds = [seed for part in parts for seed in part["follows the gap"]]
    if len(set(seeds)) < len(seeds) or any(part["recipe"] != parts[0]["recipe"] for part in parts):
        raise ArgumentError("--merge", "results of one recipe, each of other seeds", seeds)
    order = sorted(seeds, key=int)
    joined = {key: {name: one for part in parts for name, one in part[key].items()} for key in ("accuracy", "curves")}
    names = sorted(joined["curves"], key=lambda name: ("control" in name, order.index(seed_of(name))))
    return {
        "command": f"python bench/overfitting_study.py --seeds {','.join(order)}",
        "recipe": parts[0]["recipe"],
        "follows the gap": {
            seed: part["follows the gap"][seed] for seed in order for part in parts if seed in part["follows the gap"]
        },
        **{key: {name: several[name] for name in names} for key, several in joined.items()},
    }


def seed_of(name: str) -> str:
    """The seed of a run.

    >>> seed_of("wci_1"), seed_of("wci_half_2_control")
    ('1', '2')
    """
    return name.removesuffix("_control").rpartition("_")[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--runs", type=Path, default=Path("runs/overfitting"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/overfitting.json"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="JSON", help="join these results instead of training")
    given = parser.parse_args()
    if given.merge:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in given.merge]
        given.out.write_text(json.dumps(merged(parts)) + "\n", encoding="utf-8")
        return
    seeds = [int(seed) for seed in given.seeds.split(",")]
    recipes = {
        f"{name}_{seed}": RECIPE | {"name": f"{name}_{seed}", "seed": seed, "step_size": step_size}
        for seed in seeds
        for name, step_size in STEP_SIZES.items()
    }
    train_all(recipes, given.runs, given.processes)
    controlled = [f"{name}_{seed}" for name in CONTROLLED for seed in seeds]
    train_all({name: tomllib.loads(control_recipe(given.runs / name)) for name in controlled}, given.runs, given.processes)
    names = [*recipes, *(f"{name}_control" for name in controlled)]
    curves = {name: monitored(given.runs, name) for name in names}
    summary = {
        "command": f"python bench/overfitting_study.py --seeds {given.seeds}",
        "recipe": RECIPE,
        "follows the gap": {seed: follows(curves[f"static_{seed}"]) for seed in seeds},
        "accuracy": {name: accuracy(given.runs, name) for name in names},
        "curves": {name: {column: [line[column] for line in lines] for column in CURVES} for name, lines in curves.items()},
    }
    given.out.write_text(json.dumps(summary) + "\n", encoding="utf-8")
    for seed in seeds:
        print(seed, json.dumps(follows(curves[f"static_{seed}"]), indent=1))
    print(json.dumps(summary["accuracy"], indent=1))


if __name__ == "__main__":
    main()
