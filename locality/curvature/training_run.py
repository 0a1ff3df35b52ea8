"""What a card says about a model's training: the images it was trained on, and the weights it began with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.sources import LOCATIONS
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.model_card import ModelCard


@dataclass(frozen=True)
class TrainingImages:
    """The `train` split of a data set, or its first images, balanced over the classes, as `locality train` chooses them."""

    name: str
    limit: int | None = None

    def of(self, spec: ModelSpec, limit: int | None = None) -> ImageDataset:
        """At most `limit` of the images, balanced over the classes, fitted to a model, without augmentation."""
        most = min((number for number in (limit, self.limit) if number is not None), default=None)
        # The seed that `locality train` chooses images with: a smaller choice is part of a larger one.
        return load_dataset(self.name, split="train", limit=most, seed=0, spec=spec)

    def count(self, chosen: ImageDataset) -> int:
        """How many images there are, of which some were `chosen`."""
        every = len(chosen) + chosen.left_out.get("beyond the limit", 0)
        return every if self.limit is None else min(self.limit, every)


def trained_on(card: ModelCard | None) -> TrainingImages | None:
    """The images that a model was trained on, as its card names them; None where it does not.

    >>> from locality.zoo.catalog import find_card
    >>> trained_on(find_card("shapes_vit_uncued"))
    TrainingImages(name='shapes:none', limit=6000)
    """
    if card is None or not card.data:
        return None
    if card.run is None:
        return TrainingImages(card.data)
    data = card.run.recipe["data"]
    kind = data["name"].partition(":")[0]
    # A folder of the machine that trained it may not exist here.
    return TrainingImages(kind if kind in LOCATIONS else data["name"], data.get("limit"))


def initial_weights(card: ModelCard | None) -> dict[str, Tensor] | None:
    """The weights that the training began with, drawn again from its seed, under the names that a loaded model has.

    None where the card does not describe a run of `locality train`, or where the run started from another model: weights
    that have seen data are no prior.
    """
    if card is None or card.run is None or card.run.recipe.get("start") or not card.architecture.startswith("net:"):
        return None
    net = build(card.architecture, len(card.spec.classes), card.run.seed, card.options)
    return {f"net.{name}": weight.detach() for name, weight in net.named_parameters()}
