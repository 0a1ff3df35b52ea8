"""`load_model`: a network that takes pixels in [0, 1], from a name, a checkpoint or a function."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from locality.errors import ArgumentError, ModelError
from locality.imagenet_classes import imagenet_wnids
from locality.model_calls import open_model
from locality.progress import Progress, no_progress
from locality.types import Interpolation, ModelSpec
from locality.zoo.architectures import KINDS, build, class_names, input_of, is_function, of_function, renamed
from locality.zoo.catalog import model_cards, unknown_model
from locality.zoo.model_card import (
    CHECKPOINT_SUFFIXES,
    Address,
    ModelCard,
    Package,
    Seed,
    WeightFile,
    card_path,
    is_card,
    read_card,
)
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import GivenPreprocessing, all_from
from locality.zoo.state_dict import class_counts, fill, fill_in_order, normaliser_in, own_names, read_tensors, unwrapped
from locality.zoo.timm_models import timm_pretrained
from locality.zoo.weight_files import delete_if_damaged, models_folder, weights_path

NOTHING_GIVEN = GivenPreprocessing()


def load_model(
    name: str | Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    device: str | torch.device | None = None,
    download: bool = False,
    trust_first_download: bool = False,
    progress: Progress = no_progress,
    input_size: int | tuple[int, int] | None = None,
    resize: int | None = None,
    interpolation: Interpolation | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    classes: Sequence[str] | str | Path | None = None,
) -> PixelModel:
    """Load a model in eval mode that takes pixels in [0, 1]. Its `.spec` describes its images and its classes.

    `name` is one of
    - a model of the catalog (`locality models` lists them);
    - `timm:NAME`, with timm's pretrained weights (`timm:resnet50.a1_in1k` names a particular training);
    - the path of a checkpoint. `arch` names its architecture: `timm:NAME`, `torchvision:NAME`, `net:NAME`,
      `package.module:function`, or a model of the catalog, whose preprocessing is then used, too. A checkpoint with a card
      beside it (NAME.json, as `locality train` writes it) needs no `arch` if the card names it; the card's preprocessing is
      used. The number of classes is that of the file;
    - `package.module:function`, called without arguments, or with `num_classes` if that is given. It returns an nn.Module
      that takes pixels and normalises them itself. Its attribute `.spec`, a ModelSpec, may give the input size and the
      classes; without it, images are cropped to 224×224.
    A model with 1,000 classes is assumed to have ImageNet's. Other classes are unknown unless a spec or card lists them, or
    `classes` does: names in the order of the logits, or a file with one per line.

    Images are resized until their short side is `resize`, with `interpolation`, cropped to `input_size` and normalised with
    `mean` and `std` (of pixels in [0, 1]). What is not given comes from the model's card, from timm's configuration, from
    the `.spec`, or else is guessed from the architecture; `.preprocessing` says which. `input_size` alone implies `resize`.

    `device` defaults to the CPU. Nothing is downloaded without `download=True`; `progress(done, total)` counts bytes.
    Weights without a published sha256 need `trust_first_download=True` once; it stores theirs.

    >>> load_model("resnet50_random").spec.classes[:2]
    ('n01440764', 'n01443537')
    """
    text = str(name)
    known = model_cards()
    given = GivenPreprocessing(input_size, resize, interpolation, mean, std, classes)
    if num_classes is not None and num_classes < 2:
        raise ArgumentError("num_classes", "at least 2", num_classes)
    is_file = is_checkpoint(text)
    if arch is not None and not is_file:
        raise ArgumentError("arch", f"left out unless the model is the path of a checkpoint, which {text!r} is not", arch)
    if text in known:
        model = _of_card(known[text], download, progress, trust_first_download)
    elif is_file:
        model = _of_file(_expanded(text), arch, num_classes, given)
    elif text.startswith("timm:"):
        model = timm_pretrained(text.removeprefix("timm:"), download, progress, trust_first_download)
    elif text.startswith(("torchvision:", "net:")):
        raise ModelError(f"`{text}` is an architecture without weights: pass it as `arch` with the path of a checkpoint")
    elif is_function(text):
        model = _wrapped(of_function(text, num_classes), text, text)
    else:
        raise unknown_model(text, known)
    if given != NOTHING_GIVEN:
        model.respecify(given.applied(model.spec), given.origin(model.origin))
    try:
        model = model.to(torch.device("cpu" if device is None else device)).eval()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError("device", "a device of this machine's torch", str(device), reason) from error
    _check_classes(model, text, num_classes, in_catalog=text in known and classes is None)
    return model


def card_spec(card: ModelCard) -> ModelSpec:
    """What a model expects of its images, with its classes, which the cards of ImageNet models do not list."""
    listed = card.spec.classes or card.data != "imagenet"
    return card.spec if listed else replace(card.spec, classes=imagenet_wnids())


def known_card(name: str) -> ModelCard | None:
    """The card of a model of the catalog, or the one beside a checkpoint; None where there is none."""
    cards = model_cards()
    if name in cards:
        return cards[name]
    return read_card(card_path(_expanded(name))) if is_checkpoint(name) and has_card(name) else None


def _of_card(
    card: ModelCard, download: bool = False, progress: Progress = no_progress, trust_first: bool = False
) -> PixelModel:
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


def _of_file(path: Path, arch: str | None, num_classes: int | None, given: GivenPreprocessing) -> PixelModel:
    card = _card_beside(path, arch)
    if card is not None and arch in (None, card.architecture) and card.architecture and card_spec(card).classes:
        return _of_card(card)
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
    model = _wrapped(net, architecture, path.stem)
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


def _wrapped(net: nn.Module, architecture: str, name: str) -> PixelModel:
    if isinstance(net, PixelModel):
        net.origin = net.origin or all_from("the model's own")
        return net
    own = isinstance(getattr(net, "spec", None), ModelSpec)
    origin = all_from("from the model's `.spec`" if own else f"guessed from {architecture}")
    return PixelModel(net, input_of(architecture, net, name), origin)


def _check_classes(model: PixelModel, name: str, num_classes: int | None, in_catalog: bool) -> None:
    """Compare the number of logits with `num_classes` and the spec; name the classes if their number implies them."""
    count = len(model.spec.classes) if in_catalog else class_count(model, name)
    if num_classes not in (None, count):
        raise ArgumentError("num_classes", f"left out or {count}, the number of classes of `{name}`", num_classes)
    if not model.spec.classes:
        model.spec = replace(model.spec, classes=class_names(count), num_classes=count)
    elif len(model.spec.classes) != count:
        raise ModelError(f"`{name}` returns {count} logits, its `.spec` lists {len(model.spec.classes)} classes")


def class_count(model: PixelModel, name: str) -> int:
    """The number of logits that the model returns for a grey image; an error if it returns anything else."""
    device = next(model.parameters(), model.mean).device
    images = torch.full((1, 3, *model.spec.input_size), 0.5, device=device)
    try:
        with open_model(model, images) as calls:
            return calls.logits(images).shape[1]
    except (TypeError, ValueError) as error:
        raise ModelError(f"`{name}`: {error}") from error
    except Exception as error:
        size = "×".join(map(str, model.spec.input_size))
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"`{name}` cannot take an image of 3×{size} ({type(error).__name__}: {reason}): give the module a `.spec`, "
            "a ModelSpec with its input size"
        ) from error


def is_checkpoint(name: str) -> bool:
    """Whether the name is the path of a checkpoint, whether the file exists or not.

    >>> is_checkpoint("runs/mine.pth"), is_checkpoint("timm:resnet50")
    (True, False)
    """
    if name in model_cards():
        return False
    return _expanded(name).is_file() or "/" in name or "\\" in name or Path(name).suffix in CHECKPOINT_SUFFIXES


def has_card(path: str) -> bool:
    """Whether there is a card beside the checkpoint."""
    return is_card(card_path(_expanded(path)))


def needs_architecture(name: str) -> bool:
    """Whether the name is the path of a checkpoint whose architecture no card names."""
    card = known_card(name)
    return is_checkpoint(name) and (card is None or not card.architecture)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ModelError(f"`{text}` starts with a user whose home folder is unknown: write the full path") from error
