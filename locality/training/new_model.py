"""What a run begins with: its images, and its model with random weights or with those of another model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from locality.data.dataset import ImageDataset, load_dataset
from locality.errors import ArgumentError, Problem
from locality.training.batches import NoUnseenError, eval_images
from locality.training.recipe import Recipe
from locality.training.recipe_parts import Augmentation
from locality.training.start import load_start, start_input
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.heads import find_head
from locality.zoo.nets import INPUT_SIZE
from locality.zoo.pixel_model import PixelModel


@dataclass(frozen=True, eq=False)
class Beginning:
    """What a run begins with."""

    data: ImageDataset
    model: Callable[[], PixelModel]  # a new one at each call, always with the same weights
    start: Callable[[PixelModel], str]  # gives it the weights of the recipe's `start`, and says so
    note: str = ""  # what a person should know before the run


def beginning(recipe: Recipe) -> Beginning:
    """What a recipe names: its images, fitted to the network, and the network."""
    found = load_dataset(recipe.data.name, split="train", limit=recipe.data.limit, **recipe.data.options)
    note = ""
    if recipe.validation is None:  # what is wrong with the images to measure is said before the run
        try:
            eval_images(recipe.data.name, None, None, found, **recipe.data.options)
        except NoUnseenError as error:
            note = f"accuracy will not be measured: {error}"
    data = fitted_images(found, recipe)

    def start(model: PixelModel) -> str:
        return "random weights" if recipe.start is None else load_start(model, recipe.start, recipe.net)

    return Beginning(data, lambda: new_model(recipe, data), start, note)


def new_net(recipe: Recipe, classes: int) -> nn.Module:
    """The recipe's network, with random weights of its seed."""
    try:
        return build(recipe.net.architecture, classes, recipe.seed, recipe.net.options)
    except ArgumentError as error:
        raise error.renamed(f"net.{error.argument}") from None


def new_model(recipe: Recipe, data: ImageDataset) -> PixelModel:
    """The recipe's network with random weights, the same in every process."""
    height, width = (int(side) for side in data[0].image.shape[-2:])
    seen = data.spec or ModelSpec(recipe.name, (height, width), max(height, width))
    classes = data.source.classes
    spec = replace(seen, name=recipe.name, mean=recipe.mean, std=recipe.std, classes=classes, num_classes=len(classes))
    model = PixelModel(new_net(recipe, len(classes)), spec)
    if not recipe.net.is_own:
        model.head_name = find_head(model)
    return model


def fitted_images(data: ImageDataset, recipe: Recipe) -> ImageDataset:
    """The images, all of one size that the recipe's network takes.

    The recipe's `data.size` is the size, if it has one. Else networks of timm and torchvision see images as their start
    does, or as they were published. For the networks of locality, images of one size stay as they are if the network takes
    them, and others are resized and cropped to the 64×64 pixels that these networks were made for.
    """
    side = recipe.data.size
    if side is not None:
        if not _takes(recipe, (side, side), len(data.source.classes)):
            hint = "most take 64" if recipe.net.is_own else "leave it out for the size that it was published with"
            raise ArgumentError("data.size", f"a size of images that {recipe.net.name} takes", side, hint)
        return _resized(data, recipe, (side, side))
    if not recipe.net.is_own:
        return data.for_model(replace(start_input(recipe.start, recipe.net), classes=data.source.classes))
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


def run_problems(recipe: Recipe, data: ImageDataset, processes: int) -> list[Problem]:
    """What is wrong with a recipe for these images to train on."""
    problems = augmentation_problems(recipe.augmentation, *data[0].image.shape[-2:])
    if recipe.batch_size % processes:
        expected = f"a multiple of the number of processes, {processes}"
        problems.append(Problem("batch_size", f"must be {expected}, got {recipe.batch_size}"))
    if len(data) < recipe.batch_size:
        expected = f"at most the number of training images, {len(data)}"
        problems.append(Problem("batch_size", f"must be {expected}, got {recipe.batch_size}"))
    return problems


def augmentation_problems(augmentation: Augmentation, height: int, width: int) -> list[Problem]:
    """Whether images of this size cannot be shifted as far, or have no room for the cutout.

    What a shift moves in is a mirrored edge, so it must be less than the side.
    """
    pixels = {"shift": (augmentation.shift, "a few pixels"), "cutout": (augmentation.cutout, "a quarter of it")}
    expected = f"less than the side of an image, which is {height}×{width}"
    return [
        Problem(f"augmentation.{name}", f"must be {expected}, got {value}: {usual} is usual")
        for name, (value, usual) in pixels.items()
        if value >= min(height, width)
    ]
