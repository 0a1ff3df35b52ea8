"""The model that a run starts with: a network with random weights, or with those of another model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset
from locality.training.recipe import Recipe, new_net
from locality.types import ModelSpec
from locality.zoo.load import load_model
from locality.zoo.nets.forward_pass import FeatureSequential
from locality.zoo.pixel_model import PixelModel


def new_model(recipe: Recipe, data: ImageDataset) -> PixelModel:
    """The recipe's network with random weights, the same in every process."""
    height, width = (int(side) for side in data[0].image.shape[-2:])
    spec = ModelSpec(
        recipe.name, (height, width), max(height, width), "bilinear", recipe.mean, recipe.std, data.source.classes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return PixelModel(new_net(recipe, len(spec.classes)), spec)


def load_start(model: PixelModel, recipe: Recipe) -> None:
    """Give the model the weights of the recipe's `start`, if it names one; that must be a model of the same kind.

    If its head is of another kind, as that of a Centroid Net, what the model has in its place keeps its random weights.
    """
    if recipe.start is None:
        return
    start = load_model(recipe.start)
    if (start.spec.mean, start.spec.std) != (model.spec.mean, model.spec.std):
        raise ValueError(
            f"`start`: {recipe.start} has mean {start.spec.mean} and std {start.spec.std}: give the recipe the same"
        )
    try:
        model.net.load_state_dict(start_weights(model.net, start.net))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"`start`: {recipe.start} is not a {recipe.net.name} for {len(model.spec.classes)} classes: {reason}"
        ) from None


def start_weights(net: nn.Module, start: nn.Module) -> dict[str, Tensor]:
    """The weights of `start`; where the heads are of different kinds, with the network's own from the start's head on."""
    weights = start.state_dict()
    if not (isinstance(net, FeatureSequential) and isinstance(start, FeatureSequential)):
        return weights
    if type(net.head) is type(start.head):
        return weights
    head = f"{len(start) - 1}."
    encoder = {name: value for name, value in weights.items() if not name.startswith(head)}
    return net.state_dict() | encoder
