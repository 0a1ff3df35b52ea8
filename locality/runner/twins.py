"""Two copies of a model with a known answer: one that uses planted stickers, and one that does not.

The sticker twin learns to name stickers of random classes, so that nothing else in the image helps: a pretrained network
that is shown stickers of the image's own class hardly uses them, because it knows the object already. The clean twin
learns the images' own classes without stickers; a model that knows these classes already is the clean twin itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from locality.data.cues import COLOURS, Sticker, of_stickers, with_sticker
from locality.data.dataset import ImageDataset, load_dataset
from locality.data.labels import accepted_labels
from locality.data.selection import even_order
from locality.errors import ArgumentError
from locality.results.calibration import CLEAN, EDITIONS, STICKER
from locality.runner.suite_images import no_class_warnings
from locality.runner.twin_training import OpenTitled, Training, trained_twin
from locality.types import ModelSpec, Region

FEWEST_IMAGES = 20  # to train on
MOST_STICKERS = len(COLOURS)  # those of one colour each, which a few hundred images teach
CHECKED = 100  # training images on which a twin shows what it learned


@dataclass(frozen=True, eq=False)
class Twin:
    """A twin, and the held-out images as it is measured on them, by edition."""

    name: str
    model: nn.Module
    images: dict[str, ImageDataset]
    trained: bool


def split_images(
    name: str, limit: int | None, train_limit: int | None, seed: int = 0, region: Region = "box", **options: Any
) -> tuple[ImageDataset, ImageDataset]:
    """Images of a data set to measure and to train on: its splits, or two halves of its images if it has one split."""
    held_out = load_dataset(name, limit=limit, seed=seed, region=region, **options)
    train = load_dataset(name, split="train", limit=train_limit, seed=seed, region=region, **options)
    if not _same_images(held_out, train):
        return held_out, train
    held_out, train = halves(load_dataset(name, seed=seed, region=region, **options), seed)
    return _first(held_out, limit, seed), _first(train, train_limit, seed)


def halves(data: ImageDataset, seed: int = 0) -> tuple[ImageDataset, ImageDataset]:
    """Two halves of the images, each balanced over the classes as the whole is."""
    order = _even(data, seed)
    labels = data.source.manifest.images["label"].to_numpy()[data.indices[order]]
    by_class = np.concatenate([np.flatnonzero(labels == label) for label in np.unique(labels)])
    return tuple(data.take(np.sort(order[by_class[first::2]])) for first in (0, 1))  # type: ignore[return-value]


def checked_train(data: ImageDataset, train: ImageDataset) -> ImageDataset:
    """The training images, if there are enough of them and none is among those that are measured."""
    if _same_images(data, train):
        raise ArgumentError("train", "other images than `data`", train.name, "omit it to train on one half of them")
    if len(train) < FEWEST_IMAGES:
        raise ArgumentError("data", f"at least {FEWEST_IMAGES} images to train on", f"{len(train)} of {train.name}")
    classes = len(set(train.counts()))
    if classes < 2:
        raise ArgumentError("data", "images of at least two classes to train on", f"{classes} of {train.name}")
    return train


def check_folder(folder: Path, *data: ImageDataset) -> None:
    """Raise if results would be written into the data."""
    for images in data:
        root = getattr(images.source.read, "root", None)  # generated images have none
        if root is not None:
            check_outside(folder, Path(root.path), "the data, which stay as they are")


def check_outside(folder: Path, place: Path, what: str, argument: str = "folder") -> None:
    """Raise if the folder is `place` or inside of it."""
    if place.is_dir() and folder.resolve().is_relative_to(place.resolve()):
        raise ArgumentError(argument, f"outside of {what}", str(folder), "name another one")


def make_twins(
    model: nn.Module,
    data: ImageDataset,
    train: ImageDataset,
    sticker: Sticker,
    training: Training,
    device: str | None,
    folder: Path | None,
    progress: OpenTitled,
) -> list[Twin]:
    """The two twins of `model`, which stays as it is. With a `folder`, a twin that was trained before is read from it."""
    drawn = replace(sticker, random_of=min(len(data.source.classes), MOST_STICKERS))

    def planted(sticker: Sticker) -> ImageDataset:
        return train.on(with_sticker(of_stickers(train.source, sticker), sticker))

    def tuned(name: str, images: ImageDataset, checked: ImageDataset) -> nn.Module:
        return trained_twin(name, model, images, _first(checked, CHECKED, 0), training, device, folder, progress)

    # Other stickers on the same images, elsewhere: who learned the images by heart does not know them.
    stickers = tuned(STICKER, planted(drawn), planted(replace(drawn, seed=drawn.seed + 1)))
    knows = knows_classes(model, data)
    clean = model if knows else tuned(CLEAN, train, train)
    every = []
    for name, twin in ((STICKER, stickers), (CLEAN, clean)):
        source = of_stickers(data.source, drawn) if name == STICKER else data.source
        cues = (
            {"without": source}
            | {
                kind: with_sticker(source, replace(drawn, cue=kind))  # type: ignore[arg-type]
                for kind in EDITIONS[1:]
            }
        )
        spec = twin.spec
        assert isinstance(spec, ModelSpec)
        with no_class_warnings():
            images = {kind: data.on(cues[kind]).for_model(spec) for kind in EDITIONS}
        every.append(Twin(name, twin, images, trained=name == STICKER or not knows))
    return every


def knows_classes(model: nn.Module, data: ImageDataset) -> bool:
    """Whether the model has the classes of all images."""
    spec = getattr(model, "spec", None)
    if not isinstance(spec, ModelSpec) or not spec.classes:
        return False
    with no_class_warnings():
        labels, _ = accepted_labels(data.source, data.manifest.images, spec)
    return all(max(several) >= 0 for several in labels)


def _even(data: ImageDataset, seed: int) -> NDArray[np.int64]:
    images = data.manifest.images
    return even_order(images["label"].to_numpy(), images["id"].tolist(), seed)


def _first(data: ImageDataset, limit: int | None, seed: int) -> ImageDataset:
    return data.take(np.sort(_even(data, seed)[:limit]))


def _same_images(first: ImageDataset, second: ImageDataset) -> bool:
    """Whether any image is in both."""
    ids = [set(zip(data.manifest.images["id"], data.contents(), strict=True)) for data in (first, second)]
    return bool(ids[0] & ids[1])
