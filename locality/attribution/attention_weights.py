"""The attention weights of a network, read while it runs, without hooks on its modules.

Fused attention (`scaled_dot_product_attention`, `nn.MultiheadAttention`) hides its weights. Inside this mode of PyTorch it
is computed in steps, with the same values up to rounding; nothing of the network changes. Attention that a network
computes itself is recognised by its softmax over N×heads×tokens×tokens scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from locality.attribution.self_attention import multi_head, scaled_dot_product


class AttentionWeights(TorchFunctionMode):
    """Inside this block `weights` collects N×heads×queries×keys weights of each attention, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """PyTorch calls this instead of each of its functions."""
        options = kwargs or {}
        if func is functional.scaled_dot_product_attention and args and args[0].dim() == 4:
            return scaled_dot_product(self._attend, *args, **options)
        if func is functional.multi_head_attention_forward:
            steps = multi_head(self._attend, *args, **options)
            return func(*args, **options) if steps is None else steps
        result = func(*args, **options)
        if func in SOFTMAX and result.dim() == 4 and result.shape[2] in (1, result.shape[3]):
            return self._noted(result)
        return result

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        scores = (query * scale) @ key.transpose(-2, -1)
        return self._noted((scores if mask is None else scores + mask).softmax(-1)) @ value

    def _noted(self, weights: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not weights.requires_grad:  # the same for every image
            weights.requires_grad_()
        self.weights.append(weights)
        return weights


SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax}
