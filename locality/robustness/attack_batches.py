"""One batch of images under attack: read from a tensor or a data set, attacked, and every success checked again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locality.model_calls import OUT_OF_MEMORY, Calls
from locality.model_calls.checks import check_images, check_target
from locality.perturbation import length
from locality.robustness.autoattack import Threat, attacked

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset

HELD = -1  # in place of the number of the attack that broke an image
ROUNDING = 1e-5  # share of epsilon by which float32 may overstep the ball


@dataclass(frozen=True, eq=False)
class Part:
    """Some images in a row, and the labels accepted for each; none where the model has no such class."""

    ids: tuple[str, ...]
    images: Tensor  # N×C×H×W
    accepted: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a batch, as plain numbers that JSON can keep."""

    labels: tuple[int, ...]  # −1 where the model has no such class
    predictions: tuple[int, ...]
    clean: tuple[bool, ...]
    broken_by: tuple[int, ...]  # a place in the attacks, −1 where none broke it
    notes: tuple[str, ...]

    @staticmethod
    def from_json(stored: dict[str, Any] | None) -> Outcome | None:
        """The outcome that was kept; None where something else stands there."""
        if stored is None or not set(Outcome.__dataclass_fields__) <= set(stored):
            return None
        return Outcome(*(tuple(stored[name]) for name in Outcome.__dataclass_fields__))


def parts(images: Tensor | ImageDataset, labels: Tensor | None, size: int, device: torch.device) -> Iterator[Part]:
    """The images, `size` at a time, on `device`; those of a data set are read as they are needed."""
    for start in range(0, len(images), size):
        places = range(start, min(start + size, len(images)))
        if isinstance(images, Tensor):
            assert labels is not None
            ids = tuple(str(place) for place in places)
            accepted: tuple[tuple[int, ...], ...] = tuple(_accepted(int(label)) for label in labels[start : start + size])
            pixels = images[start : start + size]
        else:
            batch = images.batch(places)
            ids, pixels, accepted = batch.ids, batch.images, batch.accepted
        check_images(pixels)
        yield Part(ids, pixels.detach().to(device, torch.float32, copy=True).clamp_(0, 1), accepted)


def attack_part(calls: Calls, part: Part, predictions: Tensor, attacks: tuple[str, ...], threat: Threat) -> Outcome:
    """The outcome of one attack after the other, each on the images that those before it left.

    Attacks push away from the predicted class. An image of several accepted labels is broken once its prediction leaves them
    all. A success counts only if the point lies in the ball and the model, asked once more, still agrees.
    """
    clean = correct(predictions, part.accepted)
    broken_by = torch.full_like(predictions, HELD)
    left = clean.nonzero()[:, 0]
    notes: dict[str, None] = {}
    for number, name in enumerate(attacks):
        if len(left) == 0:
            break
        images = part.images[left]
        accepted = tuple(part.accepted[place] for place in left.tolist())
        try:
            points = attacked(
                calls,
                name,
                images,
                predictions[left],
                threat,
                lambda sentence: notes.update({sentence: None}),
                functools.partial(correct, accepted=accepted),
            )
        except (RuntimeError, MemoryError) as error:
            if not any(words in str(error).lower() for words in OUT_OF_MEMORY):
                raise
            raise ValueError(f"`batch_size` must fit into memory, got {len(part.images)}: pass a smaller one") from error
        fooled = ~correct(calls.logits(points).argmax(dim=1), accepted) & _allowed(points, images, threat)
        broken_by[left[fooled]] = number
        left = left[~fooled]
    labels = tuple(labels[0] if labels else -1 for labels in part.accepted)
    given, held, number_of = (tuple(values.tolist()) for values in (predictions, clean, broken_by))
    return Outcome(labels, given, held, number_of, tuple(notes))


def predicted(calls: Calls, part: Part) -> Tensor:
    """N int64; raises where a label is not one of the model's classes."""
    logits = calls.logits(part.images)
    check_target(torch.tensor([label for labels in part.accepted for label in labels], dtype=torch.int64), logits.shape[1])
    return logits.argmax(dim=1)


def correct(predictions: Tensor, accepted: tuple[tuple[int, ...], ...]) -> Tensor:
    """N bool: the prediction is one of the accepted labels."""
    found = [value in labels for value, labels in zip(predictions.tolist(), accepted, strict=True)]
    return torch.tensor(found, dtype=torch.bool, device=predictions.device)


def _accepted(label: int) -> tuple[int, ...]:
    return (label,) if label >= 0 else ()


def _allowed(points: Tensor, images: Tensor, threat: Threat) -> Tensor:
    """N bool: within the ball, but for rounding, and within [0, 1]."""
    near = length(points - images, threat.norm) <= threat.epsilon * (1 + ROUNDING) + 1e-7
    return near & ((points >= 0) & (points <= 1)).flatten(1).all(dim=1)
