"""For tests: the exact Taylor terms of logits in the weights, by forward-mode differentiation.

Training does not use them: torch's second derivatives are wrong through BatchNorm in training mode and through LayerNorm
(pytorch#196699, #196700), and in networks with ReLU they miss the kinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from locality.errors import ArgumentError


def exact_terms(net: nn.Module, offset: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """J u and uᵀH u of the logits, u being `offset`, 0 for the weights that it does not name."""
    for module in net.modules():
        if isinstance(module, nn.LayerNorm) or (isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training):
            raise ArgumentError("net", "without LayerNorm, and in eval mode if it has BatchNorm", type(module).__name__)
    return nested_derivatives(net, offset, images)


def nested_derivatives(net: nn.Module, offset: Mapping[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """What torch gives, right or wrong."""
    weights = {name: value.detach() for name, value in net.named_parameters()}
    direction = {name: offset.get(name, torch.zeros_like(value)) for name, value in weights.items()}

    def logits(values: dict[str, Tensor]) -> Any:
        return functional_call(net, values, (images,))

    def first(values: dict[str, Tensor]) -> Any:
        return jvp(logits, (values,), (direction,))[1]

    terms: tuple[Tensor, Tensor] = jvp(first, (weights,), (direction,))  # type: ignore[assignment]  # its stub has a third
    return terms


def along(net: nn.Module, offset: Mapping[str, Tensor], images: Tensor, factor: float) -> Tensor:
    """Logits at w + factor · u."""
    moved = {name: value + factor * offset[name] if name in offset else value for name, value in net.named_parameters()}
    logits: Tensor = functional_call(net, moved, (images,))
    return logits
