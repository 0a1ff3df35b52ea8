"""Adversarial training: the cross-entropy of attacked images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.curvature.closed_forms import trace_cross_entropy
from locality.errors import Problem
from locality.training.inner_attack import InnerAttack, Mode
from locality.training.losses.split import AttackedLoss, SplitLoss, attacked_pass, worst_images
from locality.training.settings import below_1, problems_in
from locality.training.step import LossValue, Passes, TrainingBatch
from locality.types import Norm, Threat


@dataclass(frozen=True)
class Adversarial(AttackedLoss):
    """Cross-entropy of the worst images that the attack finds: AT (Madry et al. 2018)."""

    attack: InnerAttack
    label_smoothing: float = 0.0

    def passes(self, batch: TrainingBatch) -> Passes:
        return Passes(attacked=batch.forward(worst_images(batch, self.attack)))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        attacked = attacked_pass(passes)
        total = cross_entropy(attacked.logits, labels, label_smoothing=self.label_smoothing)
        return LossValue(total, {"cross_entropy": total}, attacked=attacked, fit=total)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return trace_cross_entropy(attacked_pass(passes), bias)

    def problems(self) -> list[Problem]:
        return below_1("label_smoothing", self.label_smoothing)


@dataclass(frozen=True)
class OneStepAttack:
    """The attack of fast AT: one step of 1.25 ε from a random start. The settings are those of `InnerAttack`."""

    epsilon: float
    norm: Norm = "linf"
    warm_up: float = 0.0
    mode: Mode = "eval"

    @property
    def attack(self) -> InnerAttack:
        return InnerAttack(self.epsilon, self.norm, 1, 1.25, self.warm_up, self.mode)

    def problems(self) -> list[Problem]:
        return problems_in(self.attack)


@dataclass(frozen=True)
class FastAdversarial(SplitLoss):
    """AT with an attack of one step: fast AT (Wong et al. 2020)."""

    attack: OneStepAttack
    label_smoothing: float = 0.0

    @property
    def adversarial(self) -> Adversarial:
        return Adversarial(self.attack.attack, self.label_smoothing)

    @property
    def threat(self) -> Threat:
        return self.adversarial.threat

    def passes(self, batch: TrainingBatch) -> Passes:
        return self.adversarial.passes(batch)

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        return self.adversarial.value(passes, labels)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return self.adversarial.trace(passes, labels, bias)

    def __call__(self, batch: TrainingBatch) -> LossValue:
        return self.adversarial(batch)

    def problems(self) -> list[Problem]:
        return self.adversarial.problems()
