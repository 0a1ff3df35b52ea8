"""The head of any classifier: the last layer, which makes logits. It is found by running the network; it can be replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError, ModelError
from locality.zoo.load import class_count
from locality.zoo.nets.centroid import CentroidHead
from locality.zoo.nets.lipschitz import NormalisedHead
from locality.zoo.pixel_model import PixelModel

HEADS = (nn.Linear, nn.Conv2d, NormalisedHead, CentroidHead)


def find_head(model: PixelModel) -> str:
    """The name of the layer of `model` that makes its logits: a linear layer, a convolution or a head of certified networks.

    It is the last layer called that has one output per class and that all logits depend on: with zeros in its place, two
    images have the same logits. A network without such a layer is an error that names it.

    >>> from locality.types import ModelSpec
    >>> net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> find_head(PixelModel(net, ModelSpec("small", (4, 4), 4)))
    'net.0'
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, *model.spec.input_size, generator=generator).to(model.mean.device)
    names: dict[nn.Module, str] = {layer: name for name, layer in model.named_modules() if isinstance(layer, HEADS)}
    called: list[nn.Module] = []
    with _in_eval_mode(model):
        hooks = [layer.register_forward_hook(lambda layer, *_: called.append(layer)) for layer in names]
        try:
            classes = class_count(model, model.spec.name)
        finally:
            for hook in hooks:
                hook.remove()
        outputs = {classes, 1} if classes == 2 else {classes}  # one logit counts as two classes
        for layer in dict.fromkeys(reversed(called)):
            if _outputs(layer) in outputs and _decides(model, layer, images):
                return names[layer]
    raise ModelError(
        f"the head of `{model.spec.name}` cannot be found: its logits are not made by one linear layer or convolution with "
        f"an output for each of its {classes:,} classes, so it cannot be given other classes"
    )


def replace_head(model: PixelModel, name: str, classes: int, seed: int = 0) -> None:
    """Put a new layer of the same kind, with random weights, in the place of the head `name`."""
    old = model.get_submodule(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        new = _new_layer(old, classes)
    weight = next(old.parameters())
    model.set_submodule(name, new.to(weight.device, weight.dtype))
    if isinstance(getattr(model.net, "num_classes", None), int):  # timm's networks state it
        model.net.num_classes = classes  # type: ignore[assignment]
    images = torch.full((1, 3, *model.spec.input_size), 0.5, device=model.mean.device)
    try:
        with _in_eval_mode(model):
            shape = tuple(_logits(model, images).shape)
        if shape == (1, classes):
            return
        reason = f"it returns {shape[-1]:,} logits"
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
    raise ModelError(
        f"`{model.spec.name}` cannot be given {classes:,} classes, because layers after its head `{name}` depend on their "
        f"number ({reason})"
    )


def check_new_classes(classes: int) -> None:
    """Raise unless a classifier can have so many classes."""
    if classes < 2:
        raise ArgumentError("data", "images of at least two classes", f"{classes} class")


def _outputs(layer: nn.Module) -> int | None:
    if isinstance(layer, nn.Conv2d):
        return layer.out_channels if layer.groups == 1 else None
    return int(layer.out_features)  # type: ignore[arg-type]


def _new_layer(old: Any, classes: int) -> nn.Module:
    """A layer of the same kind with other outputs; a subclass of a layer of torch becomes that layer."""
    if isinstance(old, CentroidHead):
        return CentroidHead(old.in_features, classes, old.centroids.shape[1], old.eta)
    if isinstance(old, NormalisedHead):
        return NormalisedHead(old.in_features, classes)
    bias = old.bias is not None
    if isinstance(old, nn.Linear):
        return nn.Linear(old.in_features, classes, bias)
    how = {key: getattr(old, key) for key in ("stride", "padding", "dilation", "padding_mode")}
    return nn.Conv2d(old.in_channels, classes, old.kernel_size, bias=bias, **how)


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    """The model in eval mode for a while; each part goes back to its own mode."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


@torch.no_grad()
def _logits(model: PixelModel, images: Tensor) -> Tensor:
    logits: Tensor = model(images)
    return logits


def _decides(model: PixelModel, layer: nn.Module, images: Tensor) -> bool:
    """Whether logits depend on the images through this layer alone."""
    hook = layer.register_forward_hook(lambda layer, inputs, output: torch.zeros_like(output))
    try:
        one, other = _logits(model, images)
    finally:
        hook.remove()
    return bool(torch.allclose(one, other))
