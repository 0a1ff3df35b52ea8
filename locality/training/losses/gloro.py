"""GloRo Nets (Leino et al. 2021): one more class ⊥, which wins where the prediction may change within the radius."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.errors import Problem
from locality.training.losses.certified_loss import CertifiedLoss, bottom_logit
from locality.training.settings import at_least_0
from locality.training.step import LossValue
from locality.zoo.nets.forward_pass import ForwardPass


@dataclass(frozen=True)
class GloroCe(CertifiedLoss):
    """Cross-entropy over the classes and ⊥, whose logit is f_⊥."""

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        total = cross_entropy(with_bottom(clean.logits, norms, radius), labels)
        return LossValue(total, {"cross_entropy": total}, clean=clean, fit=total)


@dataclass(frozen=True)
class GloroTrades(CertifiedLoss):
    """Cross-entropy + β · KL(softmax f ‖ softmax of f with ⊥) = cross-entropy − β · log(1 − p_⊥).

    The thesis writes the divergence the other way round, where it is infinite; published code computes this one.
    """

    beta: float = 1.0

    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        fit = cross_entropy(clean.logits, labels)
        all_classes = with_bottom(clean.logits, norms, radius)
        divergence = (all_classes.logsumexp(1) - clean.logits.logsumexp(1)).mean()
        return LossValue(
            fit + self.beta * divergence, {"cross_entropy": fit, "kl_divergence": divergence}, clean=clean, fit=fit
        )

    def problems(self) -> list[Problem]:
        return super().problems() + at_least_0("beta", self.beta)


def with_bottom(logits: Tensor, norms: Tensor, radius: float) -> Tensor:
    """N×(K+1): the logits of the classes, and f_⊥."""
    return torch.cat([logits, bottom_logit(logits, norms, radius)[:, None]], dim=1)
