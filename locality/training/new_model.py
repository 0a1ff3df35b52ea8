"""What a run begins with: its images, and its model with random weights or with those of another model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset, load_dataset
from locality.errors import ArgumentError
from locality.training.recipe import Recipe
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.load import load_model
from locality.zoo.nets import INPUT_SIZE
from locality.zoo.nets.forward_pass import FeatureSequential
from locality.zoo.pixel_model import PixelModel


@dataclass(frozen=True, eq=False)
class Beginning:
    """What a run begins with."""

    data: ImageDataset
    model: Callable[[], PixelModel]  # a new one at each call, always with the same weights
    start: Callable[[PixelModel], None]  # gives it the weights of the recipe's `start`


def beginning(recipe: Recipe) -> Beginning:
    """What a recipe names: its images, fitted to the network, and the network."""
    data = fitted_images(load_dataset(recipe.data.name, split="train", limit=recipe.data.limit), recipe)
    return Beginning(data, lambda: new_model(recipe, data), lambda model: load_start(model, recipe))


def new_net(recipe: Recipe, classes: int) -> nn.Module:
    """The recipe's network, with random weights of its seed."""
    try:
        return build(f"net:{recipe.net.name}", classes, recipe.seed, recipe.net.options)
    except ArgumentError as error:
        raise error.renamed(f"net.{error.argument}") from None


def new_model(recipe: Recipe, data: ImageDataset) -> PixelModel:
    """The recipe's network with random weights, the same in every process."""
    height, width = (int(side) for side in data[0].image.shape[-2:])
    spec = ModelSpec(
        recipe.name, (height, width), max(height, width), "bilinear", recipe.mean, recipe.std, data.source.classes
    )
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


def fitted_images(data: ImageDataset, recipe: Recipe) -> ImageDataset:
    """The images, all of one size that the recipe's network takes.

    The recipe's `data.size` is the size, if it has one. Else images of one size stay as they are if the network takes them,
    and others are resized and cropped to the 64×64 pixels that the networks were made for.
    """
    side = recipe.data.size
    if side is not None:
        if not _takes(recipe, (side, side), len(data.source.classes)):
            raise ArgumentError("data.size", f"a size of images that {recipe.net.name} takes", side, "most take 64")
        return _resized(data, recipe, (side, side))
    images = data.manifest.images
    sizes = set(zip(images["height"].tolist(), images["width"].tolist(), strict=True))
    if sizes == {INPUT_SIZE} or (len(sizes) == 1 and _takes(recipe, sizes.pop(), len(data.source.classes))):
        return data
    return _resized(data, recipe, INPUT_SIZE)


def _resized(data: ImageDataset, recipe: Recipe, size: tuple[int, int]) -> ImageDataset:
    """The images and their boxes, resized until the short side is that of `size`, then cropped around the centre."""
    return data.for_model(ModelSpec(recipe.name, size, max(size), classes=data.source.classes))


def _takes(recipe: Recipe, size: tuple[int, int], classes: int) -> bool:
    """Whether the recipe's network has logits for images of this size."""
    net = new_net(recipe, classes).eval()
    try:
        with torch.no_grad():
            net(torch.zeros(1, 3, *size))
    except Exception:  # whatever its layers raise for a wrong size
        return False
    return True


def check_augmentation(recipe: Recipe, height: int, width: int) -> None:
    """Raise if images of this size cannot be shifted as far as the recipe says, or have no room for its cutout.

    What a shift moves in is a mirrored edge, so it must be less than the side.
    """
    pixels = {
        "shift": (recipe.augmentation.shift, "a few pixels"),
        "cutout": (recipe.augmentation.cutout, "a quarter of it"),
    }
    for name, (value, usual) in pixels.items():
        if value >= min(height, width):
            expected = f"less than the side of an image, which is {height}×{width}"
            raise ArgumentError(f"augmentation.{name}", expected, value, f"{usual} is usual")
