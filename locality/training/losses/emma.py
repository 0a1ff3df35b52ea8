"""Losses of logits that are moved as far as the radius allows: a fixed margin, EMMA (Hu et al. 2023) and logit annealing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from locality.errors import Problem
from locality.training.losses.certified_loss import CertifiedLoss
from locality.training.settings import at_least_0, positive
from locality.training.step import LossValue
from locality.zoo.nets.forward_pass import ForwardPass

# Least share of the radius that a class is moved by, as in published code. The thesis has 0: classes that are wrongly ahead
# would not feel K.
EMMA_LEAST = 0.01
LEAST_NORM = 1e-8  # of K_yi as a divisor: it is 0 for i = y


@dataclass(frozen=True)
class GloroFixed(CertifiedLoss):
    """Cross-entropy of the worst logits at the radius: f_i + ε·K_yi, where y is the label."""

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        moved = cross_entropy(clean.logits + radius * norms[labels], labels)
        return _value(moved, clean, labels)


@dataclass(frozen=True)
class GloroEmma(CertifiedLoss):
    """Cross-entropy of f_i + ε̃_i·K_yi: each class is moved until it is level with the label, but by no more than ε.

    ε̃_i = (f_y − f_i)/K_yi, clipped to [0.01, 1]·ε, is a constant of the gradient; else a level class would have none.
    """

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        moved = cross_entropy(emma_logits(clean.logits, labels, norms, radius), labels)
        return _value(moved, clean, labels)


@dataclass(frozen=True)
class GloroLa(CertifiedLoss):
    """Logit annealing (Lai et al. 2025) of EMMA's logits z: τ · (1 − e^−c)^γ · c with c = CE((z − ξ·onehot(y))/τ, y).

    The offset ξ asks for a margin, and γ takes weight off images that have it.
    """

    offset: float = 2.0
    temperature: float = 0.75
    gamma: float = 5.0

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        logits = emma_logits(clean.logits, labels, norms, radius)
        target = self.offset * one_hot(labels, logits.shape[1])
        losses = cross_entropy((logits - target) / self.temperature, labels, reduction="none")
        annealed = self.temperature * ((-(-losses).expm1()) ** self.gamma * losses).mean()
        return _value(annealed, clean, labels)

    def problems(self) -> list[Problem]:
        return [
            *super().problems(),
            *at_least_0("offset", self.offset),
            *positive("temperature", self.temperature),
            *at_least_0("gamma", self.gamma),
        ]


def emma_logits(logits: Tensor, labels: Tensor, norms: Tensor, radius: float) -> Tensor:
    """N×K: f_i + ε̃_i·K_yi; see `GloroEmma`.

    >>> import torch
    >>> norms = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
    >>> emma_logits(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]), norms, radius=0.5).tolist()
    [[3.0, 1.5, 3.0]]
    """
    towards = norms[labels]
    margins = logits.gather(1, labels[:, None]) - logits
    distances = (margins / towards.clamp_min(LEAST_NORM)).clamp(EMMA_LEAST * radius, radius).detach()
    return logits + distances * towards


def _value(moved: Tensor, clean: ForwardPass, labels: Tensor) -> LossValue:
    """The loss of moved logits, with the cross-entropy of the logits as they are beside it in the log."""
    return LossValue(moved, {"cross_entropy": cross_entropy(clean.logits.detach(), labels)}, clean=clean, fit=moved)
