"""One batch of images under attack: read from a tensor or a data set, attacked, and every success checked again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locality.errors import ArgumentError
from locality.model_calls import Calls, is_out_of_memory
from locality.model_calls.checks import check_images, check_target
from locality.model_calls.decisions import correct
from locality.perturbation import length
from locality.robustness.autoattack import run_attack
from locality.robustness.gradient_masking import Caveat
from locality.types import Batch, Threat

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset

MINIMUM_NORM = ("rays",)  # attacks that look for the nearest point, whatever epsilon is
UNBROKEN = -1  # in place of the index of the attack that broke an image
ROUNDING = 1e-5  # share of the radius by which float32 may overstep the ball

Decide = Callable[[Tensor], Tensor]  # N×K logits ↦ N predictions, −1 where the model abstains


@dataclass(frozen=True, eq=False)
class AttackBatch:
    """Consecutive images and the labels accepted for each; none where the model has no such class."""

    ids: tuple[str, ...]
    images: Tensor  # N×C×H×W
    accepted: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Outcome:
    """The result of a batch, as plain values that JSON can hold."""

    labels: tuple[int, ...]  # −1 where the model has no such class
    predictions: tuple[int, ...]  # −1 where the model abstains
    clean: tuple[bool, ...]
    broken_by: tuple[int, ...]  # an index of the attacks, −1 where none broke it
    caveats: tuple[Caveat, ...]
    distances: tuple[float | None, ...]  # to the boundary; None where that was not measured, or nothing was found

    @staticmethod
    def from_json(stored: dict[str, Any] | None) -> Outcome | None:
        """The stored outcome; None if there is none or it has another form."""
        if stored is None or not {field.name for field in fields(Outcome)} <= set(stored):
            return None
        return Outcome(
            labels=tuple(stored["labels"]),
            predictions=tuple(stored["predictions"]),
            clean=tuple(stored["clean"]),
            broken_by=tuple(stored["broken_by"]),
            caveats=tuple(Caveat(**caveat) for caveat in stored["caveats"]),
            distances=tuple(stored["distances"]),
        )


def batches(
    images: Tensor | Batch | ImageDataset, labels: Tensor | None, size: int, device: torch.device
) -> Iterator[AttackBatch]:
    """The images, `size` at a time, on `device`; those of a data set are read when they are needed."""
    for start in range(0, len(images), size):
        rows = slice(start, min(start + size, len(images)))
        if isinstance(images, Tensor):
            assert labels is not None
            ids = tuple(str(index) for index in range(rows.start, rows.stop))
            accepted: tuple[tuple[int, ...], ...] = tuple(_accepted(int(label)) for label in labels[rows])
            pixels = images[rows]
        elif isinstance(images, Batch):
            ids, pixels, accepted = images.ids[rows], images.images[rows], images.accepted[rows]
        else:
            batch = images.batch(range(rows.start, rows.stop))
            ids, pixels, accepted = batch.ids, batch.images, batch.accepted
        check_images(pixels)
        yield AttackBatch(ids, pixels.detach().to(device, torch.float32, copy=True).clamp_(0, 1), accepted)


def attack_batch(
    calls: Calls,
    batch: AttackBatch,
    predictions: Tensor,
    attacks: tuple[str, ...],
    threat: Threat,
    seed: int,
    decide: Decide,
    count: int | None = None,
) -> Outcome:
    """Run the attacks one after the other, each on the images that those before it did not break.

    Attacks push away from the predicted class. An image with several accepted labels is broken once its prediction is none
    of them. A success counts only if the point lies in the ball and a second evaluation of the model confirms it.
    `count` is the number in the name of an attack.
    """
    clean = correct(predictions, batch.accepted)
    broken_by = torch.full_like(predictions, UNBROKEN)
    left = clean.nonzero()[:, 0]
    caveats: dict[Caveat, None] = {}
    distances: list[float | None] = [None] * len(predictions)
    for index, name in enumerate(attacks):
        if len(left) == 0:
            break
        images = batch.images[left]
        accepted = tuple(batch.accepted[row] for row in left.tolist())
        try:
            points = run_attack(
                calls,
                name,
                images,
                predictions[left],
                threat,
                seed=seed,
                count=count,
                on_caveat=lambda caveat: caveats.update({caveat: None}),
                unbroken=functools.partial(correct, accepted=accepted),
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise ArgumentError("batch_size", "small enough for memory", len(batch.images), "pass a smaller one") from error
        across = ~correct(decide(calls.logits(points)), accepted)
        broken = across & _allowed(points, images, threat)
        if name in MINIMUM_NORM:
            for row, distance in zip(
                left[across].tolist(), length((points - images)[across], threat.norm).tolist(), strict=True
            ):
                distances[row] = distance
        broken_by[left[broken]] = index
        left = left[~broken]
    return Outcome(
        labels=tuple(labels[0] if labels else -1 for labels in batch.accepted),
        predictions=tuple(predictions.tolist()),
        clean=tuple(clean.tolist()),
        broken_by=tuple(broken_by.tolist()),
        caveats=tuple(caveats),
        distances=tuple(distances),
    )


def clean_predictions(calls: Calls, batch: AttackBatch, decide: Decide) -> Tensor:
    """N int64, −1 where the model abstains; raises if a label is not one of the model's classes."""
    logits = calls.logits(batch.images)
    check_target(torch.tensor([label for labels in batch.accepted for label in labels], dtype=torch.int64), logits.shape[1])
    return decide(logits)


def _accepted(label: int) -> tuple[int, ...]:
    return (label,) if label >= 0 else ()


def _allowed(points: Tensor, images: Tensor, threat: Threat) -> Tensor:
    """N bool: within the ball, up to rounding, and within [0, 1]."""
    near = length(points - images, threat.norm) <= threat.radius * (1 + ROUNDING) + 1e-7
    return near & ((points >= 0) & (points <= 1)).flatten(1).all(dim=1)
