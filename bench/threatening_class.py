"""Figure 5.4 of the thesis: how often the class nearest to the prediction changes from one epoch of a training to the next.

The threatening class of an image is the one with the second-largest logit. It is taken at the end of each epoch, on training
images without augmentation. `bench/certified_study.py` writes the shares.
"""

from __future__ import annotations

import itertools
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locality.data.dataset import ImageDataset, load_dataset
from locality.files import write_atomically
from locality.training.averaging import AVERAGES, Average
from locality.training.loop import train
from locality.training.network import Weights
from locality.training.new_model import new_model
from locality.training.recipe import Recipe, recipe_from
from locality.training.run_state import State
from locality.training.schedules import Moment

IMAGES = 500
EPOCHS = 8
WATCHED: dict[str, tuple[Recipe, ImageDataset]] = {}  # what the run under way trains, by the name of its recipe


@dataclass(frozen=True)
class Watch:
    """Averages nothing: the last weights, and at the end of each epoch the threatening class of every watched image."""

    run: str

    def __call__(self, weights: Weights, state: State | None) -> Average:
        recipe, data = WATCHED[self.run]
        return _Watching(recipe, data, weights, list((state or {"threats": []})["threats"]))


class _Watching:
    stale_statistics = False

    def __init__(self, recipe: Recipe, data: ImageDataset, weights: Weights, threats: list[Tensor]) -> None:
        self.recipe, self.data, self.weights, self.threats = recipe, data, weights, threats

    @property
    def state(self) -> State:
        return {"threats": self.threats}

    def update(self, moment: Moment, weights: Weights) -> None:
        self.weights = weights
        if moment.ends_epoch:
            self.threats.append(threatening(self.recipe, self.data, weights))

    def result(self) -> Weights:
        return self.weights


@torch.no_grad()
def threatening(recipe: Recipe, data: ImageDataset, weights: Weights) -> Tensor:
    """N: the class with the second-largest logit."""
    model = new_model(recipe, data).eval()
    model.net.load_state_dict(weights)
    parts = [range(first, min(first + 100, len(data))) for first in range(0, len(data), 100)]
    return torch.cat([model(data.batch(part).images).topk(2).indices[:, 1] for part in parts])


def changes(threats: list[Tensor]) -> list[float]:
    """The share of images whose threatening class changes, from each epoch to the next.

    >>> changes([torch.tensor([1, 2]), torch.tensor([1, 0]), torch.tensor([1, 0])])
    [0.5, 0.0]
    """
    return [float((one != other).float().mean()) for one, other in itertools.pairwise(threats)]


def few_classes(source: Path, classes: int, out: Path) -> Path:
    """A zip of Tiny-ImageNet with the training photographs of its first classes."""
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    with zipfile.ZipFile(source) as whole, zipfile.ZipFile(part, "w") as some:
        listed = next(name for name in whole.namelist() if name.endswith("wnids.txt"))
        top = listed.removesuffix("wnids.txt")
        kept = whole.read(listed).decode().split()[:classes]
        some.writestr(listed, "\n".join(kept) + "\n")
        folders = tuple(f"{top}train/{wnid}/" for wnid in kept)
        for name in whole.namelist():
            if name.startswith(folders):
                some.writestr(name, whole.read(name))
    os.replace(part, out)
    return out


def finished_threats(classes: int, runs: Path) -> Path | None:
    """The file of a finished run."""
    kept = runs / f"threat_{classes}" / "threats.json"
    return kept if kept.exists() else None


def threat_changes(table: Mapping[str, Any], classes: int, runs: Path) -> dict[str, Any]:
    """Train a recipe on the first classes of the zip that LOCALITY_TINY_IMAGENET names; the shares after each epoch."""
    name = f"threat_{classes}"
    kept = runs / name / "threats.json"
    if finished_threats(classes, runs):
        stored: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return stored
    source = few_classes(Path(os.environ["LOCALITY_TINY_IMAGENET"]), classes, runs / f"classes_{classes}.zip")
    AVERAGES["watch"] = Watch
    changed = {"name": name, "epochs": EPOCHS, "data": {"name": f"tiny-imagenet:{source}"}}
    recipe = recipe_from({**table, **changed, "average": {"name": "watch", "run": name}}, name)
    data = load_dataset(recipe.data.name, split="train", limit=IMAGES)
    WATCHED[name] = (recipe, data)
    train(recipe, runs / name)
    state = torch.load(runs / name / "state.pt", weights_only=True)
    result = {"classes": classes, "n": len(data), "changed": changes(state["memory"]["average"]["threats"])}
    write_atomically(kept, json.dumps(result))
    return result
