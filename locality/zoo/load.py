"""`load_model`: a network on pixels in [0, 1], from a name, a file or a function."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from locality.imagenet_classes import imagenet_wnids
from locality.model_calls import open_model
from locality.progress import Progress
from locality.types import ModelSpec
from locality.zoo.architectures import KINDS, build, class_names, input_of, is_function, of_function, renamed
from locality.zoo.cards import read_card
from locality.zoo.catalog import CIFAR10, entries, unknown_name
from locality.zoo.entry import Address, Entry, ModelError, Package, Seed
from locality.zoo.pixel_model import PixelModel
from locality.zoo.state_dict import class_counts, fill, fill_in_order, normaliser_in, own_names, read_tensors, unwrapped
from locality.zoo.timm_models import timm_pretrained
from locality.zoo.weight_files import found_weights, models_folder, not_kept_damaged, verified

CHECKPOINT_SUFFIXES = {".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".tar", ".pkl"}


def load_model(
    name: str | Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    device: str | torch.device | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> PixelModel:
    """A model in eval mode that takes pixels in [0, 1] and says in `.spec` what images it expects and what its logits mean.

    `name` is one of
    - a model of the catalog (`locality models` lists them);
    - `timm:NAME`, which asks for timm's pretrained weights (`timm:resnet50.a1_in1k` for a certain training);
    - the path of a checkpoint, with `arch` saying its architecture: `timm:NAME`, `torchvision:NAME`, `net:NAME`,
      `package.module:function`, or a model of the catalog, whose preprocessing then holds, too. Beside a card, as
      `locality train` writes it, no `arch` is needed. The number of classes is the file's, unless `num_classes` is given;
    - `package.module:function`, called without arguments, or with `num_classes` where that is given. It returns an
      nn.Module that takes pixels, normalising them itself; its attribute `.spec`, a ModelSpec, may say the input size and
      the classes. Without it, images are cropped to 224×224.
    1,000 classes are taken for ImageNet's; of other numbers the classes stay unknown where nothing says them.

    `device` is the CPU unless given. Nothing is fetched without `download=True`; `progress(done, total)` counts bytes.

    >>> load_model("resnet50_random").spec.classes[:2]
    ('n01440764', 'n01443537')
    """
    text = str(name)
    known = entries()
    if num_classes is not None and num_classes < 2:
        raise ModelError(f"`num_classes` must be at least 2, got {num_classes}")
    is_file = is_checkpoint(text)
    if arch is not None and not is_file:
        raise ModelError(f"`arch` goes with the path of a checkpoint, got arch={arch!r} beside the model `{text}`")
    if text in known:
        model = _of_entry(known[text], download, progress)
    elif is_file:
        model = _of_file(_expanded(text), arch, num_classes)
    elif text.startswith("timm:"):
        model = timm_pretrained(text.removeprefix("timm:"), download, progress)
    elif text.startswith(("torchvision:", "net:")):
        raise ModelError(f"`{text}` is an architecture without weights: pass it as `arch` beside a checkpoint's path")
    elif is_function(text):
        model = _wrapped(of_function(text, num_classes), text, text)
    else:
        raise ModelError(unknown_name(text, list(known)))
    try:
        model = model.to(torch.device("cpu" if device is None else device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"`device` must be one that torch has, got {device!r}: {str(error).partition(chr(10))[0]}"
        ) from error
    _check_classes(model, text, num_classes, ours=text in known)
    return model


def entry_spec(entry: Entry) -> ModelSpec:
    """What a model of the catalog expects of its images, and its classes."""
    return ModelSpec(
        entry.name, entry.input_size, entry.resize, entry.interpolation, entry.mean, entry.std, entry_classes(entry)
    )


def entry_classes(entry: Entry) -> tuple[str, ...]:
    """The classes of a model of the catalog, in the order of its logits."""
    if entry.classes is not None:
        return entry.classes
    return imagenet_wnids() if entry.label_space == "imagenet" else CIFAR10


def _of_entry(entry: Entry, download: bool, progress: Progress | None) -> PixelModel:
    path, tensors = _weights_of(entry, download, progress)
    spec = entry_spec(entry)
    net = build(entry.architecture, len(spec.classes), entry.weights.seed if isinstance(entry.weights, Seed) else 0)
    if path is not None:
        if isinstance(entry.weights, Package):
            fill_in_order(net, tensors, path)
        else:
            fill(net, tensors, path, spec, lambda found: renamed(entry.architecture, found))
    return PixelModel(net, spec)


def _weights_of(entry: Entry, download: bool, progress: Progress | None) -> tuple[Path | None, dict[str, torch.Tensor]]:
    """Where the weights lie, and what is in them."""
    guard: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if isinstance(entry.weights, Address) and entry.weights.checksum is None:  # nobody else has looked at the bytes
        guard = not_kept_damaged(models_folder() / entry.weights.file)
    with guard:
        path = found_weights(entry, download, progress)
        return path, {} if path is None else read_tensors(path)


def _of_file(path: Path, arch: str | None, num_classes: int | None) -> PixelModel:
    card_path = path.with_suffix(".json")
    tensors = read_tensors(path)
    if arch is None and card_path.is_file():
        card = read_card(card_path)
        verified(path, f"sha256:{card.weights_sha256}")
        net = build(f"net:{card.net}", len(card.classes))
        size = card.input_size
        spec = ModelSpec(card.name, size, max(size), mean=card.mean, std=card.std, classes=card.classes)
        fill(net, tensors, path, spec)
        return PixelModel(net, spec)
    if arch is None:
        raise ModelError(f"`{path}` does not say its architecture: pass `arch` (--arch), {KINDS}, or a model of the catalog")
    entry = entries().get(arch)
    architecture = arch if entry is None else entry.architecture
    like = None if entry is None else replace(entry_spec(entry), name=path.stem)
    net, differs = _sized(architecture, tensors, path, num_classes, None if like is None else len(like.classes))
    model = _wrapped(net, architecture, path.stem)
    spec = model.spec if like is None else replace(like, classes=() if differs else like.classes)
    given: dict[str, Any] = dict(normaliser_in(tensors, own_names(model.net)))  # what the network was trained with
    spec = replace(spec, **given)
    fill(model.net, tensors, path, spec, lambda found: renamed(architecture, found))
    return PixelModel(model.net, spec)


def _sized(
    architecture: str, tensors: dict[str, torch.Tensor], path: Path, num_classes: int | None, usual: int | None
) -> tuple[nn.Module, bool]:
    """The architecture with as many classes as the file has, and whether that is another number than the `usual` one.

    A given `num_classes` must be the file's number.
    """
    net = build(architecture, num_classes or usual)
    inner = net.net if isinstance(net, PixelModel) else net
    counts = class_counts(inner, renamed(architecture, unwrapped(tensors, own_names(inner), path)))
    if counts is None:
        return net, num_classes not in (None, usual)
    here, there = counts
    if num_classes is not None or is_function(architecture):
        raise ModelError(
            f"`{path}` has {there} classes, the network {here}: pass `num_classes={there}` (--num-classes {there})"
        )
    return build(architecture, there), True


def _wrapped(net: nn.Module, architecture: str, name: str) -> PixelModel:
    return net if isinstance(net, PixelModel) else PixelModel(net, input_of(architecture, net, name))


def _check_classes(model: PixelModel, name: str, num_classes: int | None, ours: bool) -> None:
    """Compare the number of logits with what is said about it; name the classes where their number tells them."""
    count = len(model.spec.classes) if ours else class_count(model, name)
    if num_classes not in (None, count):
        raise ModelError(f"`{name}` has {count} classes, `num_classes` is {num_classes}: leave it out")
    if not model.spec.classes:
        model.spec = replace(model.spec, classes=class_names(count))
    elif len(model.spec.classes) != count:
        raise ModelError(f"`{name}` returns {count} logits, its `.spec` lists {len(model.spec.classes)} classes")


def class_count(model: PixelModel, name: str) -> int:
    """How many logits the model returns for a grey image; anything but a table of logits is an error that says so."""
    place = next(model.parameters(), model.mean).device
    images = torch.full((1, 3, *model.spec.input_size), 0.5, device=place)
    try:
        with open_model(model, images) as calls:
            return calls.logits(images).shape[1]
    except (TypeError, ValueError) as error:
        raise ModelError(f"`{name}`: {error}") from error
    except Exception as error:
        size = "×".join(map(str, model.spec.input_size))
        told = str(error).partition("\n")[0]
        raise ModelError(
            f"`{name}` cannot take an image of 3×{size} ({type(error).__name__}: {told}): give the module a `.spec`, a "
            "ModelSpec with its input size"
        ) from error


def is_checkpoint(name: str) -> bool:
    """Whether the name is a checkpoint's path, there or not.

    >>> is_checkpoint("runs/mine.pth"), is_checkpoint("timm:resnet50")
    (True, False)
    """
    if name in entries():
        return False
    return _expanded(name).is_file() or "/" in name or "\\" in name or Path(name).suffix in CHECKPOINT_SUFFIXES


def has_card(path: str) -> bool:
    """Whether a card lies beside the checkpoint, which then needs no `arch`."""
    return _expanded(path).with_suffix(".json").is_file()


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ModelError(f"`{text}` begins with a user whose home folder is not known: write the path in full") from error
