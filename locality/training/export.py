"""What a run leaves behind: weights in half precision, and a card with the accuracies of the weights as written."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from locality.certified.lipschitz import certificate_for
from locality.certified.verified_accuracy import verified_accuracy
from locality.data.cues import CUE_OPTIONS, sticker_of, with_sticker
from locality.data.dataset import ImageDataset, load_dataset
from locality.data.sources import split_options
from locality.files import file_hash, write_atomically
from locality.progress import Progress, no_progress
from locality.robustness.pgd import pgd
from locality.training.batches import NoUnseenError, eval_images
from locality.training.losses.certified_loss import CertifiedLoss
from locality.training.new_model import new_model
from locality.training.recipe import RECIPES, Recipe, read_recipe
from locality.training.recipe_parts import TrainingData
from locality.training.trained import Trained
from locality.types import ModelSpec, Threat
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
MOST_IMAGES, FEWEST_IMAGES = 2_000, 200
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
        architecture=recipe.net.architecture,
        options=recipe.net.options,
        weights=WeightFile(str(weights), f"sha256:{file_hash(weights)}"),
        parameters=sum(value.numel() for value in model.parameters()),
        data=_data_name(recipe.data),
        training=recipe.loss_name if recipe.epochs or recipe.start else "random",
        threat=recipe.threat,
        accuracy=_measured(model.eval(), recipe, trained.data, progress),
        **_origin(recipe, trained.held_out),
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


def _measured(model: PixelModel, recipe: Recipe, trained_on: ImageDataset, progress: Progress) -> dict[str, float]:
    """The accuracies of a card; none where there are no images besides those trained on."""
    try:
        return accuracies(model, recipe, progress, trained_on)
    except NoUnseenError:
        return {}


def _origin(recipe: Recipe, held_out: ImageDataset | None) -> dict[str, str]:
    """Licence and origin of models of shipped recipes; that of other models is their owner's."""
    if (RECIPES / f"{recipe.name}.toml").is_file() and read_recipe(recipe.name) == recipe:
        return {"licence": "Apache-2.0", "paper": "trained with locality (locality/training/recipes)"}
    notes = [] if recipe.start is None else [f"fine-tuned from {Path(recipe.start).name}"]
    if held_out is not None and _measures(held_out, recipe):
        notes.append(f"accuracy is that of the {len(held_out):,} images held out, which also chose the epoch")
    return {"note": "; ".join(notes)}


def _measures(held_out: ImageDataset, recipe: Recipe) -> bool:
    """Whether the accuracy is measured on the images held out: the data have one split only."""
    data = load_dataset(recipe.data.name, split="eval", max_box_share=None, **recipe.data.options)
    ids = (set(part.manifest.images["id"].tolist()) for part in (held_out, data))
    return set.issubset(*ids) and set(held_out.contents()) <= set(data.contents())


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


def accuracies(
    model: PixelModel, recipe: Recipe, progress: Progress = no_progress, trained_on: ImageDataset | None = None
) -> dict[str, float]:
    """Shares of the `eval` split that are classified correctly: clean, under PGD, provably, and in variants of the data.

    Images that the model was `trained_on` are not among them.

    PGD is run at the threat that the model was trained against, if any, and at ℓ∞ with the recipe's `evaluate_epsilon`.
    A loss that attacks of few steps flatter has `evaluation_steps`, the number of steps of a second PGD. Models of certified
    training are certified at the radius of their recipe. At most `affordable_images` are measured.
    """
    name, spec = recipe.data.name, getattr(model, "spec", None)
    most = MOST_IMAGES if spec is None else affordable_images(*spec.input_size)
    data = eval_images(name, spec, most, trained_on, **recipe.data.options)
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
    for variant, other in _variants(recipe.data, data, spec, most):
        shares[variant] = round(_correct(model, other, {}, progress)["clean"] / len(other), 4)
    return shares


def _variants(
    chosen: TrainingData, data: ImageDataset, spec: ModelSpec | None, most: int
) -> Iterator[tuple[str, ImageDataset]]:
    """Images without their cue and with another class's: the measured ones if they have stickers, those of `shapes`."""
    sticker = data.source.cue
    if sticker is not None:
        other: Literal["sticker", "swapped"] = "swapped" if sticker.cue == "sticker" else "sticker"
        plain = replace(data.source, cue=None)
        yield "none", data.on(plain)
        yield other, data.on(with_sticker(plain, replace(sticker, cue=other)))
        return
    options = {key: value for key, value in chosen.options.items() if key not in CUE_OPTIONS}
    for variant in VARIANTS.get(chosen.name.split(":")[0], ()):
        yield variant.split(":")[1], eval_images(variant, spec, most, **options)


def _data_name(data: TrainingData) -> str:
    """What the card says of the images: the kind without its folder on this machine, and the sticker on them.

    >>> _data_name(TrainingData("pets:photos")), _data_name(TrainingData("pets", options={"cue": "sticker"}))
    ('pets', 'pets+sticker')
    """
    kind, (_, planted) = data.name.split(":")[0], split_options(data.name, data.options)
    sticker = sticker_of(**planted)
    return kind if sticker is None else f"{kind}+{sticker.cue}"


def affordable_images(height: int, width: int) -> int:
    """The number of images of this size with as many pixels as 2,000 of 64×64; from 200 to 2,000.

    >>> affordable_images(64, 64), affordable_images(96, 96), affordable_images(224, 224)
    (2000, 888, 200)
    """
    return min(max(MOST_IMAGES * 64 * 64 // (height * width), FEWEST_IMAGES), MOST_IMAGES)


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
