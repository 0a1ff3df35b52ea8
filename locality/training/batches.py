"""The images of a training run: which of them form a batch, and how each is augmented, determined by seeds alone.

What happens to an image in an epoch depends on the run's seed, the epoch and the image, not on its batch, the number of
processes, or earlier steps. So a run can be interrupted anywhere and split over any number of processes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad
from torch.utils.data import Dataset

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.selection import even_order
from locality.errors import DataError
from locality.progress import Progress
from locality.training.recipe_parts import Augmentation
from locality.types import ModelSpec


class NoUnseenError(DataError):
    """All images that a model could be measured on are among those it was trained on."""


def eval_images(
    name: str, spec: ModelSpec | None, limit: int | None, trained_on: ImageDataset | None = None, **source_options: Any
) -> ImageDataset:
    """The `eval` split without images that were trained on, fitted to a model; at most `limit`, balanced over the classes.

    Data of one split only have no other images than those held out by `validation`; without it, that is a NoUnseenError.
    """
    most = limit if trained_on is None else None
    data = load_dataset(name, split="eval", max_box_share=None, limit=most, **source_options)
    if trained_on is not None:
        data = _balanced(_without(data, trained_on), limit)
    images = data.manifest.images
    sizes = set(zip(images["height"].tolist(), images["width"].tolist(), strict=True))
    if spec is None or (sizes == {spec.input_size} and spec.resize in (None, max(spec.input_size)) and _same(data, spec)):
        return data
    return data.for_model(spec)


def _same(data: ImageDataset, spec: ModelSpec) -> bool:
    """Whether the labels of the data are those of the model."""
    return not spec.classes or data.source.classes == spec.classes


def _without(data: ImageDataset, trained_on: ImageDataset) -> ImageDataset:
    """The images that are not among those trained on."""
    ids, seen_ids = data.manifest.images["id"].tolist(), trained_on.manifest.images["id"].tolist()
    if not set(ids) & set(seen_ids):
        return data
    seen = set(zip(seen_ids, trained_on.contents(), strict=True))
    unseen = [number for number, image in enumerate(zip(ids, data.contents(), strict=True)) if image not in seen]
    if not unseen:
        raise NoUnseenError(
            f"{data.name} has no images besides those that are trained on: give it folders train and val, or hold some out "
            "with validation = { share = 0.2 }"
        )
    return data.take(np.array(unseen))


def _balanced(data: ImageDataset, limit: int | None) -> ImageDataset:
    """The images that `load_dataset` selects with this limit."""
    images = data.manifest.images
    return data.take(np.sort(even_order(images["label"].to_numpy(), images["id"].tolist(), seed=0)[:limit]))


@dataclass(frozen=True, eq=False)
class TrainingImage:
    """One augmented image with its label and the seed of its other random numbers."""

    image: Tensor
    label: int
    seed: int


class TrainingImages(Dataset[TrainingImage]):
    """Images of a data set by (epoch, index). Small data sets are read once and kept in memory as bytes."""

    KEPT_BYTES = 2_000_000_000

    def __init__(self, data: ImageDataset, augmentation: Augmentation, seed: int) -> None:
        self.data = data
        self.augmentation = augmentation
        self.seed = seed
        self.kept: tuple[Tensor, list[int]] | None = None

    def keep(self, progress: Progress) -> None:
        """Read all images into memory, unless they are too many."""
        first = self.data[0].image
        if first.numel() * len(self.data) > self.KEPT_BYTES:
            return
        images, labels = torch.empty(len(self.data), *first.shape, dtype=torch.uint8), []
        for index in range(len(self.data)):
            sample = self.data[index]
            images[index] = (sample.image * 255).round().to(torch.uint8)
            labels.append(sample.label)
            progress(index + 1, len(self.data))
        self.kept = images, labels

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: tuple[int, int]) -> TrainingImage:
        epoch, index = key
        image, label = self._sample(index)
        seed = image_seed(self.seed, epoch, index)
        return TrainingImage(augmented(image, self.augmentation, seed), label, seed)

    def unchanged(self, batch_size: int) -> Iterator[Tensor]:
        """Batches of all images, in order and without augmentation; a last batch that is not full is left out."""
        for first in range(0, len(self) - batch_size + 1, batch_size):
            yield torch.stack([self._sample(index)[0] for index in range(first, first + batch_size)])

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all images, in order and without augmentation, and their labels; the last batch may be smaller."""
        for first in range(0, len(self), batch_size):
            samples = [self._sample(index) for index in range(first, min(first + batch_size, len(self)))]
            yield torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])

    def balanced(self, count: int) -> tuple[Tensor, Tensor]:
        """At most `count` images, balanced over the classes and without augmentation, and their labels."""
        images = self.data.manifest.images
        order = even_order(images["label"].to_numpy(), images["id"].tolist(), seed=0)
        samples = [self._sample(int(index)) for index in sorted(order[:count])]
        return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])

    def _sample(self, index: int) -> tuple[Tensor, int]:
        if self.kept is None:
            sample = self.data[index]
            return sample.image, sample.label
        return self.kept[0][index].float() / 255, self.kept[1][index]


def image_seed(seed: int, epoch: int, index: int) -> int:
    """The seed of all random numbers of one image in one epoch."""
    digest = hashlib.blake2b(f"{seed} {epoch} {index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def augmented(image: Tensor, augmentation: Augmentation, seed: int) -> Tensor:
    """The image mirrored, shifted, zoomed, turned, brightened and cut out at random; still in [0, 1]."""
    # A different stream than that of the attacks' random starts.
    draw = np.random.Generator(np.random.Philox(key=[seed, 1]))
    mirrored, (down, right), (brightness, contrast) = draw.random(), draw.random(2), draw.random(2)
    if augmentation.flip and mirrored < 0.5:
        image = image.flip(-1)
    if augmentation.shift:
        room = 2 * augmentation.shift + 1
        top, left = int(down * room), int(right * room)
        height, width = image.shape[-2:]
        padded = pad(image[None], (augmentation.shift,) * 4, mode="reflect")[0]
        image = padded[:, top : top + height, left : left + width]
    if augmentation.zoom or augmentation.turn:
        scale, angle = 2 * draw.random(2) - 1
        image = zoomed(image, (1 + augmentation.zoom) ** scale, math.radians(augmentation.turn * angle))
    if augmentation.colour:
        strength = augmentation.colour
        mean = image.mean()
        image = (image - mean) * (1 + strength * (2 * contrast - 1)) + mean + strength * (brightness - 0.5)
        image = image.clamp(0, 1)
    if augmentation.cutout:
        side = augmentation.cutout
        top, left = (
            int(share * (length - side + 1)) for share, length in zip(draw.random(2), image.shape[-2:], strict=True)
        )
        image = image.clone()
        image[:, top : top + side, left : left + side] = image.mean((1, 2))[:, None, None]
    return image


def zoomed(image: Tensor, factor: float, angle: float) -> Tensor:
    """The image enlarged by `factor` and turned by `angle` about its centre; what it lacks is its mirror image."""
    height, width = image.shape[-2:]
    cosine, sine = math.cos(angle) / factor, math.sin(angle) / factor
    # Coordinates run from -1 to 1 on both axes, whatever the lengths.
    rows = [[cosine, -sine * height / width, 0.0], [sine * width / height, cosine, 0.0]]
    turned = torch.tensor([rows], dtype=image.dtype)
    grid = affine_grid(turned, [1, *image.shape], align_corners=False)
    return grid_sample(image[None], grid, padding_mode="reflection", align_corners=False)[0].clamp(0, 1)


@dataclass(frozen=True)
class BatchKeys:
    """The (epoch, index) keys of this process's part of each batch, from `first_step` on.

    Every epoch shuffles all images; the images left over after the last full batch are not used in that epoch.
    """

    images: int
    batch_size: int
    epochs: int
    seed: int
    first_step: int = 0
    process: int = 0
    processes: int = 1

    @property
    def steps_per_epoch(self) -> int:
        return self.images // self.batch_size

    def __len__(self) -> int:
        return self.steps_per_epoch * self.epochs - self.first_step

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        part = self.batch_size // self.processes
        for epoch in range(self.first_step // self.steps_per_epoch, self.epochs):
            order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(self.images)
            begin = self.first_step % self.steps_per_epoch if epoch == self.first_step // self.steps_per_epoch else 0
            for step in range(begin, self.steps_per_epoch):
                first = step * self.batch_size + self.process * part
                yield [(epoch, int(index)) for index in order[first : first + part]]


def collate(images: Sequence[TrainingImage]) -> tuple[Tensor, Tensor, list[int]]:
    """Images, labels and seeds of a batch."""
    return (
        torch.stack([image.image for image in images]),
        torch.tensor([image.label for image in images]),
        [image.seed for image in images],
    )
