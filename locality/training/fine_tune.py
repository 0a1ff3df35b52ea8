"""`fine_tune`: train a copy of a given model on given images, with a new head if their classes differ."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from locality.data.dataset import ImageDataset
from locality.progress import Progress, no_progress
from locality.training.loop import train
from locality.training.losses.standard import Standard
from locality.training.new_model import Beginning
from locality.training.optimizer import Optimizer
from locality.training.recipe import IN_MEMORY, Recipe
from locality.training.recipe_parts import Augmentation, FineTuning, Net, TrainingData
from locality.training.step import Loss
from locality.types import ModelSpec
from locality.zoo.checkpoint import wrapped
from locality.zoo.heads import check_new_classes, find_head, replace_head
from locality.zoo.load import load_model
from locality.zoo.pixel_model import PixelModel

STANDARD, UNCHANGED, CAREFUL = Standard(), Augmentation(), FineTuning()


def fine_tune(
    model: nn.Module | str | Path,
    data: ImageDataset,
    epochs: int = 3,
    *,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    loss: Loss = STANDARD,
    augmentation: Augmentation = UNCHANGED,
    tuning: FineTuning = CAREFUL,
    seed: int = 0,
    device: str | None = None,
    progress: Progress = no_progress,
) -> PixelModel:
    """A copy of `model`, trained on `data` for a few epochs by AdamW and one cycle of the learning rate.

    `model` is a name that `load_model` takes, or a module from pixels in [0, 1] to logits. It is left as it was. `data` are
    images with labels, such as `load_dataset(NAME, split="train")`; they are fitted to the model's input size, and labels
    index the data's own classes. If these are not the model's, the copy gets a new head with random weights: its last linear
    layer or convolution is replaced. A network whose head cannot be found is an error that names it.

    Layers before the head learn at `tuning.body_rate` (0.1) of the `learning_rate`, or not at all in the first
    `tuning.head_epochs`. BatchNorm keeps the model's statistics (`tuning.batch_norm="frozen"`), which those of a few images
    would not improve; networks whose statistics do not suit the images need `FineTuning(batch_norm="train")`.

    The same seed gives the same weights. Its `.spec` lists the classes. `progress(done, total)` counts steps.

    >>> from locality.data.dataset import load_dataset
    >>> data = load_dataset("shapes", split="train", limit=16, count=100)
    >>> tuned = fine_tune("shapes_cnn", data, epochs=1, batch_size=8)
    >>> tuned.spec.classes == data.classes
    True
    """
    given = load_model(model) if isinstance(model, str | Path) else model
    classes = data.source.classes
    check_new_classes(len(classes))
    template = _with_classes(given, classes, seed)
    fitted = data.for_model(template.spec)
    recipe = Recipe(
        template.spec.name,
        Net(IN_MEMORY),
        TrainingData(IN_MEMORY),
        epochs,
        start=IN_MEMORY,
        batch_size=min(batch_size, len(fitted)),
        seed=seed,
        augmentation=augmentation,
        loss=loss,
        optimizer=Optimizer(learning_rate=learning_rate),
        fine_tuning=tuning,
    )
    begun = Beginning(fitted, lambda: copy.deepcopy(template), lambda model: "weights of the given model")
    with TemporaryDirectory() as folder:
        return train(recipe, Path(folder), progress, device, begin=lambda: begun).model


def _with_classes(given: nn.Module, classes: tuple[str, ...], seed: int) -> PixelModel:
    """A copy of the model on the CPU, which knows its head, and has a new one unless these are its classes."""
    inner = copy.deepcopy(given).cpu().requires_grad_(True).eval()
    spec = getattr(inner, "spec", None)
    model = wrapped(inner, IN_MEMORY, spec.name if isinstance(spec, ModelSpec) else type(inner).__name__)
    head = find_head(model)
    if model.spec.classes != classes:
        replace_head(model, head, len(classes), seed)
        model.spec = replace(model.spec, classes=classes, num_classes=len(classes))
    model.head_name = head
    return model
