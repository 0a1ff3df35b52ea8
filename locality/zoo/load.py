"""`load_model`: a network that takes pixels in [0, 1], from a name, a checkpoint or a function."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from locality.errors import ArgumentError, ModelError
from locality.model_calls import open_model
from locality.model_calls.outputs import OneLabel
from locality.progress import Progress, no_progress
from locality.types import Interpolation
from locality.zoo.architectures import class_names, is_function, of_function
from locality.zoo.catalog import model_cards, unknown_model
from locality.zoo.checkpoint import card_spec as card_spec
from locality.zoo.checkpoint import of_card, of_file, wrapped
from locality.zoo.class_index import class_index
from locality.zoo.hugging_face import PREFIX as HUGGING_FACE
from locality.zoo.hugging_face import from_folder, from_hub, is_multi_label
from locality.zoo.model_card import CHECKPOINT_SUFFIXES, ModelCard, card_path, is_card, read_card
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import GivenPreprocessing
from locality.zoo.programs import of_program, program_kind
from locality.zoo.robustbench_models import PREFIX as ROBUSTBENCH
from locality.zoo.robustbench_models import from_robustbench
from locality.zoo.timm_models import timm_pretrained

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
    multi_label: str | int | None = None,
    trust_code: bool = False,
) -> PixelModel:
    """Load a model in eval mode that takes pixels in [0, 1]. Its `.spec` describes its images and its classes.

    `name` is one of
    - a model of the catalog (`locality models` lists them);
    - `hf:ORG/NAME` or the folder of an image classifier of Hugging Face (the extra `hf`): safetensors only, no remote code;
    - `robustbench:NAME` (the extra `robustbench`);
    - `timm:NAME`, with timm's pretrained weights (`timm:resnet50.a1_in1k` names a particular training);
    - the path of a checkpoint. `arch` names its architecture: `timm:NAME`, `torchvision:NAME`, `net:NAME`,
      `package.module:function`, or a model of the catalog, whose preprocessing is then used, too. A checkpoint with a card
      beside it (NAME.json, as `locality train` writes it) needs no `arch` if the card names it; the card's preprocessing is
      used. The number of classes is that of the file. TorchScript files and `torch.export` files (.pt2) can run code: they
      need `trust_code=True`;
    - `package.module:function`, called without arguments, or with `num_classes` if that is given. It returns an nn.Module
      that takes pixels and normalises them itself. Its attribute `.spec`, a ModelSpec, may give the input size and the
      classes; without it, images are cropped to 224×224.
    A model with 1,000 classes is assumed to have ImageNet's. Other classes are unknown unless a spec or card lists them, or
    `classes` does: names in the order of the logits, or a file with one per line.

    Images are resized until their short side is `resize`, with `interpolation`, cropped to `input_size` and normalised with
    `mean` and `std` (of pixels in [0, 1]). What is not given comes from the model's card, from timm's configuration, from
    the `.spec`, or else is guessed from the architecture; `.preprocessing` says which. `input_size` alone implies `resize`.

    Networks may return an object with `.logits`, a dictionary with "logits" or "out", or a tuple that begins with logits.
    One logit f means two classes, (−f/2, f/2). `multi_label` is one label of a multi-label network, its name or number: the
    model then has two classes, absent and present, and its boundary is where the label's logit is 0.

    `device` defaults to the CPU. Nothing is downloaded without `download=True`; `progress(done, total)` counts bytes.
    Weights without a published sha256 need `trust_first_download=True` once; it stores theirs.

    >>> load_model("resnet50_random").spec.classes[:2]
    ('n01440764', 'n01443537')
    """
    text = str(name)
    known = model_cards()
    given = GivenPreprocessing(input_size, resize, interpolation, mean, std, classes)
    if num_classes is not None and num_classes < 1:
        raise ArgumentError("num_classes", "at least 1", num_classes)
    is_file = is_checkpoint(text)
    program = program_kind(_expanded(text)) if is_file else None
    if arch is not None and (not is_file or program):
        raise ArgumentError("arch", f"left out unless the model is the path of a checkpoint, which {text!r} is not", arch)
    if text in known:
        model = of_card(known[text], download, progress, trust_first_download)
    elif program is not None:
        model = of_program(_expanded(text), program, trust_code)
    elif is_file:
        model = of_file(_expanded(text), arch, num_classes, given)
    elif text.startswith(HUGGING_FACE):
        model = from_hub(text, download)
    elif _expanded(text).is_dir():
        model = from_folder(_expanded(text))
    elif text.startswith(ROBUSTBENCH):
        model = from_robustbench(text, download, trust_first_download)
    elif text.startswith("timm:"):
        model = timm_pretrained(text.removeprefix("timm:"), download, progress, trust_first_download)
    elif text.startswith(("torchvision:", "net:")):
        raise ModelError(
            f"`{text}` is an architecture without weights: pass the path of a checkpoint as the model, "
            f"and this as its architecture (--model FILE --arch {text})"
        )
    elif is_function(text):
        model = wrapped(of_function(text, num_classes), text, text)
        _warn_if_random(text)
    else:
        raise unknown_model(text, known)
    if given != NOTHING_GIVEN:
        model.respecify(given.applied(model.spec), given.origin(model.origin))
    try:
        model = model.to(torch.device("cpu" if device is None else device)).eval()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError("device", "a device of this machine's torch", str(device), reason) from error
    _check_classes(model, text, num_classes, is_known=text in known and classes is None and input_size is None)
    return _one_label(model, text, multi_label)


def _one_label(model: PixelModel, name: str, label: str | int | None) -> PixelModel:
    """The model of one label of a multi-label network; as it is where that is not asked for."""
    if label is None:
        if is_multi_label(model):
            raise ModelError(
                f"`{name}` is a multi-label network: pass multi_label=LABEL (--multi-label), the label to explain"
            )
        return model
    classes = model.spec.classes or tuple(f"label {index}" for index in range(model.spec.num_classes or 0))
    index = class_index(label, classes, "multi_label")
    model.net = OneLabel(model.net, index)
    model.spec = replace(model.spec, classes=(f"not {classes[index]}", classes[index]), num_classes=2)
    return model


def _warn_if_random(function: str) -> None:
    """The functions of torchvision and timm return trained weights on request only."""
    library, _, rest = function.partition(".models")
    if library in ("torchvision", "timm") and rest[:1] in (".", ":"):
        name = f"{library}:{function.partition(':')[2]}"
        text = f"`{function}` has random weights: for trained ones pass their file as the model (--model FILE --arch {name})"
        warnings.warn(text, stacklevel=3)


def known_card(name: str) -> ModelCard | None:
    """The card of a model of the catalog, or the one beside a checkpoint; None where there is none."""
    cards = model_cards()
    if name in cards:
        return cards[name]
    return read_card(card_path(_expanded(name))) if is_checkpoint(name) and has_card(name) else None


def _check_classes(model: PixelModel, name: str, num_classes: int | None, is_known: bool) -> None:
    """Compare the number of logits with `num_classes` and the spec; name the classes if their number implies them."""
    count = len(model.spec.classes) if is_known else class_count(model, name)
    if num_classes not in (None, count) and not (num_classes == 1 and count == 2):  # one logit is two classes
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
        low = {str(weights.dtype) for weights in model.parameters() if weights.is_floating_point() and weights.itemsize < 4}
        hint = "pass the size it takes as --input-size (`input_size`), or give the module a `.spec` (ModelSpec) of that size"
        if low:
            hint = f"images are float32, its weights {low.pop()}: return the module.float(), whose weights are the same"
        raise ModelError(f"`{name}` cannot take an image of 3×{size} ({type(error).__name__}: {reason}): {hint}") from error


def is_checkpoint(name: str) -> bool:
    """Whether the name is the path of a checkpoint, whether the file exists or not.

    >>> is_checkpoint("runs/mine.pth"), is_checkpoint("timm:resnet50")
    (True, False)
    """
    if name in model_cards() or name.startswith((HUGGING_FACE, ROBUSTBENCH)) or _expanded(name).is_dir():
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
