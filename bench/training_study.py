"""Tables 4.1 and 4.3 of the thesis and Table 1 of RAT in miniature: does flatter training help, and where do they look?

    python bench/training_study.py [--seeds 0,1,2] [--only at,at_trh] [--runs runs/training_study]
                                   [--out bench/results/training_study] [--processes 2]
    python bench/training_study.py --merge FOLDER FOLDER … [--out bench/results/training_study]

Every row of the table is a recipe. All start from the same standard network and are fine-tuned on ten classes of
Tiny-ImageNet at 32×32 pixels, as the thesis fine-tunes pretrained networks. Finished runs and measured units are kept; an
interrupted study resumes. A training takes one to three minutes of one core, the measurements of a model as long.

The suite measures accuracy, accuracy under APGD-CE + APGD-DLR, curvature with the robust gap, boundary distances and
locality. `verdicts.json` compares each row with its base on the same images, seed by seed. `--merge` trains nothing: it
joins the tables of seeds that were measured in several folders and writes the verdicts over all of them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from merged_results import merge
from study_runs import train, train_all

from locality.errors import ArgumentError
from locality.progress import progress
from locality.report.curvature import curvatures
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.measurements.curvature import CurvatureSettings
from locality.runner.measurements.robust import RobustSettings
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite
from locality.statistics import SIGNIFICANT, correlation, holm, paired

EPOCHS = 4
IMAGES = 200  # that every model is measured on
CURVATURE_IMAGES = 100
EPSILON = "4/255"
GAMMA = 5e-4
ATTACK = {"epsilon": EPSILON, "steps": 2, "step_size": 0.7}
SHARED: dict[str, Any] = {
    "net": {"name": "tiny_resnet"},
    "data": {"name": "tiny-imagenet", "size": 32, "limit": 2_000},
    "precision": "bf16",
    "augmentation": {"flip": True, "shift": 2},
}
START = SHARED | {
    "epochs": 20,
    "average": {"name": "ema", "decay": 0.99},
    "loss": {"name": "standard", "label_smoothing": 0.1},
    "optimizer": {"name": "adamw", "learning_rate": 4e-3, "weight_decay": 0.05},
}
FINE_TUNED = SHARED | {
    "epochs": EPOCHS,
    "optimizer": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 0.0, "clip_norm": 5.0},
    "step_size": {"name": "cosine", "warm_up_steps": 30},
}
BASES: dict[str, dict[str, Any]] = {
    "at": {"name": "at", "attack": ATTACK},
    "trades": {"name": "trades", "attack": ATTACK, "beta": 6.0},
}
DECAY = {"l2": {"weight": GAMMA}}
MULTISTEP = {"name": "multistep"}
# What is added to each base; the keys of a recipe, and `loss` as what is added to the base's loss.
ADDITIONS: dict[str, dict[str, Any]] = {
    "l2": {"regularisers": DECAY},
    "ema": {"average": {"name": "ema", "decay": 0.99}},
    "smoothing": {"loss": {"label_smoothing": 0.14}},
    "awp": {"weight_shift": {"name": "awp", "size": 5e-3}},
    "awpt": {"weight_shift": {"name": "awpt", "size": 5e-3}},
    "trh": {"regularisers": {"trh": {"weight": 5e-3, "schedule": MULTISTEP}} | DECAY},
    "trh_full": {"regularisers": {"trh_full": {"weight": 5e-4, "schedule": MULTISTEP}} | DECAY},
}
# Rows that only one base has; each is compared with the base that it names. S2O has the weights of its published code.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "at_s2o": ("at", {"loss": BASES["at"], "regularisers": {"s2o": {"weight": 0.1}}}),
    "trades_s2o": ("trades", {"loss": BASES["trades"], "regularisers": {"s2o": {"weight": 0.3}}}),
    "rat": ("trades", {"loss": BASES["trades"] | {"name": "rat"}}),
    "rat_terms": ("trades", {"loss": BASES["trades"] | {"name": "rat_terms"}, "precision": "no"}),
    "rat_labels": ("trades", {"loss": BASES["trades"] | {"name": "rat_labels"}}),
}


def recipe_tables(seed: int, start: Path) -> dict[str, dict[str, Any]]:
    """Every row's recipe, by name; `start` is the checkpoint of the standard network."""
    rows: dict[str, dict[str, Any]] = {}
    for base, loss in BASES.items():
        rows[base] = {"loss": loss}
        for name, added in ADDITIONS.items():
            rows[f"{base}_{name}"] = added | {"loss": loss | added.get("loss", {})}
    rows |= {name: added for name, (_, added) in OTHERS.items()}
    return {
        name: FINE_TUNED | row | {"name": f"{name}_{seed}", "seed": seed, "start": str(start)} for name, row in rows.items()
    }


def base_of(row: str) -> str | None:
    """The row that a row is compared with; None for a base.

    >>> base_of("trades_awp"), base_of("rat"), base_of("at")
    ('trades', 'trades', None)
    """
    if row in OTHERS:
        return OTHERS[row][0]
    return next((base for base in BASES if row.startswith(f"{base}_")), None)


def suite_of(name: str, models: Mapping[str, Path], images: int) -> Suite:
    """The suite that measures all of them."""
    threat: dict[str, Any] = {"norm": "linf", "epsilon": 4 / 255}
    return Suite(
        name,
        tuple(ModelChoice(name, str(path)) for name, path in models.items()),
        DataChoice("tiny-imagenet", limit=images),
        measurements={
            "robust": (RobustSettings(**threat, attack="paper", batch_size=50),),
            "curvature": (CurvatureSettings(**threat, limit=CURVATURE_IMAGES),),
        },
    )


def per_image(results: Results) -> dict[str, pd.DataFrame]:
    """Measured numbers, each as a table of images × models."""
    rows = results.rows
    once = rows[rows["method"] == "SM"]
    found = once.assign(distance=once["distance"].where(once["found"].astype(bool)))
    tables = {"clean": once.assign(value=once["correct"].astype(float)), "distance": found.assign(value=found["distance"])}
    robust = results["robust"]
    tables["robust"] = robust.assign(value=robust["robust"].astype(float))
    for method in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == method]
        tables[f"f1 {method}"], tables[f"lift {method}"] = own.assign(value=own["f1"]), own.assign(value=own["lift"])
    return {name: table.pivot(index="image_id", columns="model", values="value") for name, table in tables.items()}


def change(table: pd.DataFrame, row: str, base: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Row minus base on the same images: the mean over the seeds, its interval over images, and the mean of each seed."""
    differences = pd.concat([table[f"{row}_{seed}"] - table[f"{base}_{seed}"] for seed in seeds], axis=1)
    both = differences.mean(axis=1, skipna=False)
    result = paired(np.zeros(len(both)), both.to_numpy())
    each = [float(differences[column].mean()) for column in differences]
    return {"difference": result.difference, "low": result.low, "high": result.high, "p": result.p, "used": result.used} | {
        "seeds": each
    }


def verdict(one: Mapping[str, Any], adjusted: float) -> str:
    """Higher or lower only if the interval, the corrected test and the sign of every seed agree."""
    signs = {np.sign(value) for value in one["seeds"]}
    if len(signs) > 1 or adjusted >= SIGNIFICANT or one["low"] <= 0 <= one["high"]:
        return "inconclusive"
    return "higher" if one["difference"] > 0 else "lower"


def compared(results: Results, rows: Sequence[str], seeds: Sequence[int]) -> dict[str, dict[str, dict[str, Any]]]:
    """Number ↦ row ↦ its change against its base; p-values of one number are Holm-corrected over the rows."""
    pairs = {row: base for row in rows if (base := base_of(row)) is not None}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for number, table in per_image(results).items():
        changes = {row: change(table, row, base, seeds) for row, base in pairs.items()}
        adjusted = holm([one["p"] for one in changes.values()])
        found[number] = {
            row: one | {"holm_p": p, "verdict": verdict(one, p)}
            for (row, one), p in zip(changes.items(), adjusted, strict=True)
        }
    return found


def means(results: Results, rows: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """One line per row: means over images and seeds, and the curvature of the models."""
    images = {number: table.mean() for number, table in per_image(results).items()}
    curved = curvatures(results)
    images |= {
        "wci": pd.Series({name: one.index.mean for name, one in curved.items()}),
        "top trace": pd.Series({name: one.top_trace.mean for name, one in curved.items()}),
        "trace": results["curvature"].groupby("model")["trace"].sum(),
        "loss gap": pd.Series({name: one.loss_gap.mean for name, one in curved.items()}),
        "error gap": pd.Series({name: one.error_gap.mean for name, one in curved.items()}),
    }
    lines = {
        row: {name: float(one[[f"{row}_{seed}" for seed in seeds]].mean()) for name, one in images.items()} for row in rows
    }
    return pd.DataFrame(lines).T


def associations(table: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Rank correlations, over rows, of changes of flatness with changes of other numbers, each against the row's base.

    Without the bases subtracted they would say how AT and TRADES differ.
    """
    bases = {row: base for row in table.index if (base := base_of(row)) is not None}
    changes = table.loc[list(bases)] - table.loc[list(bases.values())].to_numpy()
    outcomes = ["robust", "distance", "loss gap", "lift SM", "lift IG", "lift BIG"]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for flat in ("wci", "trace", "top trace"):
        several = {outcome: correlation(changes[flat], changes[outcome]) for outcome in outcomes}
        found[flat] = {name: {"spearman": one.spearman, "p": one.spearman_p, "n": one.used} for name, one in several.items()}
    return found


def seeds_of(results: Results) -> list[int]:
    """The seeds that the rows were trained with, from the names of the models; every row must have all of them."""
    names = [str(name) for name in results.models["model"] if name != "standard"]
    seeds = {
        row: sorted(int(name.rpartition("_")[2]) for name in names if name.rpartition("_")[0] == row)
        for row in rows_of(results)
    }
    first = next(iter(seeds.values()))
    short = [row for row, own in seeds.items() if own != first]
    if short:
        raise ArgumentError("folders", f"results with all rows for every seed of {first}", ", ".join(short))
    return first


def rows_of(results: Results) -> list[str]:
    """The rows of the study in the order of the models."""
    names = [str(name) for name in results.models["model"] if name != "standard"]
    return list(dict.fromkeys(name.rpartition("_")[0] for name in names))


def write_verdicts(results: Results, rows: Sequence[str], seeds: Sequence[int], folder: Path) -> None:
    """Compare the rows, print their means, and write verdicts.json."""
    table = means(results, rows, seeds)
    command = f"python bench/training_study.py --seeds {','.join(map(str, seeds))}"
    complete = list(rows) == list(recipe_tables(0, Path()))
    summary = {
        "command": command if complete else f"{command} --only {','.join(rows)}",
        "seeds": list(seeds),
        "images": IMAGES,
        "means": {row: table.loc[row].to_dict() for row in rows},
        "changes": compared(results, rows, seeds),
        "associations": associations(table),
    }
    (folder / "verdicts.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(table.round(3).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", help="rows, separated by commas; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/training_study"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/training_study"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FOLDER", help="join these results instead of training")
    given = parser.parse_args()
    if given.merge:
        results = merge(given.merge, given.out)
        write_verdicts(results, rows_of(results), seeds_of(results), given.out)
        return
    seeds = [int(seed) for seed in given.seeds.split(",")]
    start = train(START | {"name": "standard"}, given.runs)
    tables = {seed: recipe_tables(seed, start) for seed in seeds}
    rows = given.only.split(",") if given.only else list(tables[seeds[0]])
    recipes = {f"{row}_{seed}": tables[seed][row] for seed in seeds for row in rows}
    models = {"standard": start} | train_all(recipes, given.runs, given.processes)
    with progress("training_study", "images") as report:
        run_suite(suite_of("training_study", models, IMAGES), given.out, Machine(processes=given.processes), report)
    write_verdicts(read_results(given.out), rows, seeds, given.out)


if __name__ == "__main__":
    main()
