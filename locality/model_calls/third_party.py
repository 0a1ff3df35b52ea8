"""The model as Foolbox and AutoAttack see it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from locality.errors import needing
from locality.model_calls import Calls


def load_foolbox() -> Any:
    """Import `foolbox` when it is first needed, without its warning about scipy.ndimage.filters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        with needing("this search"):
            import foolbox
    return foolbox


class FoolboxBridge(nn.Module):
    """The model for third-party attacks: evaluations are counted, there are no parameters, constant logits have gradients.

    An evaluation that builds a graph counts as a gradient, any other as a forward pass.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls
        self.vanished: Tensor | None = None  # N bool: images whose gradient was exactly zero at some step
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad and torch.is_grad_enabled():
            self.calls.gradients += len(images)
            logits: Tensor = _OwnGraph.apply(images, self)  # type: ignore[no-untyped-call]
            return logits
        self.calls.forwards += len(images)
        return self.calls.run(images.clone())

    def note(self, gradient: Tensor) -> None:
        """Record which rows of a gradient are zero."""
        zero = gradient.flatten(1).eq(0).all(dim=1)
        self.vanished = zero if self.vanished is None or len(self.vanished) != len(zero) else self.vanished | zero


class _OwnGraph(torch.autograd.Function):
    """Logits whose `backward` stops at the images: parameters get no gradient, constant logits give a zero gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, bridge: FoolboxBridge) -> Tensor:
        ctx.leaf, ctx.bridge = images.detach().requires_grad_(), bridge
        with torch.enable_grad():
            ctx.logits = bridge.calls.run(ctx.leaf.clone())  # some models begin with an in-place operation
        logits: Tensor = ctx.logits.detach()
        return logits

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, None]:
        gradient = torch.zeros_like(ctx.leaf)
        if ctx.logits.requires_grad:
            (gradient,) = torch.autograd.grad(ctx.logits, ctx.leaf, weights, allow_unused=True, materialize_grads=True)
        ctx.bridge.note(gradient)
        return gradient, None


def foolbox_model(bridge: FoolboxBridge, device: torch.device) -> Any:
    """The bridge in Foolbox's own wrapper, in pixel space."""
    return load_foolbox().PyTorchModel(bridge, bounds=(0, 1), device=device)
