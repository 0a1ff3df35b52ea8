"""Networks by name, without weights: `timm:NAME`, `torchvision:NAME`, `net:NAME` or `package.module:function`."""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError, ModelError, did_you_mean
from locality.imagenet_classes import imagenet_wnids
from locality.types import Interpolation, ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.cifar import cifar_resnet50

KINDS = "timm:NAME, torchvision:NAME, net:NAME or package.module:function"
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
IDENTITY: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
# Of networks trained with locality, for a checkpoint without its card.
OWN_INPUT: dict[str, Any] = {"mean": (0.45,) * 3, "std": (0.25,) * 3}
Tensors = dict[str, Tensor]


def own_nets() -> dict[str, Callable[..., nn.Module]]:
    """The networks behind `net:NAME`: those that are trained here, and those of published checkpoints."""
    return NETS | {"cifar_resnet50": cifar_resnet50}


def build(architecture: str, classes: int | None, seed: int = 0, options: Mapping[str, Any] | None = None) -> nn.Module:
    """A network initialised with `seed`; the caller's random state is unchanged.

    `classes=None` leaves the number to the architecture: 1,000, or whatever a function decides. `options` are those of a
    `net:NAME`, such as its depth.

    >>> build("net:shapes_cnn", 7)[-1].out_features
    7
    """
    kind, _, name = architecture.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU as well
        if kind == "timm" and name:
            return _timm(name, classes or 1000)
        if kind == "torchvision" and name:
            return _torchvision(name, classes or 1000)
        if kind == "net" and name:
            return _own(name)(classes or 10, **(options or {}))
        if is_function(architecture):
            return of_function(architecture, classes)
    published = [f"{where}:{architecture}" for where, has in LIBRARIES.items() if has(architecture)]
    if published:
        hint = f"write {' or '.join(published)}, whichever the checkpoint is of"
    else:
        hint = did_you_mean(architecture, [f"net:{own}" for own in own_nets()], cutoff=0.4)
    raise ArgumentError("arch", f"{KINDS}, or a model of the catalog", architecture, hint)


def check_library_net(architecture: str) -> None:
    """Raise a ModelError unless timm or torchvision has the network `timm:NAME` or `torchvision:NAME`."""
    kind, _, name = architecture.partition(":")
    if kind == "timm" and not _is_timm_model(name):
        raise unknown_timm_model(name)
    if kind == "torchvision":
        _check_torchvision_model(name)


def input_of(architecture: str, net: nn.Module, name: str) -> ModelSpec:
    """The preprocessing that the architecture was published with; a function's network gets pixels as they are."""
    kind, _, short = architecture.partition(":")
    if kind == "timm":
        return timm_input(net, name)
    if kind == "torchvision":
        from torchvision.models import get_model_weights

        recipe = next(iter(get_model_weights(short))).transforms()  # the first: those of the publication
        size, resize = int(recipe.crop_size[0]), int(recipe.resize_size[0])
        how = _interpolation(recipe.interpolation.value)
        return ModelSpec(name, (size, size), resize, how, tuple(recipe.mean), tuple(recipe.std))
    if kind == "net":
        size = 32 if short == "cifar_resnet50" else 64
        return ModelSpec(name, (size, size), size, **OWN_INPUT)
    own = getattr(net, "spec", None)
    return replace(own if isinstance(own, ModelSpec) else ModelSpec(name), **IDENTITY)


def timm_input(net: nn.Module, name: str) -> ModelSpec:
    """The preprocessing in timm's configuration of the network."""
    from timm.data.config import resolve_model_data_config

    config = resolve_model_data_config(net)
    size: tuple[int, int] = tuple(config["input_size"][1:])
    if config.get("crop_mode", "center") != "center":
        warnings.warn(
            f"`{name}` was published with crop mode {config['crop_mode']!r}, but images are cropped around the centre",
            stacklevel=2,
        )
    return ModelSpec(
        name,
        size,
        max(math.floor(max(size) / config["crop_pct"]), max(size)),
        _interpolation(config["interpolation"]),
        tuple(config["mean"]),
        tuple(config["std"]),
    )


def class_names(count: int) -> tuple[str, ...]:
    """The WordNet ids of ImageNet if there are 1,000 classes; empty for any other number."""
    return imagenet_wnids() if count == 1000 else ()


def is_function(text: str) -> bool:
    """Whether the text has the form `package.module:function`.

    >>> is_function("my_models.vision:small_net"), is_function("timm:resnet50")
    (True, False)
    """
    return FUNCTION.fullmatch(text) is not None and not text.startswith(("timm:", "torchvision:", "net:"))


def of_function(name: str, classes: int | None) -> nn.Module:
    """The nn.Module that `package.module:function` returns; `num_classes` is passed if it is given.

    The package is also searched for in the current folder, as `python -m` does.
    """
    module_name, _, function_name = name.partition(":")
    with _current_folder_on_path():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise ModelError(
                    f"`{name}`: there is no module {error.name!r}: install it, or run in its folder (or set PYTHONPATH)"
                ) from error
            raise ModelError(f"`{name}`: importing {module_name} failed: {error}") from error
        except (Exception, SystemExit) as error:  # the file may raise anything, also SystemExit
            raise ModelError(f"`{name}`: importing {module_name} failed: {_first_line(error)}: correct the file") from error
        function = getattr(module, function_name, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            hint = did_you_mean(function_name, known)
            raise ModelError(f"`{name}`: {module_name} has no function {function_name!r}{hint and f': {hint}'}")
        try:
            net = function() if classes is None else function(num_classes=classes)
        except (Exception, SystemExit) as error:
            raise ModelError(f"`{name}` failed: {_first_line(error)}") from error
    if not isinstance(net, nn.Module):
        raise ModelError(f"`{name}` must return an nn.Module, got {type(net).__name__}")
    return net


def renamed(architecture: str, tensors: Tensors) -> Tensors:
    """The tensors under the architecture's current names; `RENAMES` lists those published under other names."""
    for start, rename in RENAMES.items():
        if architecture.startswith(start):
            return rename(tensors)
    return tensors


def _timm(name: str, classes: int) -> nn.Module:
    if not _is_timm_model(name):
        raise unknown_timm_model(name)
    import timm

    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes)
    return net


def _is_timm_model(name: str) -> bool:
    import timm

    return bool(timm.is_model(name))


def _is_torchvision_model(name: str) -> bool:
    import torchvision

    return name in torchvision.models.list_models(module=torchvision.models)


LIBRARIES: dict[str, Callable[[str], bool]] = {"torchvision": _is_torchvision_model, "timm": _is_timm_model}


def unknown_timm_model(name: str) -> ModelError:
    """The error for a model that timm does not have."""
    import timm

    hint = did_you_mean(f"timm:{name}", [f"timm:{known}" for known in timm.list_models()])
    return ModelError(f"timm has no model `{name}`{hint and f': {hint}'}")


def _check_torchvision_model(name: str) -> None:
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        hint = did_you_mean(name, known)
        raise ModelError(f"torchvision has no classifier `{name}`{hint and f': {hint}'}")


def _torchvision(name: str, classes: int) -> nn.Module:
    import torchvision

    _check_torchvision_model(name)
    net: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes)
    return net


def _own(name: str) -> Callable[..., nn.Module]:
    nets = own_nets()
    if name not in nets:
        raise ModelError(f"`net:{name}` is not a network: choose {', '.join(f'net:{known}' for known in nets)}")
    return nets[name]


def _interpolation(name: str) -> Interpolation:
    return "bilinear" if name == "bilinear" else "bicubic"  # a few models use Lanczos, which is close to bicubic


@contextlib.contextmanager
def _current_folder_on_path() -> Iterator[None]:
    folder = str(Path.cwd())
    if folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # removed by the module itself
            sys.path.remove(folder)


def _first_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _swin(tensors: Tensors) -> Tensors:
    """Before timm 0.9 a stage ended with its downsampling; now the next stage begins with it."""
    if "head.weight" not in tensors:
        return tensors
    moved = {}
    for name, value in tensors.items():
        stage = re.match(r"layers\.(\d+)\.downsample\.", name)
        if stage:
            name = f"layers.{int(stage[1]) + 1}.downsample.{name[stage.end() :]}"
        moved[re.sub(r"^head\.(?=weight$|bias$)", "head.fc.", name)] = value
    return moved


def _vgg(tensors: Tensors) -> Tensors:
    """timm's VGG has convolutions where torchvision's has linear layers with the same weights."""
    names = {"classifier.0": "pre_logits.fc1", "classifier.3": "pre_logits.fc2", "classifier.6": "head.fc"}
    kernels = {"pre_logits.fc1.weight": (512, 7, 7), "pre_logits.fc2.weight": (4096, 1, 1)}
    renamed_tensors = {}
    for name, value in tensors.items():
        layer, _, last = name.rpartition(".")
        name = f"{names.get(layer, layer)}.{last}"
        kernel = kernels.get(name, ())
        same = kernel and value.dim() == 2 and value.shape[1] == math.prod(kernel)
        renamed_tensors[name] = value.reshape(-1, *kernel) if same else value
    return renamed_tensors


def _robustness_resnet(tensors: Tensors) -> Tensors:
    """MadryLab's CIFAR ResNet has `shortcut` and `linear` where torchvision's has `downsample` and `fc`."""
    return {re.sub(r"^linear\.", "fc.", name.replace(".shortcut.", ".downsample.")): v for name, v in tensors.items()}


def _torchvision_vit(tensors: Tensors) -> Tensors:
    """torchvision's ViT files are older than its MLP class, which numbers the layers that they call `linear_1` and `_2`."""
    layers = {"mlp.linear_1.": "mlp.0.", "mlp.linear_2.": "mlp.3."}
    return {re.sub(r"mlp\.linear_[12]\.", lambda found: layers[found[0]], name): v for name, v in tensors.items()}


# Start of an architecture's name ↦ function that renames published tensors to current names.
RENAMES: dict[str, Callable[[Tensors], Tensors]] = {
    "timm:swin_": _swin,
    "timm:vgg": _vgg,
    "torchvision:vit_": _torchvision_vit,
    "net:cifar_resnet50": _robustness_resnet,
}
