"""MART: misclassification-aware adversarial training (Wang et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid

from locality.curvature.closed_forms import trace_mart, without_rival
from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass, pair_of_passes, worst_images
from locality.training.losses.trades import kl_divergence
from locality.training.settings import at_least_0
from locality.training.step import LossValue, Passes, Terms, TrainingBatch


@dataclass(frozen=True)
class Mart(AttackedLoss):
    """−log p′_y − log(1 − max_{k≠y} p′_k) + β (1 − p_y) KL(p ‖ p′); p′ is the prediction of the attacked image.

    The divergence counts for images whose clean prediction is uncertain. `stop_clean` keeps the gradient from p. The attack
    maximises the cross-entropy from a start near the image.
    """

    attack: InnerAttack
    beta: float = 5.0
    stop_clean: bool = False

    def passes(self, batch: TrainingBatch) -> Passes:
        return pair_of_passes(batch, worst_images(batch, self.attack, "near"))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean, attacked = clean_pass(passes), attacked_pass(passes)
        fitted, margin = cross_entropy(attacked.logits, labels), rival_loss(attacked.logits, labels).mean()
        logs = log_softmax(clean.logits.detach() if self.stop_clean else clean.logits, dim=1)
        doubt = -torch.expm1(logs.gather(1, labels[:, None])[:, 0])  # 1 − p_y
        divergence = (doubt * kl_divergence(logs, attacked.logits)).mean()
        terms: Terms = {"cross_entropy": fitted, "rival": margin, "weighted_kl_divergence": divergence}
        fit = fitted + margin
        return LossValue(fit + self.beta * divergence, terms, clean, attacked, fit)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return trace_mart(clean_pass(passes), attacked_pass(passes), labels, self.beta, self.stop_clean, bias)

    def problems(self) -> list[Problem]:
        return at_least_0("beta", self.beta)


def rival_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """N: −log(1 − p_κ) of the largest class κ besides the label, as log(1 + exp(g_κ − log Σ_{k≠κ} exp g_k)).

    It has a gradient also where p_κ rounds to 1.

    >>> rival_loss(torch.tensor([[0.0, 0.0], [-200.0, 0.0]]), torch.tensor([0, 0]))  # log 2, 200
    tensor([  0.6931, 200.0000])
    """
    others = without_rival(logits, labels)
    rival = torch.where(others.isinf(), logits, 0.0).sum(1)
    return -logsigmoid(others.logsumexp(1) - rival)
