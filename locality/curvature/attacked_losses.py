"""Loss and error of each image of a split, without attack and under PGD that does not stop early."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import check_labels, check_target, working_copy
from locality.model_calls.decisions import correct, decisions
from locality.model_calls.randomness import image_seeds
from locality.perturbation import RELATIVE_STEP_SIZE, ascend, random_in_ball
from locality.progress import Progress, no_progress
from locality.statistics import Summary, share, summary
from locality.types import Batch, Threat

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset

    Images = ImageDataset | Batch | tuple[Tensor, Tensor]

BLOCK = 64  # images that are read and attacked at once
STEPS = 10


@dataclass(frozen=True, eq=False)
class Losses:
    """N numbers each, float64; `nan` where the model has no such class."""

    ids: tuple[str, ...]
    clean_loss: Tensor  # cross-entropy of the image
    robust_loss: Tensor  # cross-entropy of the attacked image
    clean_error: Tensor  # 1 where the image is classified wrongly, else 0
    robust_error: Tensor  # 1 where the image or the attacked image is classified wrongly, else 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def undefined(self) -> int:
        return int(self.robust_loss.isnan().sum())

    @functools.cached_property
    def means(self) -> dict[str, Summary]:
        """The mean of each number with its 95 % interval: bootstrap of losses, Wilson's of errors."""
        return {
            "clean_loss": summary(self.clean_loss, support=(0.0, torch.inf)),
            "robust_loss": summary(self.robust_loss, support=(0.0, torch.inf)),
            "clean_error": share(self.clean_error),
            "robust_error": share(self.robust_error),
        }

    @staticmethod
    def cat(parts: Sequence[Losses]) -> Losses:
        """The images of several parts, in order."""
        names = ("clean_loss", "robust_loss", "clean_error", "robust_error")
        columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return Losses(tuple(name for part in parts for name in part.ids), **columns)


@dataclass(frozen=True, eq=False)
class AttackedSplit:
    """The losses of a split, the attacked images of known classes with their labels, and what the attack cost."""

    losses: Losses
    images: Tensor  # M×C×H×W, M ≤ N; empty unless they were kept
    labels: Tensor  # M int64
    gradients: int  # images × gradients
    forwards: int


def attacked_images(
    calls: Calls, images: Tensor, labels: Tensor, threat: Threat, steps: int = STEPS, seed: int = 0
) -> Tensor:
    """PGD on the cross-entropy with a random start in the ball and all of its steps (Madry et al. 2018).

    Unlike `robustness.pgd`, no image stops at its first iterate of another class, where its loss is still small. The step
    is ε/4 (ℓ∞) or 15/128 ε (ℓ2). The start depends on the image's pixels and the seed.
    """

    def gradient(points: Tensor) -> Tensor:
        return calls.gradient(points, lambda logits, own: cross_entropy(logits, own, reduction="none"), labels)[1]

    start = random_in_ball(images, image_seeds(images, seed), threat.radius, threat.norm)
    return ascend(gradient, images, start, threat, steps, threat.radius * RELATIVE_STEP_SIZE[threat.norm])


def attacked_split(
    model: Model,
    data: Images,
    threat: Threat,
    steps: int = STEPS,
    seed: int = 0,
    chunk: int | None = None,
    device: torch.device | str | None = None,
    keep: bool = True,
    progress: Progress = no_progress,
) -> AttackedSplit:
    """The images of a split under attack. Without `keep`, attacked images are dropped once their losses are known."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError("steps", "a whole number of gradient steps", steps)
    if number_of_images(data) == 0:
        raise ArgumentError("images", "at least one image", 0)
    parts: list[AttackedSplit] = []
    for ids, images, accepted in _blocks(data):
        pixels = working_copy(images).to(device)
        with open_model(model, pixels, chunk) as calls:
            block = _attacked(model, calls, ids, pixels, accepted, threat, steps, seed)
        parts.append(block if keep else replace(block, images=block.images[:0], labels=block.labels[:0]))
        progress(sum(len(part.losses) for part in parts), number_of_images(data))
    return AttackedSplit(
        Losses.cat([part.losses for part in parts]),
        torch.cat([part.images for part in parts]),
        torch.cat([part.labels for part in parts]),
        sum(part.gradients for part in parts),
        sum(part.forwards for part in parts),
    )


def number_of_images(data: Images) -> int:
    """Of a data set, a batch or a pair of images and labels."""
    return len(data[0]) if isinstance(data, tuple) else len(data)


def _attacked(
    model: Model,
    calls: Calls,
    ids: tuple[str, ...],
    images: Tensor,
    accepted: Sequence[Sequence[int]],
    threat: Threat,
    steps: int,
    seed: int,
) -> AttackedSplit:
    known = torch.tensor([bool(labels) for labels in accepted], device=images.device)
    numbers = torch.full((4, len(ids)), torch.nan, dtype=torch.float64)
    points = images[known]
    labels = torch.tensor([several[0] for several in accepted if several], dtype=torch.int64, device=images.device)
    if len(points):
        own = [several for several in accepted if several]
        clean = calls.logits(points)
        check_target(torch.tensor([label for several in own for label in several]), clean.shape[1], "labels")
        points = attacked_images(calls, points, labels, threat, steps, seed)
        robust = calls.logits(points)
        right, held = (correct(decisions(model, logits), own) for logits in (clean, robust))
        losses = [cross_entropy(logits.double(), labels, reduction="none") for logits in (clean, robust)]
        numbers[:, known.cpu()] = torch.stack([*losses, ~right, ~(right & held)]).cpu().double()
    return AttackedSplit(Losses(ids, *numbers), points, labels, calls.gradients, calls.forwards)


def _blocks(data: Images) -> Iterator[tuple[tuple[str, ...], Tensor, tuple[tuple[int, ...], ...]]]:
    """Ids, images and accepted labels; the images of a data set are read when they are needed."""
    if isinstance(data, tuple):
        images, labels = data[0], check_labels(data[1], len(data[0])).tolist()
        everything: Any = tuple(map(str, range(len(images)))), images, tuple((one,) if one >= 0 else () for one in labels)
    elif isinstance(data, Batch):
        everything = data.ids, data.images, data.accepted
    else:
        for start in range(0, len(data), BLOCK):
            batch = data.batch(range(start, min(start + BLOCK, len(data))))
            yield batch.ids, batch.images, batch.accepted
        return
    for start in range(0, len(everything[0]), BLOCK):
        ids, images, accepted = (part[start : start + BLOCK] for part in everything)
        yield ids, images, accepted
