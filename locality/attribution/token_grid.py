"""Tokens of a transformer as a picture, so that methods that explain a layer see channels, rows and columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from locality.errors import ArgumentError

MAX_PREFIX = 16  # tokens before those of the patches: class token, distillation token, registers


class Grid(NamedTuple):
    """How N×T×C tokens lie on the image: `prefix` tokens without a place come first, then rows × columns."""

    prefix: int
    rows: int
    columns: int


def spatial_layer(model: nn.Module, layer: nn.Module, name: str, images: Tensor) -> nn.Module:
    """The layer itself, or where it returns tokens, a stand-in whose output is the tokens as N×C×rows×columns.

    The stand-in is called inside the model's forward pass, so that gradients pass through it. Tokens without a place on the
    image, such as the class token, go around it.
    """
    shape = _output_shape(model, layer, images)
    if shape is None or len(shape) != 3:
        return layer
    found = token_grid(shape[1], (images.shape[-2], images.shape[-1]), _declared(model))
    if found is None:
        expected = "a layer with spatial output, or whose tokens are a grid of patches"
        raise ArgumentError("layer", expected, f"{shape[1]} tokens of {name}")
    grid, picture = found, nn.Identity()

    def through_picture(_: nn.Module, __: Any, output: Any) -> Any:
        tokens = output[0] if isinstance(output, tuple) else output
        placed = tokens[:, grid.prefix :].transpose(1, 2).unflatten(2, (grid.rows, grid.columns))
        back = torch.cat([tokens[:, : grid.prefix], picture(placed).flatten(2).transpose(1, 2)], dim=1)
        return (back, *output[1:]) if isinstance(output, tuple) else back

    layer.register_forward_hook(through_picture)
    return picture


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


def _declared(model: nn.Module) -> int | None:
    """The number that networks of timm state."""
    stated = (getattr(part, "num_prefix_tokens", None) for part in model.modules())
    return next((number for number in stated if isinstance(number, int)), None)


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
