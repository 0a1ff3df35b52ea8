"""Adversarial training: the cross-entropy of attacked images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.errors import Problem
from locality.training.inner_attack import InnerAttack, Mode
from locality.training.settings import below_1, problems_in
from locality.training.step import LossValue, Terms, TrainingBatch
from locality.types import Norm, Threat


@dataclass(frozen=True)
class Adversarial:
    """Cross-entropy of the worst images that the attack finds: AT (Madry et al. 2018)."""

    attack: InnerAttack
    label_smoothing: float = 0.0

    @property
    def threat(self) -> Threat:
        return self.attack.threat

    def __call__(self, batch: TrainingBatch) -> LossValue:
        def objective(logits: Tensor) -> Tensor:
            return cross_entropy(logits, batch.labels, reduction="none")

        images = batch.once("attacked images", lambda: batch.attack(self.attack, objective))
        attacked = batch.forward(images)
        total = cross_entropy(attacked.logits, batch.labels, label_smoothing=self.label_smoothing)
        terms: Terms = {"cross_entropy": total, "epsilon": self.attack.radius(batch.moment)}
        return LossValue(total, terms, attacked=attacked)

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
class FastAdversarial:
    """AT with an attack of one step: fast AT (Wong et al. 2020)."""

    attack: OneStepAttack
    label_smoothing: float = 0.0

    @property
    def threat(self) -> Threat:
        return self.attack.attack.threat

    def __call__(self, batch: TrainingBatch) -> LossValue:
        return Adversarial(self.attack.attack, self.label_smoothing)(batch)

    def problems(self) -> list[Problem]:
        return below_1("label_smoothing", self.label_smoothing)
