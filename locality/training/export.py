"""What a run leaves behind: weights in half precision, and a card with the accuracies of the weights as written."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from locality.certified.lipschitz import certificate_for
from locality.certified.verified_accuracy import verified_accuracy
from locality.data.dataset import ImageDataset
from locality.files import file_hash, write_atomically
from locality.progress import Progress, no_progress
from locality.robustness.pgd import pgd
from locality.training.batches import eval_images
from locality.training.loop import Trained
from locality.training.losses.certified_loss import CertifiedLoss
from locality.training.new_model import new_model
from locality.training.recipe import Recipe
from locality.types import Threat
from locality.zoo.model_card import (
    ModelCard,
    TrainingRun,
    WeightFile,
    accuracy_name,
    card_path,
    certified_name,
    write_card,
)
from locality.zoo.pixel_model import PixelModel

PGD_STEPS = 10
BATCH = 100
MOST_IMAGES = 2_000
# Variants of a data set that are measured besides its own `eval` split: without the planted cue, and with another class's.
VARIANTS = {"shapes": ("shapes:none", "shapes:swapped")}


def write_model(trained: Trained, recipe: Recipe, out: Path, progress: Progress = no_progress) -> ModelCard:
    """Write `out/NAME.safetensors` and its card, `out/NAME.json`; accuracies are measured after reading the weights back."""
    weights = out / f"{recipe.name}.safetensors"
    write_weights(trained.model, weights)
    model = new_model(recipe, trained.data)
    model.net.load_state_dict({name: _full(value) for name, value in load_file(weights).items()})
    card = ModelCard(
        spec=model.spec,
        architecture=f"net:{recipe.net.name}",
        options=recipe.net.options,
        weights=WeightFile(str(weights), f"sha256:{file_hash(weights)}"),
        parameters=sum(value.numel() for value in model.parameters()),
        data=recipe.data.name.split(":")[0],  # without its folder on this machine
        training=recipe.loss_name if recipe.epochs or recipe.start else "random",
        threat=recipe.threat,
        accuracy=accuracies(model.eval(), recipe, progress),
        licence="Apache-2.0",
        paper="trained with locality (locality/training/recipes)",
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
    """Write the network's tensors in half precision; vectors (biases, BatchNorm) stay in full precision.

    Vectors are few, and variances may be tiny. Numbers beyond 65,504, which half precision cannot hold, are an error.
    """
    tensors = {
        name: (value.half() if value.is_floating_point() and value.dim() > 1 else value).contiguous()
        for name, value in model.net.state_dict().items()
    }
    bad = [name for name, value in tensors.items() if value.is_floating_point() and not value.isfinite().all()]
    if bad:
        raise ValueError(
            f"`{path.name}` cannot be written: {len(bad)} of {len(tensors)} tensors contain nan or numbers beyond 65,504, "
            f"the largest in half precision ({', '.join(bad[:5])}): lower `learning_rate`, or set `clip_norm`"
        )
    write_atomically(path, lambda part: save_file(tensors, part))


def accuracies(model: PixelModel, recipe: Recipe, progress: Progress = no_progress) -> dict[str, float]:
    """Shares of the `eval` split that are classified correctly: clean, under PGD, provably, and in the data set's variants.

    PGD is run at the threat that the model was trained against, if any, and at ℓ∞ with the recipe's `evaluate_epsilon`.
    A loss that attacks of few steps flatter has `evaluation_steps`, the number of steps of a second PGD. Models of certified
    training are certified at the radius of their recipe.
    """
    name, spec = recipe.data.name, getattr(model, "spec", None)
    data = eval_images(name, spec, MOST_IMAGES)
    threats = [recipe.threat, Threat("linf", recipe.evaluate_epsilon)]
    attacks = {
        accuracy_name(threat, f"pgd{steps}"): (threat, steps)
        for steps in sorted({PGD_STEPS, getattr(recipe.loss, "evaluation_steps", PGD_STEPS)}, reverse=True)
        for threat in threats
        if threat is not None
    }
    counts = _correct(model, data, attacks, progress)
    shares = {measurement: round(count / len(data), 4) for measurement, count in counts.items()}
    if isinstance(recipe.loss, CertifiedLoss):
        radius = recipe.loss.epsilon
        certified = verified_accuracy(model, data, certificate_for(model), (radius,), progress=progress)
        shares[certified_name(recipe.loss.threat)] = round(certified.accuracy(radius), 4)
    for variant in VARIANTS.get(name.split(":")[0], ()):
        other = eval_images(variant, spec, MOST_IMAGES)
        shares[variant.split(":")[1]] = round(_correct(model, other, {}, progress)["clean"] / len(other), 4)
    return shares


def _correct(
    model: PixelModel, data: ImageDataset, attacks: dict[str, tuple[Threat, int]], progress: Progress
) -> dict[str, int]:
    """How many images are classified correctly, clean and under each attack; an image that is wrong clean stays wrong."""
    counts = dict.fromkeys(("clean", *attacks), 0)
    for first in range(0, len(data), BATCH):
        indices = range(first, min(first + BATCH, len(data)))
        batch = data.batch(indices)
        clean = _right(model, batch.images, batch.labels)
        counts["clean"] += int(clean.sum())
        for measurement, (threat, steps) in attacks.items():
            points = pgd(model, batch.images, batch.labels, threat.radius, threat.norm, steps=steps)
            counts[measurement] += int((clean & _right(model, points, batch.labels)).sum())
        progress(indices[-1] + 1, len(data))
    return counts


@torch.no_grad()
def _right(model: PixelModel, images: Tensor, labels: Tensor) -> Tensor:
    logits: Tensor = model(images)
    return logits.argmax(1) == labels


def _full(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value
