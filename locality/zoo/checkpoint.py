"""Models from cards and from checkpoint files: an architecture, filled strictly with the tensors of a file."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from locality.errors import ModelError
from locality.imagenet_classes import imagenet_wnids
from locality.progress import Progress, no_progress
from locality.types import ModelSpec
from locality.zoo.architectures import KINDS, build, input_of, is_function, renamed
from locality.zoo.catalog import model_cards
from locality.zoo.model_card import Address, ModelCard, Package, Seed, WeightFile, card_path, is_card, read_card
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import GivenPreprocessing, all_from
from locality.zoo.state_dict import class_counts, fill, fill_in_order, normaliser_in, own_names, read_tensors, unwrapped
from locality.zoo.weight_files import delete_if_damaged, models_folder, weights_path


def card_spec(card: ModelCard) -> ModelSpec:
    """What a model expects of its images, with its classes, which the cards of ImageNet models do not list."""
    listed = card.spec.classes or card.data != "imagenet"
    return card.spec if listed else replace(card.spec, classes=imagenet_wnids())


def of_card(
    card: ModelCard, download: bool = False, progress: Progress = no_progress, trust_first: bool = False
) -> PixelModel:
    """The model of a card."""
    path, tensors = _weights_of(card, download, progress, trust_first)
    spec = card_spec(card)
    seed = card.weights.seed if isinstance(card.weights, Seed) else 0
    net = build(card.architecture, len(spec.classes), seed, card.options)
    if path is not None:
        if isinstance(card.weights, Package):
            fill_in_order(net, tensors, path)
        else:
            fill(net, tensors, path, spec, lambda named: renamed(card.architecture, named))
    return PixelModel(net, spec, all_from("from the model's card"))


def _weights_of(
    card: ModelCard, download: bool, progress: Progress, trust_first: bool
) -> tuple[Path | None, dict[str, torch.Tensor]]:
    """The file of the weights, and its tensors."""
    guard: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if isinstance(card.weights, Address) and card.weights.checksum is None:  # the bytes are not verified yet
        guard = delete_if_damaged(models_folder() / card.weights.file)
    with guard:
        path = weights_path(card, download, progress, trust_first)
        return path, {} if path is None else read_tensors(path)


def of_file(path: Path, arch: str | None, num_classes: int | None, given: GivenPreprocessing) -> PixelModel:
    """The model of a checkpoint, whose architecture is `arch`, or that of the card beside it."""
    card = _card_beside(path, arch)
    if card is not None and arch in (None, card.architecture) and card.architecture and card_spec(card).classes:
        return of_card(card)
    tensors = read_tensors(path)
    if arch is None:
        if card is None or not card.architecture:
            raise ModelError(f"`{path}` does not name its architecture: pass `arch` (--arch), {KINDS}, or a catalog model")
        arch = card.architecture
    template = model_cards().get(arch)
    origin = all_from(f"as for {arch}")
    architecture, options = (arch, None) if template is None else (template.architecture, template.options)
    if card is not None:
        options = card.options if arch == card.architecture else options
        template, origin = card, all_from("from the card beside the checkpoint")
    like = None if template is None else replace(card_spec(template), name=path.stem)
    usual = None if like is None or not like.classes else len(like.classes)
    net, differs = _sized(architecture, options, tensors, path, num_classes, usual)
    model = wrapped(net, architecture, path.stem)
    if like is None:
        spec, origin = model.spec, model.origin
    else:
        spec = replace(like, classes=() if differs else like.classes)
    within = normaliser_in(tensors, own_names(model.net))  # what the network was trained with
    spec = replace(spec, **dict[str, Any](within))
    origin = dict(origin) | dict.fromkeys(within, "in the checkpoint")
    fill(model.net, tensors, path, replace(spec, **given.parts), lambda named: renamed(architecture, named))
    return PixelModel(model.net, spec, origin)


def _card_beside(path: Path, arch: str | None) -> ModelCard | None:
    """The card of a checkpoint. With `arch`, a JSON file that is no card, or that of other weights, is ignored."""
    file = card_path(path)
    if not file.is_file() or (arch is not None and not is_card(file)):
        return None
    card = read_card(file)
    assert isinstance(card.weights, WeightFile)
    card = replace(card, weights=WeightFile(str(path), card.weights.checksum))
    if arch is None:
        return card
    try:
        weights_path(card)
    except ModelError as error:
        warnings.warn(f"the card `{file}` is ignored, because it describes other weights: {error}", stacklevel=4)
        return None
    return card


def _sized(
    architecture: str,
    options: dict[str, Any] | None,
    tensors: dict[str, torch.Tensor],
    path: Path,
    num_classes: int | None,
    usual: int | None,
) -> tuple[nn.Module, bool]:
    """The architecture with as many classes as the file has, and whether that number differs from the `usual` one.

    A given `num_classes` must equal the file's number.
    """
    net = build(architecture, num_classes or usual, options=options)
    inner = net.net if isinstance(net, PixelModel) else net
    counts = class_counts(inner, renamed(architecture, unwrapped(tensors, own_names(inner), path)))
    if counts is None:
        return net, num_classes not in (None, usual)
    here, there = counts
    if num_classes is not None or is_function(architecture):
        raise ModelError(
            f"`{path}` has {there} classes, the network {here}: pass `num_classes={there}` (--num-classes {there})"
        )
    return build(architecture, there, options=options), True


def wrapped(net: nn.Module, architecture: str, name: str) -> PixelModel:
    """The network with the preprocessing of its architecture, or with its own."""
    if isinstance(net, PixelModel):
        net.origin = net.origin or all_from("the model's own")
        return net
    own = isinstance(getattr(net, "spec", None), ModelSpec)
    origin = all_from("from the model's `.spec`" if own else f"guessed from {architecture}")
    return PixelModel(net, input_of(architecture, net, name), origin)
