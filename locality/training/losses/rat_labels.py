"""Randomised adversarial training as its authors' code computes it: soft labels, no Taylor terms (Jin et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softmax

from locality.curvature.closed_forms import trace_cross_entropy
from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.linear_head import linear_head_problems
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass, pair_of_passes, worst_images
from locality.training.losses.trades import Trades, divergence_of, divergent_images
from locality.training.settings import at_least_0, from_0_to_1
from locality.training.soft_labels import label_divergence, label_table
from locality.training.step import LossValue, Passes, Terms, TrainingBatch
from locality.zoo.nets.forward_pass import ForwardPass

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class LabelPasses(Passes):
    """Passes over clean and attacked images, and the row sums of both over all processes."""

    sums: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class RatLabels(AttackedLoss):
    """(1 − η) CE(s, y) + β KL(p ‖ p′) + η F + η/2 S, where F and S pull p and p′ towards soft labels of mass 2/K on y.

    a and b are the row sums of the gradient of the head's weights on clean and attacked images, and t(v) is the table of
    soft labels in proportion to v − min v: F = ½ [KL(t(|a| − |b|)_y ‖ p′) + KL(t(|b| − |a|)_y ‖ p)], and S is F with a² and
    b² for |a| and |b|. The labels are constants. The two tables of a term are complements, so its effect is close to that of
    uniform label smoothing; `trades` with `label_smoothing` is the comparison to make.

    `slip` reproduces a mistake of the published code, which gives both halves of S the same table. With `base = "at"`, CE is
    that of attacked images, the attack maximises it, and there is no divergence: AT with the same labels (Table 8).
    """

    attack: InnerAttack
    beta: float = 6.0
    eta: float = 0.2
    order: Literal[1, 2] = 2
    slip: bool = False
    base: Literal["trades", "at"] = "trades"

    def passes(self, batch: TrainingBatch) -> Passes:
        worst = divergent_images if self.base == "trades" else worst_images
        seen = pair_of_passes(batch, worst(batch, self.attack))
        mean = batch.network.mean_over_processes
        clean, attacked = (mean(row_sums(one(seen), batch.labels)) for one in (clean_pass, attacked_pass))
        return LabelPasses(seen.clean, seen.attacked, (clean, attacked))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean, attacked = clean_pass(passes), attacked_pass(passes)
        fit = cross_entropy((clean if self.base == "trades" else attacked).logits, labels)
        softened = (1 - self.eta) * fit
        terms: Terms = {"cross_entropy": fit}
        for (name, weight), (for_attacked, for_clean) in zip(self._weights(), self._tables(passes, labels), strict=True):
            pull = (
                label_divergence(for_attacked[labels], attacked.logits) + label_divergence(for_clean[labels], clean.logits)
            ) / 2
            softened, terms = softened + weight * pull, terms | {name: pull}
        if self.base == "at":
            return LossValue(softened, terms, clean, attacked, softened)
        divergence = divergence_of(passes)
        terms |= {"kl_divergence": divergence}
        return LossValue(softened + self.beta * divergence, terms, clean, attacked, softened)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        clean, attacked = (trace_cross_entropy(one(passes), bias) for one in (clean_pass, attacked_pass))
        soft = sum(weight for _, weight in self._weights()) / 2 * (clean + attacked)
        if self.base == "at":
            return (1 - self.eta) * attacked + soft
        return Trades(self.attack, self.beta).trace(passes, labels, bias) - self.eta * clean + soft

    def problems(self) -> list[Problem]:
        known = [] if self.order in (1, 2) else [Problem("order", f"must be 1 or 2, got {self.order}")]
        return known + at_least_0("beta", self.beta) + from_0_to_1("eta", self.eta)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return linear_head_problems(recipe)

    def _weights(self) -> list[tuple[str, float]]:
        """Names and weights of the terms in use."""
        return [("first_term", self.eta), ("second_term", self.eta / 2)][: self.order]

    def _tables(self, passes: Passes, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each term, the tables of soft labels of attacked and of clean images."""
        clean, attacked = _sums(passes, labels)
        tables = [
            (soft_labels(gap), soft_labels(-gap))
            for gap in (clean.abs() - attacked.abs(), clean.square() - attacked.square())
        ]
        if self.slip:
            tables[1] = tables[1][1], tables[1][1]
        return tables[: self.order]


def row_sums(seen: ForwardPass, labels: Tensor) -> Tensor:
    """K: Σ_i ∂CE/∂W_ki of the mean cross-entropy, W the head's weights: mean over images of (p_k − 1[y = k]) · Σ_i z_i."""
    features, logits = seen.features.detach(), seen.logits.detach()
    errors = softmax(logits, dim=1) - one_hot(labels, logits.shape[1])
    return (errors * features.sum(1, keepdim=True)).mean(0)


def soft_labels(gap: Tensor) -> Tensor:
    """K×K: for each label, mass 2/K on it and the rest in proportion to gap − min gap, evenly where all are equal.

    >>> import torch
    >>> soft_labels(torch.tensor([-1.0, 0.0, 1.0, 3.0]))
    tensor([[0.5000, 0.0714, 0.1429, 0.2857],
            [0.0000, 0.5000, 0.1667, 0.3333],
            [0.0000, 0.1000, 0.5000, 0.4000],
            [0.0000, 0.1667, 0.3333, 0.5000]])
    """
    return label_table(gap - gap.min(), true_mass=2 / len(gap))


def equal_label_smoothing(eta: float, classes: int, order: int = 2) -> float:
    """The `label_smoothing` that clean images have under `rat_labels` if all gaps are equal.

    With soft = ¾ η (½ η for the first term alone): soft (1 − 2/K) / [(1 − 1/K) (1 − η + soft)].

    >>> round(equal_label_smoothing(0.2, 10), 4)
    0.1404
    """
    soft = eta * (0.5 if order == 1 else 0.75)
    return soft * (1 - 2 / classes) / ((1 - 1 / classes) * (1 - eta + soft))


def _sums(passes: Passes, labels: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(passes, LabelPasses) and passes.sums is not None:
        return passes.sums
    return row_sums(clean_pass(passes), labels), row_sums(attacked_pass(passes), labels)
