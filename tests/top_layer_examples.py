"""For tests of closed-form traces: examples with a head, the losses as functions of logits, and their full Hessians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import hessian
from torch.nn.functional import cross_entropy, log_softmax, softmax

from locality.curvature.closed_forms import trace_alp, trace_cross_entropy, trace_mart, trace_trades
from locality.zoo.nets.forward_pass import ForwardPass

BETA = 0.7


@dataclass(frozen=True, eq=False)
class Example:
    """Features of clean and attacked images, labels, and a head."""

    clean: Tensor
    attacked: Tensor
    labels: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def drawn(cls, seed: int, images: int = 3, width: int = 4, classes: int = 4, scale: float = 1.0) -> Example:
        draw = torch.Generator().manual_seed(seed)
        sizes = [(images, width), (images, width), (classes, width), (classes,)]
        clean, attacked, weight, bias = (torch.randn(size, generator=draw, dtype=torch.float64) for size in sizes)
        labels = torch.randint(classes, (images,), generator=draw)
        return cls(clean, attacked, labels, scale * weight, bias)

    def seen(self) -> tuple[ForwardPass, ForwardPass]:
        clean, attacked = (ForwardPass(z, z @ self.weight.T + self.bias) for z in (self.clean, self.attacked))
        return clean, attacked

    def traces(self, loss: LossOfLogits, bias: bool) -> Tensor:
        """N: traces of the full Hessians; the losses may hold constants made of the logits as they are."""
        clean, attacked = self.seen()

        def values(flat: Tensor) -> Tensor:
            weight = flat[: self.weight.numel()].view_as(self.weight)
            offset = flat[self.weight.numel() :] if bias else self.bias
            return loss(self.clean @ weight.T + offset, self.attacked @ weight.T + offset, clean.logits, attacked.logits)

        flat = torch.cat([self.weight.flatten(), self.bias]) if bias else self.weight.flatten()
        full: Tensor = hessian(values)(flat)
        return torch.stack([one.trace() for one in full])


# Of the logits g and g′, which depend on the weights, and the same logits as constants: N numbers.
LossOfLogits = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def kl(clean: Tensor, attacked: Tensor) -> Tensor:
    return (softmax(clean, 1) * (log_softmax(clean, 1) - log_softmax(attacked, 1))).sum(1)


def distance(clean: Tensor, attacked: Tensor) -> Tensor:
    return (softmax(clean, 1) - softmax(attacked, 1)).square().sum(1)


def doubt(logits: Tensor, labels: Tensor) -> Tensor:
    return 1 - softmax(logits, 1).gather(1, labels[:, None])[:, 0]


def boosted(logits: Tensor, labels: Tensor, fixed: Tensor) -> Tensor:
    """−log p_y − log(1 − p_κ), written as the paper has it; κ is the rival at the logits as they are."""
    p = softmax(logits, 1)
    rival = softmax(fixed, 1).scatter(1, labels[:, None], 0.0).argmax(1)
    rows = torch.arange(len(labels))
    return -p[rows, labels].log() - (1 - p[rows, rival]).log()


Case = tuple[Callable[[Example], LossOfLogits], Callable[[Example, bool], Tensor]]
CASES: dict[str, Case] = {
    "cross_entropy": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none"),
        lambda e, bias: trace_cross_entropy(e.seen()[1], bias),
    ),
    "smoothed": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none", label_smoothing=0.3),
        lambda e, bias: trace_cross_entropy(e.seen()[1], bias),
    ),
    "soft labels": (
        lambda e: lambda g, h, g0, h0: kl(g0, h),
        lambda e, bias: trace_cross_entropy(e.seen()[1], bias),
    ),
    "trades": (
        lambda e: lambda g, h, g0, h0: cross_entropy(g, e.labels, reduction="none") + BETA * kl(g, h),
        lambda e, bias: trace_trades(*e.seen(), BETA, bias=bias),
    ),
    "trades stopped": (
        lambda e: lambda g, h, g0, h0: cross_entropy(g, e.labels, reduction="none") + BETA * kl(g0, h),
        lambda e, bias: trace_trades(*e.seen(), BETA, stop_clean=True, bias=bias),
    ),
    "alp": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none") + BETA * distance(g, h),
        lambda e, bias: trace_alp(*e.seen(), BETA, bias=bias),
    ),
    "alp stopped": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none") + BETA * distance(g0, h),
        lambda e, bias: trace_alp(*e.seen(), BETA, stop_clean=True, bias=bias),
    ),
    "alp logits": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none") + BETA * (g - h).square().sum(1),
        lambda e, bias: trace_alp(*e.seen(), BETA, "logits", bias=bias),
    ),
    "alp logits stopped": (
        lambda e: lambda g, h, g0, h0: cross_entropy(h, e.labels, reduction="none") + BETA * (g0 - h).square().sum(1),
        lambda e, bias: trace_alp(*e.seen(), BETA, "logits", stop_clean=True, bias=bias),
    ),
    "mart": (
        lambda e: lambda g, h, g0, h0: boosted(h, e.labels, h0) + BETA * doubt(g, e.labels) * kl(g, h),
        lambda e, bias: trace_mart(*e.seen(), e.labels, BETA, bias=bias),
    ),
    "mart stopped": (
        lambda e: lambda g, h, g0, h0: boosted(h, e.labels, h0) + BETA * doubt(g0, e.labels) * kl(g0, h),
        lambda e, bias: trace_mart(*e.seen(), e.labels, BETA, stop_clean=True, bias=bias),
    ),
}
