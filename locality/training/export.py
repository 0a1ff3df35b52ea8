"""What a run leaves behind: weights in half precision, and a card with what they measure when they are read back."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from locality.data.dataset import load_dataset
from locality.files import file_hash
from locality.progress import Progress
from locality.robustness.pgd import pgd
from locality.training.loop import Trained, new_model
from locality.training.recipe import Recipe
from locality.types import Threat
from locality.zoo.model_card import ModelCard, TrainingRun, WeightFile, card_path, write_card
from locality.zoo.pixel_model import PixelModel

PGD_STEPS = 10
BATCH = 100
# What is measured besides the data set's own `eval` split: the planted cue away, and another class's.
ALSO = {"shapes": ("shapes:none", "shapes:swapped")}


def write_model(trained: Trained, recipe: Recipe, out: Path, progress: Progress = lambda done, total: None) -> ModelCard:
    """Write `out/NAME.safetensors` and its card, `out/NAME.json`; accuracies are of the weights as a reader finds them."""
    weights = out / f"{recipe.name}.safetensors"
    write_weights(trained.model, weights)
    model = new_model(recipe, trained.data)
    model.net.load_state_dict({name: _full(value) for name, value in load_file(weights).items()})
    is_attacked = recipe.loss.name != "standard"
    card = ModelCard(
        spec=model.spec,
        architecture=f"net:{recipe.net}",
        weights=WeightFile(str(weights), f"sha256:{file_hash(weights)}"),
        parameters=sum(value.numel() for value in model.parameters()),
        data=recipe.data.name.split(":")[0],  # without the place on this machine
        training=recipe.loss.name if recipe.epochs or recipe.start else "random",
        threat=Threat(recipe.loss.norm, recipe.loss.epsilon) if is_attacked else None,
        accuracy=accuracies(model.eval(), recipe, progress),
        licence="Apache-2.0",
        paper="trained here: locality/training/recipes",
        run=TrainingRun(
            data_hash=trained.data.fingerprint(),
            recipe=recipe.as_table(),
            seed=recipe.seed,
            minutes=round(trained.minutes, 1),
            versions={"python": platform.python_version()} | {name: version(name) for name in ("torch", "timm", "locality")},
        ),
    )
    write_card(card, card_path(weights))
    return card


def write_weights(model: PixelModel, path: Path) -> None:
    """The network's tensors in half precision; vectors (biases, BatchNorm) stay whole: few, and variances may be tiny.

    An error where half precision, which ends at 65,504, cannot hold them.
    """
    tensors = {
        name: (value.half() if value.is_floating_point() and value.dim() > 1 else value).contiguous()
        for name, value in model.net.state_dict().items()
    }
    bad = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if bad:
        raise ValueError(
            f"`{path.name}` cannot be written: {len(bad)} of {len(tensors)} tensors have nan, or numbers beyond 65,504, the "
            f"most that half precision holds ({', '.join(bad[:5])}): lower `learning_rate`, or set `clip_norm`"
        )
    part = path.with_name(f"{path.name}.part")
    save_file(tensors, part)
    os.replace(part, path)


def accuracies(model: PixelModel, recipe: Recipe, progress: Progress = lambda done, total: None) -> dict[str, float]:
    """Shares of the `eval` split that are right: as it is, and under PGD at the recipe's `evaluate_epsilon`."""
    name = recipe.data.name
    others = ALSO.get(name.split(":")[0], ())
    found = {}
    for source in (name, *others):
        data = load_dataset(source, split="eval", max_box_share=None, limit=2_000)
        batches = [range(first, min(first + BATCH, len(data))) for first in range(0, len(data), BATCH)]
        clean = attacked = 0
        for indices in batches:
            batch = data.batch(indices)
            with torch.no_grad():
                clean += int((model(batch.images).argmax(1) == batch.labels).sum())
            if source == name:
                attacked += _right_under_attack(model, batch.images, batch.labels, recipe.evaluate_epsilon)
            progress(indices[-1] + 1, len(data))
        title = "clean" if source == name else source.split(":")[1]
        found[title] = round(clean / len(data), 4)
        if source == name:
            found[f"linf {recipe.evaluate_epsilon * 255:g}/255 pgd{PGD_STEPS}"] = round(attacked / len(data), 4)
    return found


def _right_under_attack(model: PixelModel, images: Tensor, labels: Tensor, epsilon: float) -> int:
    worst = pgd(model, images, labels, epsilon, steps=PGD_STEPS)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels) & (model(worst).argmax(1) == labels)
    return int(right.sum())


def _full(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value
