"""Dose and response with an answer known in advance: from which certified radius on is a planted cue useless?

    python bench/certified_dose.py [--runs runs/certified_dose] [--out bench/results/certified_dose.json]

The cue of `shapes:background:1` is ±1/255. An image and its copy with the cue of the next class are a distance D apart. A
network that follows the cue decides differently on the two, so their certified radii add up to D at most: it cannot be
certified above D/2 on both. A network that is certified above D/2 on most images must look at the object.

Every row trains with the cue at the radius in its name (`standard`: cross-entropy alone), from random weights (`scratch`) or
from `uncued`, which learns the shapes without a cue, by EMMA at 0.14. Finished rows are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from study_runs import checkpoint, train

from locality import evaluate, load_dataset, load_model
from locality.certified.lipschitz import Lipschitz
from locality.files import write_atomically
from locality.statistics import share_summary, summary
from locality.training.recipe import read_recipe

CUED, UNCUED, SWAPPED = "shapes:background:1", "shapes:none", "shapes:swapped:1"
RADII = (0.0, 0.05, 0.14, 0.28, 0.4, 0.8, 1.27)
IMAGES, MEASURED = 1_000, 100  # certified, and measured for locality
METHODS = ("SM", "IG", "BIG")


def recipe_table(name: str, data: str, radius: float, epochs: int, start: Path | None) -> dict[str, Any]:
    """The recipe of `shapes_liresnet` at another radius: a ramp from scratch, a constant to 1.5 ε from a start."""
    table = read_recipe("shapes_liresnet").as_table()
    ramp = {"name": "linear", "begin": 0.1 if start is None else 1.0, "end": 2.0 if start is None else 1.5, "until": 0.5}
    loss = {"name": "gloro_emma", "epsilon": radius, "schedule": ramp} if radius else {"name": "standard"}
    changes = {"name": name, "data": {"name": data, "limit": 6000}, "epochs": epochs, "loss": loss}
    return table | changes | ({} if start is None else {"start": str(start)})


# Name ↦ data, radius, epochs, and whether it starts from `uncued`.
ROWS: dict[str, tuple[str, float, int, bool]] = {
    "scratch_standard": (CUED, 0.0, 4, False),
    "scratch_0.05": (CUED, 0.05, 4, False),
    "scratch_0.4": (CUED, 0.4, 4, False),
    "uncued": (UNCUED, 0.14, 8, False),
    "standard": (CUED, 0.0, 4, True),
    "0.05": (CUED, 0.05, 4, True),
    "0.4": (CUED, 0.4, 4, True),
}


def trained(row: str, runs: Path) -> Path:
    """The weights of a row."""
    data, radius, epochs, continued = ROWS[row]
    start = trained("uncued", runs) if continued else None
    name = f"dose_{row}"
    if checkpoint(runs, name).with_suffix(".json").exists():
        return checkpoint(runs, name)
    return train(recipe_table(name, data, radius, epochs, start), runs)


def measured(row: str, runs: Path) -> dict[str, Any]:
    """What a network decides with, without and against the cue, what it certifies, and where it looks."""
    kept = runs / f"dose_{row}" / "measured.json"
    if kept.exists():
        stored: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return stored
    model = load_model(str(trained(row, runs)))
    images = {name: _images(name) for name in (CUED, UNCUED, SWAPPED)}
    labels = images[CUED][1]
    certificate = Lipschitz()(model, images[CUED][0])
    decisions = {name: _decisions(model, one) for name, (one, _) in images.items()}
    apart = (images[CUED][0] - images[SWAPPED][0]).flatten(1).norm(dim=1).double()
    kept_decision = decisions[CUED] == decisions[SWAPPED]
    right, radius = certificate.prediction == labels, certificate.radius
    swapped = (labels + 1) % 10
    evaluation = evaluate(model, load_dataset(CUED, limit=MEASURED, spec=model.spec), methods=METHODS, progress=False)
    rows = evaluation.rows
    result = {
        "radius": ROWS[row][1],
        "n": len(labels),
        "right with cue": _share(right),
        "right without cue": _share(decisions[UNCUED] == labels),
        "follows a swapped cue": _share(decisions[SWAPPED] == swapped),
        "verified": [{"radius": one, **_share(right & (radius > one))} for one in RADII],
        "distance of the cues": {"least": float(apart.min()), "mean": float(apart.mean()), "largest": float(apart.max())},
        "certified above half the distance": _share(radius > apart / 2),
        "certified above the distance": _share(radius > apart),
        "certified above the distance, decides otherwise": int(((radius > apart) & ~kept_decision).sum()),
        "lift": {method: _mean(rows.loc[rows["method"] == method, "lift"].to_numpy()) for method in METHODS},
        "images of lift": int(rows["image_id"].nunique()),
    }
    write_atomically(kept, json.dumps(result))
    return result


def _images(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    data = load_dataset(name, limit=IMAGES, max_box_share=None)
    batch = data.batch(range(len(data)))
    return batch.images, batch.labels


@torch.no_grad()
def _decisions(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    return torch.cat([model(part).argmax(1) for part in images.split(100)])


def _share(values: torch.Tensor) -> dict[str, float | None]:
    return share_summary(int(values.sum()), len(values))


def _mean(values: np.ndarray[Any, Any]) -> dict[str, float]:
    found = summary(values)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows, separated by commas; by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs/certified_dose"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_dose.json"))
    given = parser.parse_args()
    found = {}
    for row in given.only.split(",") if given.only else ROWS:
        found[row] = measured(row, given.runs)
        write_atomically(given.out, json.dumps(found, indent=1) + "\n")
        shares = [f"{name} {found[row][name]['mean']:.1%}" for name in ("right without cue", "follows a swapped cue")]
        print(row, *shares, flush=True)


if __name__ == "__main__":
    main()
