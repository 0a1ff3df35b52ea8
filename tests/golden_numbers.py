"""Numbers that a change of the code must not change: boundary distances, F1, and the terms of the first training steps.

    python tests/golden_numbers.py > tests/golden_numbers.json

The committed numbers were measured before the redesign of 2026. Write them again only where a change of the numbers is the
point of a change of the code, and say so in its commit.
"""

from __future__ import annotations

import functools
import json
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from locality import evaluate, find_boundary, load_dataset, load_model
from locality.data.dataset import ImageDataset
from locality.training import loop
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.trades import Trades
from locality.training.recipe import Recipe, read_recipe
from locality.types import Norm
from locality.zoo.pixel_model import PixelModel

MODELS = ("shapes_cnn", "shapes_cnn_robust")
NORMS: tuple[Norm, ...] = ("l2", "linf")
RECIPES = ("shapes_cnn", "shapes_cnn_robust", "shapes_cnn_robust with trades")
METHODS = ("SM", "IG", "BSM", "BIG")
IMAGES = 8
STEPS, STEPS_PER_EPOCH = 5, 4


class EnoughStepsError(Exception):
    """Ends a training run."""


@functools.cache
def model_and_data(name: str) -> tuple[PixelModel, ImageDataset]:
    model = load_model(name)
    return model, load_dataset("shapes", limit=IMAGES, spec=model.spec)


def boundary(model_name: str, norm: Norm) -> dict[str, list[float]]:
    """Distances found by `fast`, and the gradients they took; each image is searched alone, so that it has its own count."""
    model, data = model_and_data(model_name)
    edges = [find_boundary(model, image[None], norm=norm) for image in data.batch(range(IMAGES)).images]
    return {"distance": [edge.distance.item() for edge in edges], "gradients": [edge.gradients for edge in edges]}


def f1(model_name: str) -> dict[str, list[float]]:
    """F1 of each image, by method."""
    rows = evaluate(*model_and_data(model_name), METHODS, progress=False).rows
    return {method: rows.loc[rows["method"] == method, "f1"].tolist() for method in METHODS}


def recipe_of(name: str) -> Recipe:
    """A shipped recipe with so few images that the warm-up of epsilon is seen; `with trades`: with that loss instead."""
    shipped, _, other_loss = name.partition(" with ")
    recipe = read_recipe(shipped)
    if other_loss:
        assert isinstance(recipe.loss, Adversarial)
        recipe = replace(recipe, loss=Trades(recipe.loss.attack))
    return replace(recipe, data=replace(recipe.data, limit=STEPS_PER_EPOCH * recipe.batch_size))


def training(name: str) -> list[dict[str, float]]:
    """Lines of the log of the first steps, one per step."""

    def stop(done: int, total: int | None) -> None:
        if done == STEPS:
            raise EnoughStepsError

    steps_between_lines, loop.STEPS_BETWEEN_LINES = loop.STEPS_BETWEEN_LINES, 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            with suppress(EnoughStepsError):
                loop.train(recipe_of(name), Path(folder), stop, device="cpu")
            return [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    finally:
        loop.STEPS_BETWEEN_LINES = steps_between_lines


def all_numbers() -> dict[str, Any]:
    return {
        "boundary": {f"{model} {norm}": boundary(model, norm) for model in MODELS for norm in NORMS},
        "f1": {model: f1(model) for model in MODELS},
        "training": {name: training(name) for name in RECIPES},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(all_numbers(), indent=1))
