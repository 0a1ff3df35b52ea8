"""Tables 5.1, 5.2a, 5.2b and C.3 and Figure 5.4 of the thesis in miniature: which loss, depth and radius certify most?

    python bench/certified_study.py [--seeds 0] [--only emma_36,trades] [--runs runs/certified_study]
                                    [--out bench/results/certified_study.json]

Every row is a recipe, every table compares its rows with its first one on the same images. Rows are trained one after the
other, in the order of `ORDER`; the results are written after each. Finished rows are kept, and an interrupted study resumes.
With --only, what --out already has about other rows stays in it; a comparison is of the seeds of one command. Checkpoints
that ship are measured as they are.

Verified accuracy is that of the stored half-precision weights, by their Lipschitz bound, on all evaluation images. Accuracy
under attack is that of APGD-CE + APGD-DLR (`paper`) at ℓ2 36/255 on the first images, for the rows of `ATTACKED`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from study_runs import checkpoint, train
from threatening_class import finished_threats, threat_changes

from locality.certified.lipschitz import Lipschitz
from locality.certified.verified_accuracy import verified_accuracy
from locality.data.dataset import load_dataset
from locality.files import write_atomically
from locality.robustness.robust_accuracy import robust_accuracy
from locality.statistics import paired, share_summary
from locality.training.batches import eval_images
from locality.training.recipe import read_recipe
from locality.training.step import NotFiniteError
from locality.zoo.catalog import CHECKPOINTS as ZOO
from locality.zoo.load import load_model
from locality.zoo.model_card import read_card

EPOCHS = 10  # of the small networks
EARLY = 5  # of standard training that stops at the accuracy of `emma_36`
RADII = (0.0, 18 / 255, 36 / 255, 72 / 255, 108 / 255, 144 / 255)
SHAPES_RADII = (0.0, 0.14, 0.4, 0.8, 1.6)
EPSILON = 36 / 255  # at which rows are compared and attacked
IMAGES = 2_000  # largest number that is certified
ATTACKED_IMAGES = 200
SIZE = {"depth": 6, "width": 32, "dimension": 256}
SMALL: dict[str, Any] = {
    "net": {"name": "liresnet", **SIZE},
    "data": {"name": "tiny-imagenet"},
    "epochs": EPOCHS,
    "precision": "bf16",
    "mean": [0.5, 0.5, 0.5],
    "std": [1.0, 1.0, 1.0],
    "augmentation": {"flip": True, "shift": 4},
    "average": {"name": "ema", "decay": 0.99},
    "optimizer": {"name": "adamw", "learning_rate": 2e-3, "clip_norm": 3.0},
}
EMMA = {"name": "gloro_emma", "epsilon": "36/255"}
CONV, RES = ({"name": name, **SIZE} for name in ("lip_convnet", "lip_resnet"))


def small(loss: Mapping[str, Any], net: Mapping[str, Any] | None = None, **depth: int) -> dict[str, Any]:
    """The recipe of a small network."""
    return SMALL | {"loss": dict(loss), "net": {**(net or SMALL["net"]), **depth}}


def ramp(end: float, begin: float = 0.1) -> dict[str, Any]:
    return {"schedule": {"name": "linear", "begin": begin, "end": end, "until": 0.5}}


def on_shapes(loss: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the network for `shapes`, with another loss."""
    return read_recipe("shapes_liresnet").as_table() | {"loss": dict(loss)}


ROWS: dict[str, dict[str, Any]] = {
    "standard": small({"name": "standard"}),
    "standard_early": small({"name": "standard"}) | {"epochs": EARLY},
    "at": small({"name": "at", "attack": {"norm": "l2", "epsilon": 0.5, "steps": 2, "warm_up": 0.2}}),
    **{f"emma_{radius}": small(EMMA | {"epsilon": f"{radius}/255"}) for radius in (18, 36, 72, 144)},
    **{loss: small(EMMA | {"name": f"gloro_{loss}"}) for loss in ("ce", "trades", "fixed", "la")},
    "conv_emma": small(EMMA, CONV),
    "conv_trades": small(EMMA | {"name": "gloro_trades"}, CONV),
    **{f"lires_{depth}": small(EMMA, depth=depth) for depth in (3, 12)},
    **{f"conv_{depth}": small(EMMA, CONV, depth=depth) for depth in (3, 12)},
    **{f"res_{depth}": small(EMMA, RES, depth=depth) for depth in (3, 6, 12)},
    **{f"power_{steps}": small(EMMA | {"power_steps": steps}) for steps in (1, 2, 10)},
    "ramp_1": small(EMMA | ramp(1.0)),
    "ramp_3": small(EMMA | ramp(3.0)),
    "constant_1": small(EMMA | ramp(1.0, begin=1.0)),
    "shapes_standard": on_shapes({"name": "standard"}),
    **{f"shapes_{radius}": on_shapes(EMMA | {"epsilon": radius}) for radius in (0.14, 0.4, 0.8, 1.6)},
}
CHECKPOINTS = ("tiny_liresnet", "tiny_liresnet_standard", "tiny_liresnet_at")  # recipes that ship
# The first row of a table is what the others are compared with.
TABLES: dict[str, tuple[str, ...]] = {
    "checkpoints": CHECKPOINTS,
    "radius": ("standard", "standard_early", "at", "emma_18", "emma_36", "emma_72", "emma_144"),
    "loss": ("emma_36", "ce", "trades", "fixed", "la"),
    "loss, plain convolutions": ("conv_emma", "conv_trades"),
    "depth, linear residual": ("emma_36", "lires_3", "lires_12"),
    "depth, plain convolutions": ("conv_emma", "conv_3", "conv_12"),
    "depth, residual": ("res_6", "res_3", "res_12"),
    "block": ("emma_36", "conv_emma", "res_6"),
    "power steps": ("emma_36", "power_1", "power_2", "power_10"),
    "radius at the end": ("emma_36", "constant_1", "ramp_1", "ramp_3"),
    "shapes": ("shapes_standard", "shapes_0.14", "shapes_0.4", "shapes_0.8", "shapes_1.6"),
}
ORDER = (
    "tiny_liresnet",
    *TABLES["shapes"],
    *CHECKPOINTS[1:],
    *dict.fromkeys(row for rows in TABLES.values() for row in rows),
)
ATTACKED = (*TABLES["checkpoints"], *(row for row in TABLES["radius"] if row != "standard_early"))
CLASSES = (2, 5, 10)  # of Figure 5.4


def recipe_table(row: str, seed: int) -> dict[str, Any]:
    """The recipe of a row; a shipped one has its own name and seed 0."""
    if row in CHECKPOINTS:
        return read_recipe(row).as_table()
    return ROWS[row] | {"name": f"{row}_{seed}", "seed": seed}


def shipped(row: str) -> Path | None:
    """The weights of a row that ships."""
    weights = ZOO / f"{row}.safetensors"
    return weights if row in CHECKPOINTS and weights.exists() else None


def measured(row: str, seed: int, runs: Path) -> dict[str, Any]:
    """Train a row and certify its weights, image by image; kept beside them. A run that diverges is a result, too."""
    table = recipe_table(row, seed)
    kept = runs / table["name"] / "measured.json"
    if kept.exists():
        return _read(kept)
    try:
        result = certified_images(shipped(row) or train(table, runs))
    except NotFiniteError as error:
        result = {"diverged": {"term": error.term, "step": error.step}}
    write_atomically(kept, json.dumps(result))
    return result


def attacked(row: str, seed: int, runs: Path) -> dict[str, Any]:
    """Which of the first images a trained row keeps under attack, and which it certifies; kept beside its weights."""
    name = recipe_table(row, seed)["name"]
    kept = runs / name / "attacked.json"
    if kept.exists():
        return _read(kept)
    weights = shipped(row) or checkpoint(runs, name)
    model = load_model(str(weights))
    data = load_dataset(
        read_card(weights.with_suffix(".json")).data, split="eval", max_box_share=None, limit=ATTACKED_IMAGES
    )
    robust = robust_accuracy(model, data, norm="l2", epsilon=EPSILON, attack="paper", batch_size=50).robust
    verified = verified_accuracy(model, data, Lipschitz())
    certain = verified.correct & verified.certificate.certifies(EPSILON)
    result = {"attacked": {"robust": robust.tolist(), "verified": certain.tolist()}}
    write_atomically(kept, json.dumps(result))
    return result


def _read(path: Path) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stored


def certified_images(weights: Path, data: str | None = None) -> dict[str, Any]:
    """Which evaluation images, of the card's data or other, are classified correctly, and how far each is certified."""
    model, card = load_model(str(weights)), read_card(weights.with_suffix(".json"))
    certified = verified_accuracy(model, eval_images(data or card.data, model.spec, IMAGES), Lipschitz())
    return {
        "correct": certified.correct.tolist(),
        "radius": certified.certificate.radius.tolist(),
        "lipschitz": certified.certificate.facts["lipschitz"],
        "accuracy": card.accuracy,
        "parameters": card.parameters,
        "minutes": None if card.run is None else card.run.minutes,
    }


def summary(row: str, seed: int, one: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one run, with Wilson intervals."""
    if "diverged" in one:
        return {"seed": seed, "diverged": one["diverged"]}
    correct, radius = np.array(one["correct"]), np.array(one["radius"])
    radii = SHAPES_RADII if row.startswith("shapes") else RADII
    result = {
        "seed": seed,
        "n": len(correct),
        "clean": share_summary(int(correct.sum()), len(correct)),
        "verified": [
            {"radius": r, **share_summary(int((correct & (radius > r)).sum()), len(correct))}
            | {"wrong": int((~correct & (radius > r)).sum())}
            for r in radii
        ],
        **{key: one[key] for key in ("lipschitz", "accuracy", "parameters", "minutes")},
    }
    if "attacked" in one:
        robust, verified = np.array(one["attacked"]["robust"]), np.array(one["attacked"]["verified"])
        result["attacked"] = {
            "n": len(robust),
            "robust": share_summary(int(robust.sum()), len(robust)),
            "verified": share_summary(int(verified.sum()), len(robust)),
            "verified but broken": int((verified & ~robust).sum()),
        }
    return result


def compared(rows: Sequence[str], runs: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any]:
    """Rows minus the first row on the same images: clean and verified at 36/255, means over the seeds that both have.

    The intervals are over images. `by_seed` has the difference of each seed, in the order of `seeds`.
    """
    found: dict[str, Any] = {}
    base, *others = rows
    for row in others:
        seeds = [seed for name, seed in runs if name == row and (base, seed) in runs]
        seeds = [seed for seed in seeds if not {"diverged"} & {*runs[row, seed], *runs[base, seed]}]
        if not seeds:
            continue
        found[row] = {"seeds": seeds}
        for number in ("clean", "verified"):
            one, other = (np.array([_right(runs[name, seed], number) for seed in seeds]) for name in (base, row))
            change = paired(one.mean(0), other.mean(0))
            found[row][number] = {"difference": change.difference, "low": change.low, "high": change.high, "p": change.p}
            found[row][number]["by_seed"] = (other - one).mean(1).tolist()
    return found


def _right(run: Mapping[str, Any], number: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    correct = np.array(run["correct"])
    right = correct if number == "clean" else correct & (np.array(run["radius"]) > EPSILON)
    return right.astype(np.float64)


def results(seeds: Iterable[int], runs: Mapping[tuple[str, int], Mapping[str, Any]], threats: Any) -> dict[str, Any]:
    """Everything as JSON has it; rows that are not finished are missing."""
    return {
        "command": f"python bench/certified_study.py --seeds {','.join(map(str, seeds))}",
        "small": SIZE | {"epochs": EPOCHS},
        "epsilon": EPSILON,
        "rows": {f"{row}_{seed}": summary(row, seed, one) for (row, seed), one in runs.items()},
        "tables": {table: list(rows) for table, rows in TABLES.items()},
        "compared": {table: compared(rows, runs) for table, rows in TABLES.items() if table != "shapes"},
        "threatening_class": threats,
    }


def added(stored: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Stored results with new ones in their place: by row, by comparison and by number of classes."""
    compared = {table: stored.get("compared", {}).get(table, {}) | rows for table, rows in new["compared"].items()}
    parts = {name: stored.get(name, {}) | new[name] for name in ("rows", "threatening_class")}
    return {**new, **parts, "compared": compared}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", help="rows, separated by commas; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/certified_study"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_study.json"))
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    chosen = given.only.split(",") if given.only else list(dict.fromkeys(ORDER))
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    threats: dict[str, Any] = {}
    stored = _read(given.out) if given.only and given.out.exists() else {}

    def write() -> None:
        write_atomically(given.out, json.dumps(added(stored, results(seeds, runs, threats)), indent=1) + "\n")

    rows = [(row, seed) for seed in seeds for row in chosen if not (seed and row in CHECKPOINTS)]
    for row, seed in rows:
        runs[row, seed] = measured(row, seed, given.runs)
        write()
        print(row, seed, flush=True)
    for row, seed in rows:
        if row in ATTACKED and "diverged" not in runs[row, seed]:
            runs[row, seed] |= attacked(row, seed, given.runs)
            write()
    for classes in CLASSES:
        if not given.only or finished_threats(classes, given.runs):
            threats[str(classes)] = threat_changes(ROWS["trades"], classes, given.runs)
            write()


if __name__ == "__main__":
    main()
