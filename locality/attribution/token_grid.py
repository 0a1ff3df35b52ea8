"""Tokens of a transformer as a picture, so that methods that explain a layer see channels, rows and columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from locality.errors import ArgumentError

MAX_PREFIX = 16  # tokens before those of the patches: class token, distillation token, registers


class Grid(NamedTuple):
    """How N×T×C tokens lie on the image: `prefix` tokens without a place come first, then rows × columns."""

    prefix: int
    rows: int
    columns: int


def spatial_layer(model: nn.Module, layer: nn.Module, name: str, images: Tensor) -> nn.Module:
    """The layer itself, or where it returns tokens or channels last, a stand-in whose output is N×C×rows×columns.

    The stand-in is called inside the model's forward pass, so that gradients pass through it. Tokens without a place on the
    image, such as the class token, go around it.
    """
    shape, size = _output_shape(model, layer, images), (images.shape[-2], images.shape[-1])
    if shape is None or len(shape) not in (3, 4):
        return layer
    picture = nn.Identity()
    if len(shape) == 4:
        if not channels_last(shape, size, _declared(model, "output_fmt") == "NHWC"):
            return layer

        def around(tokens: Tensor) -> Tensor:
            return picture(tokens.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)  # type: ignore[no-any-return]
    else:
        found = token_grid(shape[1], size, declared_prefix(model))
        if found is None:
            expected = "a layer with spatial output, or whose tokens are a grid of patches"
            raise ArgumentError("layer", expected, f"{shape[1]} tokens of {name}")
        grid = found

        def around(tokens: Tensor) -> Tensor:
            placed = tokens[:, grid.prefix :].transpose(1, 2).unflatten(2, (grid.rows, grid.columns))
            return torch.cat([tokens[:, : grid.prefix], picture(placed).flatten(2).transpose(1, 2)], dim=1)

    def through_picture(_: nn.Module, __: Any, output: Any) -> Any:
        return (around(output[0]), *output[1:]) if isinstance(output, tuple) else around(output)

    layer.register_forward_hook(through_picture)
    return picture


def channels_last(shape: tuple[int, ...], size: tuple[int, int], stated: bool = False) -> bool:
    """Whether a layer's output of four axes is N×H×W×C, as in Swin, and not N×C×H×W.

    It is where the second and third axes have the proportions of the image and the last two have not. Where both have, what
    the network states decides (timm's `output_fmt`).

    >>> channels_last((1, 7, 7, 768), (224, 224)), channels_last((1, 768, 7, 7), (224, 224))
    (True, False)
    """
    first, last = (
        min(pair) > 0 and abs(size[0] / pair[0] - size[1] / pair[1]) < 1 and pair[0] <= size[0] and pair[1] <= size[1]
        for pair in ((shape[1], shape[2]), (shape[2], shape[3]))
    )
    return first and (stated or not last)


def over_pixels(plane: Tensor, images: Tensor) -> Tensor:
    """N×1×rows×columns values upsampled to the images and divided equally among their channels."""
    plane = functional.interpolate(plane, images.shape[-2:], mode="bilinear", align_corners=False)
    return (plane / images.shape[1]).expand_as(images).to(images.dtype).clone()


def token_grid(tokens: int, size: tuple[int, int], prefix: int | None = None) -> Grid | None:
    """The grid of so many tokens on an image of height × width; None if they are none. Patches are square.

    `prefix` is the number of tokens without a place, if it is known; otherwise it is the smallest that leaves a grid.

    >>> token_grid(197, (224, 224)), token_grid(201, (224, 224)), token_grid(169, (224, 192))
    (Grid(prefix=1, rows=14, columns=14), Grid(prefix=5, rows=14, columns=14), Grid(prefix=1, rows=14, columns=12))
    """
    height, width = size
    for first in range(MAX_PREFIX + 1) if prefix is None else (prefix,):
        patches = tokens - first
        rows = round((max(patches, 0) * height / width) ** 0.5)
        if rows and patches % rows == 0 and abs(height / rows - width / (patches // rows)) < 1:
            return Grid(first, rows, patches // rows)
    return None if prefix is None else token_grid(tokens, size)


def declared_prefix(model: nn.Module) -> int | None:
    """The number of tokens without a place that networks of timm state."""
    stated = _declared(model, "num_prefix_tokens")
    return stated if isinstance(stated, int) else None


def _declared(model: nn.Module, name: str) -> Any:
    return next((getattr(part, name) for part in model.modules() if hasattr(part, name)), None)


def _output_shape(model: nn.Module, layer: nn.Module, images: Tensor) -> tuple[int, ...] | None:
    shapes: list[tuple[int, ...]] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        tokens = output[0] if isinstance(output, tuple) and output else output
        if isinstance(tokens, Tensor):
            shapes.append(tuple(tokens.shape))

    hook = layer.register_forward_hook(note)
    try:
        with torch.no_grad():
            model(images.detach().clone())
    finally:
        hook.remove()
    return shapes[-1] if shapes else None
