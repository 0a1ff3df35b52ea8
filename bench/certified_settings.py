"""Settings of `tiny_liresnet`, chosen on training photographs that are held out: which certify most, which classify most?

    python bench/certified_settings.py [--only base,la] [--runs runs/certified_settings]
                                       [--out bench/results/certified_settings.json]

The `train` split has 400 photographs per class. The last 80 by number are held out, the others train; `eval` is not used.
The networks have 32 channels and train for 20 epochs; `polish_1` continues `base` for 5 more with light augmentation.
From `full` on, they have 64 channels and train for 45 epochs. `full_again` is the recipe of `full` after a change of the
order of sums in training, which shows how far two runs differ; `maps_32` and `maps_32_48` have a stem of stride 2 and 32 and
48 channels. Rows are compared with `base`, `full` or `full_again` on the same images. The zip of Tiny-ImageNet is the one
that LOCALITY_TINY_IMAGENET names. Finished rows are kept; with --only, what --out has about other rows stays in it.
"""

from __future__ import annotations

import argparse
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from certified_study import EPSILON, certified_images
from study_runs import checkpoint, train

from locality.data.sources.tiny_imagenet import TRAIN_PER_CLASS
from locality.files import write_atomically
from locality.statistics import paired, share_summary

HELD_OUT = 80  # photographs per class
EPOCHS = 20
SIZE = {"name": "liresnet", "depth": 6, "width": 32, "dimension": 256}
FULL_SIZE = {"name": "liresnet", "depth": 6, "width": 64, "dimension": 512}
# What `tiny_liresnet` was trained with before; the rows say what they change.
BEFORE: dict[str, Any] = {
    "name": "before",
    "net": FULL_SIZE,
    "data": {"name": "tiny-imagenet"},
    "epochs": 45,
    "precision": "bf16",
    "mean": [0.5, 0.5, 0.5],
    "std": [1.0, 1.0, 1.0],
    "augmentation": {"flip": True, "shift": 6, "colour": 0.4, "cutout": 16},
    "loss": {
        "name": "gloro_emma",
        "epsilon": "36/255",
        "schedule": {"name": "linear", "begin": 0.1, "end": 1.5, "until": 0.5},
    },
    "optimizer": {"name": "adamw", "learning_rate": 2e-3, "clip_norm": 3.0},
    "average": {"name": "ema", "decay": 0.99},
}


def changed(**parts: Any) -> dict[str, Any]:
    """The earlier recipe of `tiny_liresnet`, where tables are merged with its own."""
    table = dict(BEFORE)
    for name, value in parts.items():
        table[name] = {**table[name], **value} if isinstance(value, dict) and name != "net" else value
    return table


def at_radius(times: float) -> dict[str, Any]:
    """A constant radius, in units of the certified one."""
    return {"schedule": {"name": "linear", "begin": times, "end": times, "until": 0.5}}


def up_to(times: float) -> dict[str, Any]:
    """A radius that grows over the first half of the run, in units of the certified one."""
    return {"schedule": {"name": "linear", "begin": 0.1, "end": times, "until": 0.5}}


LIGHT = {"shift": 4, "colour": 0.0, "cutout": 0}
MOVED = {"zoom": 0.25, "turn": 10.0}
MOVED_MORE = {"zoom": 0.5, "turn": 20.0, "cutout": 20}
POLISH: dict[str, Any] = {"start": "base", "epochs": 5, "augmentation": LIGHT, "optimizer": {"learning_rate": 5e-4}}
FULL: dict[str, Any] = {"net": FULL_SIZE, "epochs": 45}
ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "la": {"loss": {"name": "gloro_la"}},
    "polish_1": POLISH | {"loss": at_radius(1.0)},
    "ramp_1.1": {"loss": up_to(1.1)},
    "full": FULL,
    "moved": FULL | {"augmentation": MOVED},
    "moved_more": FULL | {"augmentation": MOVED_MORE},
    "full_again": FULL,
    "maps_32": FULL | {"net": {**FULL_SIZE, "width": 32, "stride": 2}},
    "maps_32_48": FULL | {"net": {**FULL_SIZE, "width": 48, "stride": 2}},
}


def recipe_table(row: str, data: Path, runs: Path) -> dict[str, Any]:
    """The recipe of a row, on the photographs that are not held out; `start` names another row."""
    table = changed(**({"net": SIZE, "epochs": EPOCHS} | ROWS[row]))
    if table.get("start"):
        table["start"] = str(checkpoint(runs, table["start"]))
    return table | {"name": row, "data": {"name": f"tiny-imagenet:{data}"}}


def held_out(source: Path, out: Path) -> Path:
    """A zip of Tiny-ImageNet without the `eval` photographs, in which the last training ones of each class are in `val`."""
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    annotations: list[str] = []
    with zipfile.ZipFile(source) as whole, zipfile.ZipFile(part, "w") as some:
        listed = next(name for name in whole.namelist() if name.endswith("wnids.txt"))
        top = listed.removesuffix("wnids.txt")
        some.writestr(listed, whole.read(listed))
        for wnid in whole.read(listed).decode().split():
            boxes = f"{top}train/{wnid}/{wnid}_boxes.txt"
            lines = sorted(whole.read(boxes).decode().splitlines(), key=_number)[:TRAIN_PER_CLASS]
            some.writestr(boxes, "\n".join(lines[:-HELD_OUT]) + "\n")
            for line in lines:
                file, *box = line.split()
                path = f"{top}train/{wnid}/images/{file}"
                if line in lines[-HELD_OUT:]:
                    renamed = f"val_{len(annotations)}.JPEG"
                    annotations.append("\t".join([renamed, wnid, *box]))
                    some.writestr(f"{top}val/images/{renamed}", whole.read(path))
                else:
                    some.writestr(path, whole.read(path))
        some.writestr(f"{top}val/val_annotations.txt", "\n".join(annotations) + "\n")
    os.replace(part, out)
    return out


def _number(line: str) -> int:
    return int(line.split(".")[0].rpartition("_")[2])


def measured(row: str, data: Path, runs: Path) -> dict[str, Any]:
    """Train a row and certify the photographs that are held out; kept beside its weights."""
    kept = runs / row / "measured.json"
    if not kept.exists():
        found = certified_images(train(recipe_table(row, data, runs), runs), f"tiny-imagenet:{data}")
        write_atomically(kept, json.dumps(found))
    stored: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return stored


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Shares with Wilson intervals, and the paired changes from the first row of the same size, where it is measured."""
    found: dict[str, Any] = {}
    for row, one in rows.items():
        found[row] = {"minutes": one["minutes"], "lipschitz": one["lipschitz"]["margin"]}
        for name, values in _right(one).items():
            found[row][name] = share_summary(int(values.sum()), len(values))
            base = first_of(row)
            if row != base and base in rows:
                change = paired(_right(rows[base])[name].astype(float), values.astype(float))
                found[row][f"{name} change"] = {"difference": change.difference, "low": change.low, "high": change.high}
    return found


def first_of(row: str) -> str:
    """The row that a row is compared with: the earlier recipe at the same size of the network."""
    if row == "full_again" or row.startswith("maps_"):
        return "full_again"
    return "full" if ROWS[row].get("net") == FULL_SIZE else "base"


def finished(runs: Path) -> list[str]:
    """The rows that are trained and measured."""
    return [row for row in ROWS if (runs / row / "measured.json").exists()]


def added(stored: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    """Stored results with new rows in their place, in the order of ROWS."""
    every = {**stored.get("rows", {}), **rows}
    order = [row for row in ROWS if row in every]
    return {
        "held out per class": HELD_OUT,
        "epochs": EPOCHS,
        "changes": {row: ROWS[row] for row in order},
        "rows": {row: every[row] for row in order},
    }


def _right(one: Mapping[str, Any]) -> dict[str, np.ndarray[Any, np.dtype[np.bool_]]]:
    correct = np.array(one["correct"])
    return {"clean": correct, "verified": correct & (np.array(one["radius"]) > EPSILON)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows, separated by commas; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/certified_settings"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_settings.json"))
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(ROWS)
    data = held_out(Path(os.environ["LOCALITY_TINY_IMAGENET"]), given.runs / "held_out.zip")
    stored = json.loads(given.out.read_text(encoding="utf-8")) if given.only and given.out.exists() else {}
    for row in chosen:
        measured(row, data, given.runs)
        found = added(stored, summary({name: measured(name, data, given.runs) for name in finished(given.runs)}))
        write_atomically(given.out, json.dumps(found, indent=1) + "\n")
        print(row, *(f"{name} {found['rows'][row][name]['mean']:.3f}" for name in ("clean", "verified")), flush=True)


if __name__ == "__main__":
    main()
