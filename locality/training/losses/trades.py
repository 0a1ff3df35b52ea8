"""TRADES: accuracy on clean images against the stability of the prediction (Zhang et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from locality.curvature.closed_forms import trace_trades
from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass, pair_of_passes
from locality.training.settings import at_least_0, below_1
from locality.training.step import LossValue, Passes, Terms, TrainingBatch


@dataclass(frozen=True)
class Trades(AttackedLoss):
    """Cross-entropy of the clean images + β · KL(clean ‖ attacked), where the attack maximises the divergence.

    The gradient flows through both sides of the divergence, as in the published code, or with `stop_clean` through the
    attacked side alone, as in TrH's experiments.
    """

    attack: InnerAttack
    beta: float = 6.0
    label_smoothing: float = 0.0
    stop_clean: bool = False

    @property
    def pass_weights(self) -> tuple[float, float]:
        """What clean and attacked images add to the trace over all layers, the divergence's clean side being stopped."""
        return 1.0, self.beta

    def passes(self, batch: TrainingBatch) -> Passes:
        return pair_of_passes(batch, divergent_images(batch, self.attack))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean, attacked = clean_pass(passes), attacked_pass(passes)
        fit = cross_entropy(clean.logits, labels, label_smoothing=self.label_smoothing)
        divergence = divergence_of(passes, self.stop_clean)
        terms: Terms = {"cross_entropy": fit, "kl_divergence": divergence}
        return LossValue(fit + self.beta * divergence, terms, clean, attacked, fit)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return trace_trades(clean_pass(passes), attacked_pass(passes), self.beta, self.stop_clean, bias)

    def problems(self) -> list[Problem]:
        return at_least_0("beta", self.beta) + below_1("label_smoothing", self.label_smoothing)


def kl_divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """N: KL(reference ‖ softmax(logits)) of each row; `reference` holds log-probabilities."""
    return kl_div(log_softmax(logits, dim=1), reference, reduction="none", log_target=True).sum(1)


def divergence_of(passes: Passes, stop_clean: bool = False) -> Tensor:
    """Mean KL(clean ‖ attacked); `stop_clean` lets the gradient flow through the attacked side alone."""
    clean = clean_pass(passes).logits
    return kl_divergence(log_softmax(clean.detach() if stop_clean else clean, dim=1), attacked_pass(passes).logits).mean()


def divergent_images(batch: TrainingBatch, attack: InnerAttack) -> Tensor:
    """The batch's images, attacked once per step to maximise the divergence from the clean ones."""

    def attacked() -> Tensor:
        with torch.no_grad():
            clean = log_softmax(batch.attacked_logits(batch.images, attack.mode), dim=1)
        return batch.attack(attack, lambda logits: kl_divergence(clean, logits), "near")

    return batch.once("attacked images", attacked)
