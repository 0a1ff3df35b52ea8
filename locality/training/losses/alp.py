"""Adversarial logit pairing (Kannan et al. 2018), and its form with probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from locality.curvature.closed_forms import Pair, trace_alp
from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass, pair_of_passes, worst_images
from locality.training.settings import at_least_0, below_1
from locality.training.step import LossValue, Passes, Terms, TrainingBatch


@dataclass(frozen=True)
class Alp(AttackedLoss):
    """Cross-entropy of attacked images + β · squared distance of the clean and the attacked prediction.

    The distance is that of the probabilities, as in TrH's experiments, or with `pair = "logits"` that of the logits, as
    published; it is a sum over the classes. `stop_clean` pulls the attacked prediction to the clean one, and not also the
    clean one to the attacked. The attack maximises the cross-entropy.

    ALP resists attacks of few steps much better than others (Engstrom et al. 2018), so its card also reports PGD with
    `evaluation_steps`.
    """

    attack: InnerAttack
    beta: float = 0.5
    pair: Pair = "softmax"
    stop_clean: bool = False
    label_smoothing: float = 0.0
    evaluation_steps: ClassVar[int] = 100

    def passes(self, batch: TrainingBatch) -> Passes:
        return pair_of_passes(batch, worst_images(batch, self.attack))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean, attacked = clean_pass(passes), attacked_pass(passes)
        fit = cross_entropy(attacked.logits, labels, label_smoothing=self.label_smoothing)
        reference = clean.logits.detach() if self.stop_clean else clean.logits
        if self.pair == "softmax":
            difference = softmax(reference, dim=1) - softmax(attacked.logits, dim=1)
        else:
            difference = reference - attacked.logits
        distance = difference.square().sum(1).mean()
        terms: Terms = {"cross_entropy": fit, "pairing": distance}
        return LossValue(fit + self.beta * distance, terms, clean, attacked, fit)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        return trace_alp(clean_pass(passes), attacked_pass(passes), self.beta, self.pair, self.stop_clean, bias)

    def problems(self) -> list[Problem]:
        return at_least_0("beta", self.beta) + below_1("label_smoothing", self.label_smoothing)
