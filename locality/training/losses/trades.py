"""TRADES: accuracy on clean images against the stability of the prediction (Zhang et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.settings import at_least_0, below_1
from locality.training.step import LossValue, Terms, TrainingBatch
from locality.types import Threat


@dataclass(frozen=True)
class Trades:
    """Cross-entropy of the clean images + β · KL(clean ‖ attacked), where the attack maximises the divergence.

    Clean and attacked images go through the network in one pass, so BatchNorm sees both together. The published code makes
    two passes, which distributed training with BatchNorm does not allow. The gradient flows through both sides of the
    divergence, as in the published code.
    """

    attack: InnerAttack
    beta: float = 6.0
    label_smoothing: float = 0.0

    @property
    def threat(self) -> Threat:
        return self.attack.threat

    def __call__(self, batch: TrainingBatch) -> LossValue:
        images = batch.once("attacked images", lambda: self._attacked(batch))
        clean, attacked = batch.forward(torch.cat([batch.images, images])).chunk(2)
        fit = cross_entropy(clean.logits, batch.labels, label_smoothing=self.label_smoothing)
        divergence = kl_divergence(log_softmax(clean.logits, dim=1), attacked.logits).mean()
        terms: Terms = {"cross_entropy": fit, "kl_divergence": divergence, "epsilon": self.attack.radius(batch.moment)}
        return LossValue(fit + self.beta * divergence, terms, clean, attacked)

    def _attacked(self, batch: TrainingBatch) -> Tensor:
        with torch.no_grad():
            clean = log_softmax(batch.attacked_logits(batch.images, self.attack.mode), dim=1)
        return batch.attack(self.attack, lambda logits: kl_divergence(clean, logits), "near")

    def problems(self) -> list[Problem]:
        return at_least_0("beta", self.beta) + below_1("label_smoothing", self.label_smoothing)


def kl_divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """N: KL(reference ‖ softmax(logits)) of each row; `reference` holds log-probabilities."""
    return kl_div(log_softmax(logits, dim=1), reference, reduction="none", log_target=True).sum(1)
