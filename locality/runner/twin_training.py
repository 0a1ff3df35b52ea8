"""The training of a twin for `calibrate`: a few epochs, and more at a larger rate if it did not learn enough."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from locality.data.dataset import ImageDataset
from locality.files import write_atomically
from locality.progress import Progress
from locality.training.fine_tune import fine_tune
from locality.training.recipe_parts import Augmentation, FineTuning
from locality.training.step import NotFiniteError
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import weights_hash

OpenTitled = Callable[[str, str], AbstractContextManager[Progress]]  # by title and unit
BATCH = 50


@dataclass(frozen=True)
class Training:
    """How a twin is trained: `epochs` at `learning_rate`, and again, until `enough` of the checked images are right.

    Each round goes on from the best one so far, at twice the rate; or at half of it if the last round did harm. So large
    pretrained networks, which learn in the first round, are not spoilt by a rate that small networks need. All layers learn
    at the same rate: the sticker is new to every one of them.
    """

    epochs: int = 3  # of a round; 0: untrained
    batch_size: int = 16
    learning_rate: float = 5e-4  # of the first round
    seed: int = 0
    rounds: int = 6  # at most
    enough: float = 0.9  # share of the checked images


def trained_twin(
    name: str,
    model: nn.Module,
    images: ImageDataset,
    checked: ImageDataset,
    training: Training,
    device: str | None,
    folder: Path | None,
    progress: OpenTitled,
) -> nn.Module:
    """A fine-tuned copy of the model, trained or, if it was trained before, read from the folder."""
    where = "cpu" if device == "cpu" else None
    file = None if folder is None else folder / f"{name}_twin_{_key(model, images, training)}.safetensors"
    if file is not None and file.exists():
        untrained = _tuned(model, images, training, 0, training.learning_rate, 0, where)
        try:
            untrained.net.load_state_dict(load_file(file))
        except (SafetensorError, RuntimeError, OSError):
            file.unlink()  # damaged: train again
        else:
            return untrained
    twin = _in_rounds(name, model, images, checked, training, where, progress)
    if file is not None:
        weights = {key: value.contiguous() for key, value in twin.net.state_dict().items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda path: save_file(weights, path))
    return twin


def _in_rounds(
    name: str,
    model: nn.Module,
    images: ImageDataset,
    checked: ImageDataset,
    training: Training,
    device: str | None,
    progress: OpenTitled,
) -> PixelModel:
    """The best twin of all rounds, by the share of the checked images that it names correctly."""
    with progress(f"training the {name} twin", "steps") as report:
        report(0, None)
        best = _tuned(model, images, training, training.epochs, training.learning_rate, 0, device, report)
    right, rate = share_right(best, checked), training.learning_rate
    doubled = True
    for number in range(2, training.rounds + 1 if training.epochs else 0):
        if right >= training.enough:
            break
        rate *= 2 if doubled else 0.5
        title = f"training the {name} twin, round {number} of at most {training.rounds}, {right:.0%} right so far"
        with progress(title, "steps") as report:
            report(0, None)
            try:
                twin = _tuned(best, images, training, training.epochs, rate, number - 1, device, report)
            except NotFiniteError:  # the rate is too large
                doubled = False
                continue
        now = share_right(twin, checked)
        doubled = now >= right
        if doubled:
            best, right = twin, now
    return best


@torch.no_grad()
def share_right(twin: PixelModel, images: ImageDataset) -> float:
    """The share of images that a twin names correctly."""
    fitted, right = images.for_model(twin.spec), 0
    for start in range(0, len(fitted), BATCH):
        batch = fitted.batch(range(start, min(start + BATCH, len(fitted))))
        right += int((twin.eval()(batch.images.to(twin.mean.device)).argmax(1).cpu() == batch.labels).sum())
    return right / len(fitted)


def _tuned(
    model: nn.Module,
    images: ImageDataset,
    training: Training,
    epochs: int,
    rate: float,
    number: int,
    device: str | None,
    report: Progress = lambda done, total: None,
) -> PixelModel:
    return fine_tune(
        model,
        images,
        epochs,
        batch_size=training.batch_size,
        learning_rate=rate,
        seed=training.seed + number,
        tuning=FineTuning(body_rate=1.0),
        augmentation=Augmentation(flip=True),
        device=device,
        progress=report,
    )


def _key(model: nn.Module, images: ImageDataset, training: Training) -> str:
    """What decides the weights of a twin."""
    parts = (weights_hash(model), repr(getattr(model, "spec", None)), images.fingerprint(), json.dumps(asdict(training)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
