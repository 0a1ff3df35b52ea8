"""What a card says about a model's training: the images it was trained on, and the weights it began with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.defaults import default_data
from locality.data.kinds import LOCATIONS
from locality.errors import ArgumentError
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.model_card import ModelCard


@dataclass(frozen=True)
class TrainingImages:
    """The `train` split of a data set, or its first images, balanced over the classes, as `locality train` chooses them."""

    name: str
    limit: int | None = None
    options: tuple[tuple[str, Any], ...] = ()  # of the source, such as a sticker that the model was trained on

    def of(self, spec: ModelSpec, limit: int | None = None, **source_options: Any) -> ImageDataset:
        """At most `limit` of the images, balanced over the classes, fitted to a model, without augmentation."""
        most = min((number for number in (limit, self.limit) if number is not None), default=None)
        # The seed that `locality train` chooses images with: a smaller choice is part of a larger one.
        return load_dataset(self.name, split="train", limit=most, seed=0, spec=spec, **(dict(self.options) | source_options))

    def count(self, chosen: ImageDataset) -> int:
        """How many images there are, of which some were `chosen`."""
        every = len(chosen) + chosen.left_out.get("beyond the limit", 0)
        return every if self.limit is None else min(self.limit, every)


def trained_on(card: ModelCard | None) -> TrainingImages | None:
    """The images that a model was trained on, as its card names them; None where it does not.

    >>> from locality.zoo.catalog import find_card
    >>> trained_on(find_card("shapes_vit_uncued"))
    TrainingImages(name='shapes:none', limit=6000, options=())
    """
    if card is None or not card.data:
        return None
    if card.run is None:
        return TrainingImages(card.data)
    data = card.run.recipe["data"]
    kind = data["name"].partition(":")[0]
    # A folder of the machine that trained it may not exist here.
    given = {key: value for key, value in data.items() if key not in ("name", "limit", "size")}
    options = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in given.items())
    return TrainingImages(kind if kind in LOCATIONS else data["name"], data.get("limit"), options)


@dataclass(frozen=True, eq=False)
class Splits:
    """Images that a model was trained on, and images that it was not."""

    train: ImageDataset
    test: ImageDataset
    training_images: int  # how many there are in all
    stated: bool  # whether the caller or the card says that the model was trained on them


def splits_of(
    card: ModelCard | None,
    spec: ModelSpec,
    train: str | None = None,
    test: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    **source_options: Any,
) -> Splits:
    """Training and test images for a model, at most `limit` of each, balanced over the classes, of any box.

    `train` and `test` are names of data sets, of which the `train` and the `eval` split are used. By default, training
    images are those of the card, or else of the data set of the test images or of the model's classes; test images are of
    the same data set as the training images.
    """
    told = TrainingImages(train) if train else trained_on(card)
    images = told or TrainingImages(test or default_data(spec))
    name = test or images.name
    if name == images.name and name.lower().endswith(".csv"):
        raise ArgumentError("train", f"other images than the test images, {name}", name, "pass --train and --data")
    chosen = images.of(spec, limit, **source_options)
    options = (dict(images.options) if name == images.name else {}) | source_options
    unseen = load_dataset(name, limit=limit, seed=seed, spec=spec, max_box_share=None, **options)
    if name == images.name and _files(chosen) & _files(unseen):
        raise ArgumentError("train", f"other images than the test images, and {name} has one split", name, "pass --train")
    return Splits(chosen, unseen, images.count(chosen), told is not None)


def _files(data: ImageDataset) -> set[tuple[str, str]]:
    """What tells images of one data set apart."""
    images = data.manifest.images
    return set(zip(images["path"], images["id"], strict=True))


def initial_weights(card: ModelCard | None) -> dict[str, Tensor] | None:
    """The weights that the training began with, drawn again from its seed, under the names that a loaded model has.

    None where the card does not describe a run of `locality train`, or where the run started from another model: weights
    that have seen data are no prior.
    """
    if card is None or card.run is None or card.run.recipe.get("start") or not card.architecture.startswith("net:"):
        return None
    net = build(card.architecture, len(card.spec.classes), card.run.seed, card.options)
    return {f"net.{name}": weight.detach() for name, weight in net.named_parameters()}
