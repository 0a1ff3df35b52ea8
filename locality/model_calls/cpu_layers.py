"""Cheaper gradients of two layers on CPUs, used while gradients of pixels are computed.

- Batch normalisation in eval mode is a scale and a shift of each channel. PyTorch's backward pass computes the sums for the
  gradients of the weights too, which are not needed here.
- Hardtanh and ReLU6 in place copy their input first, to know later where it was inside the limits. The output is enough.

Without them attributions of EfficientNet take 5 to 10 % more time and a fifth more memory (bench/speed/attribution.py). The
values are PyTorch's, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def has_cheaper_layers(parts: list[nn.Module]) -> bool:
    """Whether a model contains one of the layers that `CheaperLayers` replaces."""
    return any(isinstance(part, nn.BatchNorm2d | nn.Hardtanh) for part in parts)


_plain: ContextVar[bool] = ContextVar("_plain", default=False)


@contextmanager
def plain_layers() -> Iterator[None]:
    """Switch `CheaperLayers` off inside the block, for other modes of PyTorch that must see the functions themselves."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


class CheaperLayers(TorchFunctionMode):
    """Inside this block the layers are cheaper; parameters get no gradient from batch normalisation."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """PyTorch calls this instead of each of its functions."""
        replaced = None if _plain.get() else REPLACED.get(func)
        return (func if replaced is None else replaced)(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    known = running_mean is not None and running_var is not None and running_mean.dtype == input.dtype
    if training or not known or input.dim() != 4 or input.device.type != "cpu":
        return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    assert running_mean is not None
    assert running_var is not None
    scale = (running_var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight.detach()
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias.detach()
    scaled: Tensor = _ScaleAndShift.apply(input, scale[:, None, None], shift[:, None, None])  # type: ignore[no-untyped-call]
    return scaled


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    replaced = torch.is_grad_enabled() and input.requires_grad and input.device.type == "cpu"
    if not inplace or input._is_view() or not replaced:
        return functional.hardtanh(input, min_val, max_val, inplace)
    clamped: Tensor = _ClampInPlace.apply(input, min_val, max_val)  # type: ignore[no-untyped-call]
    return clamped


def _relu6(input: Tensor, inplace: bool = False) -> Tensor:
    return _hardtanh(input, 0.0, 6.0, inplace)


class _ScaleAndShift(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return torch.addcmul(shift, input, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (scale,) = ctx.saved_tensors
        return gradients[0] * scale, None, None


class _ClampInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, low: float, high: float) -> Tensor:
        ctx.mark_dirty(input.clamp_(low, high))
        ctx.save_for_backward(input)
        ctx.limits = low, high
        return input

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # PyTorch's gradient is 0 at the limits and beyond; a clamped value lies on a limit, so its gradient is 0 too.
        return torch.ops.aten.hardtanh_backward(gradients[0], *ctx.saved_tensors, *ctx.limits), None, None


REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.batch_norm: _batch_norm,
    functional.hardtanh: _hardtanh,
    functional.relu6: _relu6,
}
