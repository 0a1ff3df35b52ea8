"""Networks by name, without weights: `timm:NAME`, `torchvision:NAME`, `net:NAME` or `package.module:function`."""

from __future__ import annotations

import contextlib
import difflib
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

from locality.errors import ModelError
from locality.imagenet_classes import imagenet_wnids
from locality.torchvision_shim import import_torchvision
from locality.types import Interpolation, ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.cifar import cifar_resnet50

KINDS = "timm:NAME, torchvision:NAME, net:NAME or package.module:function"
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
IDENTITY: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
# Of networks trained here (locality/training/recipe.py), for a checkpoint that has lost its card.
OWN_INPUT: dict[str, Any] = {"mean": (0.45,) * 3, "std": (0.25,) * 3}
Tensors = dict[str, Tensor]


def own_nets() -> dict[str, Callable[..., nn.Module]]:
    """The networks behind `net:NAME`: those that are trained here, and those of published checkpoints."""
    return NETS | {"cifar_resnet50": cifar_resnet50}


def build(architecture: str, classes: int | None, seed: int = 0, options: Mapping[str, Any] | None = None) -> nn.Module:
    """A network with fresh weights, drawn with `seed`; the caller's random state stays as it is.

    `classes` of None leaves the number to the architecture: 1,000, or whatever a function decides. `options` are those of a
    `net:NAME`, such as its depth.

    >>> build("net:shapes_cnn", 7)[-1].out_features
    7
    """
    kind, _, name = architecture.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU, too
        if kind == "timm" and name:
            return _timm(name, classes or 1000)
        if kind == "torchvision" and name:
            return _torchvision(name, classes or 1000)
        if kind == "net" and name:
            return _own(name)(classes or 10, **(options or {}))
        if is_function(architecture):
            return of_function(architecture, classes)
    near = difflib.get_close_matches(architecture, ["timm:" + architecture] + [f"net:{name}" for name in own_nets()], 1, 0.4)
    hint = f", for example {near[0]!r}" if near else ""
    raise ModelError(f"`arch` must be {KINDS}, or a model of the catalog, got {architecture!r}{hint}")


def input_of(architecture: str, net: nn.Module, name: str) -> ModelSpec:
    """What the architecture's publisher feeds it; a function's network is given pixels as they are."""
    kind, _, short = architecture.partition(":")
    if kind == "timm":
        return timm_input(net, name)
    if kind == "torchvision":
        import_torchvision()
        from torchvision.models import get_model_weights

        recipe = next(iter(get_model_weights(short))).transforms()  # the first: what the architecture was published with
        size, resize = int(recipe.crop_size[0]), int(recipe.resize_size[0])
        how = _interpolation(recipe.interpolation.value)
        return ModelSpec(name, (size, size), resize, how, tuple(recipe.mean), tuple(recipe.std))
    if kind == "net":
        size = 32 if short == "cifar_resnet50" else 64
        return ModelSpec(name, (size, size), size, **OWN_INPUT)
    own = getattr(net, "spec", None)
    return replace(own if isinstance(own, ModelSpec) else ModelSpec(name), **IDENTITY)


def timm_input(net: nn.Module, name: str) -> ModelSpec:
    """What timm's configuration of the network says about its images."""
    from timm.data.config import resolve_model_data_config

    config = resolve_model_data_config(net)
    size: tuple[int, int] = tuple(config["input_size"][1:])
    if config.get("crop_mode", "center") != "center":
        warnings.warn(
            f"`{name}` was published with crop mode {config['crop_mode']!r}; here images are cropped around the centre",
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
    """WordNet ids where there are 1,000 classes, which are taken for ImageNet's; nothing is known about other numbers."""
    return imagenet_wnids() if count == 1000 else ()


def is_function(text: str) -> bool:
    """Whether the text has the form `package.module:function`.

    >>> is_function("my_models.vision:small_net"), is_function("timm:resnet50")
    (True, False)
    """
    return FUNCTION.fullmatch(text) is not None and not text.startswith(("timm:", "torchvision:", "net:"))


def of_function(name: str, classes: int | None) -> nn.Module:
    """What `package.module:function` returns, called with `num_classes` where that is given; it must be a module.

    The package is looked for in the current folder, too, as `python -m` does.
    """
    module_name, _, function_name = name.partition(":")
    with _current_folder_on_path():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise ModelError(
                    f"`{name}`: there is no module {error.name!r}: install it, or run where it lies (or set PYTHONPATH)"
                ) from error
            raise ModelError(f"`{name}`: importing {module_name} failed: {error}") from error
        except (Exception, SystemExit) as error:  # whatever the file does, also leaving Python
            raise ModelError(f"`{name}`: importing {module_name} failed: {_told(error)}: correct the file") from error
        function = getattr(module, function_name, None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            near = difflib.get_close_matches(function_name, known, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ModelError(f"`{name}`: {module_name} has no function {function_name!r}{hint}")
        try:
            net = function() if classes is None else function(num_classes=classes)
        except (Exception, SystemExit) as error:
            raise ModelError(f"`{name}` failed: {_told(error)}") from error
    if not isinstance(net, nn.Module):
        raise ModelError(f"`{name}` must return an nn.Module, got {type(net).__name__}")
    return net


def renamed(architecture: str, tensors: Tensors) -> Tensors:
    """The tensors under the names that the architecture has today; `RENAMES` says which were published under others."""
    for start, rename in RENAMES.items():
        if architecture.startswith(start):
            return rename(tensors)
    return tensors


def _timm(name: str, classes: int) -> nn.Module:
    import_torchvision()
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), 1)
        raise ModelError(f"timm has no model `{name}`" + (f": did you mean 'timm:{near[0]}'?" if near else ""))
    net: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes)
    return net


def _torchvision(name: str, classes: int) -> nn.Module:
    import_torchvision()
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise ModelError(f"torchvision has no classifier `{name}`" + (f": did you mean {near[0]!r}?" if near else ""))
    net: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes)
    return net


def _own(name: str) -> Callable[..., nn.Module]:
    nets = own_nets()
    if name not in nets:
        raise ModelError(f"`net:{name}` is no network: there is {', '.join(f'net:{known}' for known in nets)}")
    return nets[name]


def _interpolation(name: str) -> Interpolation:
    return "bilinear" if name == "bilinear" else "bicubic"  # a few ask for Lanczos, which is close to bicubic


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
        with contextlib.suppress(ValueError):  # taken off by the module itself
            sys.path.remove(folder)


def _told(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _swin(tensors: Tensors) -> Tensors:
    """Before timm 0.9 a stage ended with its reduction; since then the next one begins with it."""
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
    """timm's VGG has convolutions where torchvision's has the same numbers in linear layers."""
    names = {"classifier.0": "pre_logits.fc1", "classifier.3": "pre_logits.fc2", "classifier.6": "head.fc"}
    kernels = {"pre_logits.fc1.weight": (512, 7, 7), "pre_logits.fc2.weight": (4096, 1, 1)}
    found = {}
    for name, value in tensors.items():
        layer, _, last = name.rpartition(".")
        name = f"{names.get(layer, layer)}.{last}"
        kernel = kernels.get(name, ())
        same = kernel and value.dim() == 2 and value.shape[1] == math.prod(kernel)
        found[name] = value.reshape(-1, *kernel) if same else value
    return found


def _robustness_resnet(tensors: Tensors) -> Tensors:
    """MadryLab's CIFAR ResNet says `shortcut` and `linear`, torchvision's `downsample` and `fc`."""
    return {re.sub(r"^linear\.", "fc.", name.replace(".shortcut.", ".downsample.")): v for name, v in tensors.items()}


# How an architecture's name begins ↦ what brings published tensors under today's names.
RENAMES: dict[str, Callable[[Tensors], Tensors]] = {
    "timm:swin_": _swin,
    "timm:vgg": _vgg,
    "net:cifar_resnet50": _robustness_resnet,
}
