"""Validation: a held-out part of the training images, measured at the ends of epochs; the best weights; early stopping.

The part is the same for every seed of a run, so that runs can be compared. What is measured is what the run would end with,
the average of the weights, in eval mode and full precision. It changes no bit of the training.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.curvature.attacked_losses import STEPS, Losses, attacked_split
from locality.data.dataset import ImageDataset
from locality.data.selection import even_order
from locality.errors import ArgumentError, Problem
from locality.training.averaging import Swa
from locality.training.batches import TrainingImages
from locality.training.run_state import State
from locality.training.schedules import Moment
from locality.training.settings import positive
from locality.training.step import TrainingStep
from locality.types import Threat
from locality.zoo.pixel_model import PixelModel

if TYPE_CHECKING:
    from locality.training.recipe import Recipe

BATCH = 64
# What the epochs are compared by: the numbers of a measurement, larger is better; later ones break ties.
RANKS = {
    "accuracy": ("accuracy", "loss"),
    "loss": ("loss",),
    "attacked_accuracy": ("attacked_accuracy", "attacked_loss"),
}


@dataclass(frozen=True)
class Validation:
    """Settings: the table `[validation]` of a recipe."""

    share: float = 0.1  # of the training images of each class that are held out
    every: int = 1  # epochs between two measurements; the last epoch is always measured
    by: Literal["accuracy", "loss", "attacked_accuracy"] = "accuracy"  # what the best epoch has the best of
    patience: int | None = None  # epochs without a better measurement after which the run ends; None: it goes on

    def problems(self) -> list[Problem]:
        problems = positive("every", self.every) + positive("patience", 1 if self.patience is None else self.patience)
        if not 0 < self.share < 1:
            problems.append(Problem("share", f"must be a share between 0 and 1, got {self.share}"))
        return problems

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        if not isinstance(recipe.average, Swa):
            return []
        return [Problem("", 'cannot choose an epoch of average = { name = "swa" }, which is a mean of epochs: use ema')]


@dataclass
class BestEpoch:
    """Measures the held-out images at the ends of epochs, and keeps the weights of the best one."""

    settings: Validation
    images: TrainingImages
    threat: Threat
    steps: int = STEPS  # of the attack
    epoch: int = 0  # the best one, counted from 1; 0: none was measured
    rank: list[float] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    stops: bool = False  # whether `patience` is over

    @property
    def state(self) -> State:
        """What a resumed run needs to continue."""
        return {"epoch": self.epoch, "rank": self.rank, "weights": self.weights, "stops": self.stops}

    def __call__(self, moment: Moment, step: TrainingStep) -> dict[str, Any]:
        """Columns of the log, the same in every process; none where nothing is to be measured."""
        epoch = moment.epoch + 1
        if not moment.ends_epoch or (epoch % self.settings.every and epoch < moment.epochs):
            return {}
        numbers: dict[str, float] = {}
        if step.accelerator.is_main_process:
            model = copy.deepcopy(step.network.model)
            model.net.load_state_dict(step.average.result())
            numbers = self.measure(model.eval().requires_grad_(False))
        if step.accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            (numbers,) = broadcast_object_list([numbers])
        rank = [_sign(name) * numbers[name] for name in RANKS[self.settings.by]]
        rank = [number if math.isfinite(number) else -math.inf for number in rank]
        if self.epoch == 0 or rank > self.rank:
            self.epoch, self.rank = epoch, rank
            self.weights = {name: value.detach().clone() for name, value in step.average.result().items()}
        patience = self.settings.patience
        self.stops = patience is not None and epoch - self.epoch >= patience and epoch < moment.epochs
        return {f"validation_{name}": value for name, value in numbers.items()} | {"best_epoch": self.epoch}

    def measure(self, model: PixelModel) -> dict[str, float]:
        """Accuracy and cross-entropy of the held-out images, and under attack where that decides."""
        logits, labels = [], []
        device = model.mean.device
        for images, of_images in self.images.in_order(BATCH):
            with torch.no_grad():
                logits.append(model(images.to(device)).cpu())
            labels.append(of_images)
        every, correct = torch.cat(logits).double(), torch.cat(labels)
        numbers = {
            "accuracy": float((every.argmax(1) == correct).double().mean()),
            "loss": float(cross_entropy(every, correct)),
        }
        if self.settings.by == "attacked_accuracy":
            parts = self.images.in_order(BATCH)
            seen = Losses.cat([attacked_split(model, part, self.threat, self.steps, device=device).losses for part in parts])
            errors, losses = seen.robust_error, seen.robust_loss
            numbers |= {"attacked_accuracy": 1 - float(errors.mean()), "attacked_loss": float(losses.mean())}
        return numbers


def best_epoch(recipe: Recipe, held_out: ImageDataset | None, state: State | None) -> BestEpoch | None:
    """What follows the held-out images of a run, from the state of an interrupted run if there was one."""
    if recipe.validation is None or held_out is None:
        return None
    images = TrainingImages(held_out, recipe.augmentation, recipe.seed)
    images.keep(lambda done, total: None)
    threat = recipe.threat or Threat("linf", recipe.evaluate_epsilon)
    steps = getattr(recipe.loss, "evaluation_steps", STEPS)  # a loss that attacks of few steps flatter has more
    return BestEpoch(recipe.validation, images, threat, steps, **(state or {}))


def held_out_part(data: ImageDataset, share: float) -> tuple[ImageDataset, ImageDataset]:
    """The images to train on, and those held out: this share of each class, at least one image, and not all.

    Which they are depends on their ids alone.
    """
    manifest = data.manifest.images
    labels = manifest["label"].to_numpy()
    order = even_order(labels, manifest["id"].tolist(), seed=0)
    held = np.zeros(len(data), dtype=np.bool_)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        held[of_class[: min(max(1, round(share * len(of_class))), len(of_class) - 1)]] = True
    if not held.any():
        raise ArgumentError("validation", "left out for classes of one image each", share)
    return data.take(np.flatnonzero(~held)), data.take(np.flatnonzero(held))


def _sign(name: str) -> float:
    """1 for numbers that should be large, −1 for losses."""
    return -1.0 if name.endswith("loss") else 1.0


def best_text(line: Mapping[str, Any]) -> str:
    """The validation columns of a line of the log, in words.

    >>> best_text({"epoch": 3, "validation_accuracy": 0.9, "validation_loss": 0.31, "best_epoch": 3})
    'validation 90.0% (loss 0.310; best so far)'
    >>> best_text({"epoch": 4, "validation_accuracy": 0.8, "validation_loss": 0.35, "best_epoch": 3})
    'validation 80.0% (loss 0.350; best: epoch 3)'
    """
    attacked = line.get("validation_attacked_accuracy")
    under_attack = "" if attacked is None else f", attacked {attacked:.1%}"
    best = "best so far" if line["best_epoch"] == line["epoch"] else f"best: epoch {line['best_epoch']}"
    return f"validation {line['validation_accuracy']:.1%}{under_attack} (loss {line['validation_loss']:.3f}; {best})"


def best_epoch_text(best: BestEpoch, epochs: int) -> str:
    """Which epoch the weights are of, in one sentence.

    >>> images = TrainingImages.__new__(TrainingImages)
    >>> best_epoch_text(BestEpoch(Validation(), images, Threat("linf", 0.1), epoch=3, rank=[0.92, -0.3]), 10)
    'The weights are those of epoch 3 of 10, which has the best validation accuracy, 92.0%.'
    """
    if not best.epoch:
        return "No epoch was measured."
    name, value = best.settings.by, abs(best.rank[0])
    shown = f"{value:.3f}" if name == "loss" else f"{value:.1%}"
    stopped = f" The run stopped early, after {best.settings.patience} more without a better one." if best.stops else ""
    words = name.replace("_", " ")
    return (
        f"The weights are those of epoch {best.epoch} of {epochs}, which has the best validation {words}, {shown}.{stopped}"
    )
