"""Randomised adversarial training by Taylor terms of the logits in the weights (Jin et al. 2023, Equation 8)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor
from torch.nn.functional import log_softmax

from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.losses.rat import noisy_passes, shifted_passes
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass
from locality.training.losses.trades import Trades, kl_divergence
from locality.training.settings import at_least_0
from locality.training.step import LossValue, Passes, TrainingBatch
from locality.training.weight_noise import WeightNoise

if TYPE_CHECKING:
    from locality.training.recipe import Recipe

Distance = Literal["squared", "kl"]


@dataclass(frozen=True)
class RatTerms(AttackedLoss):
    """TRADES + η · L(J u, J′ u) + η/2 · L(uᵀH u, uᵀH′ u), J and H the derivatives of the logits of s and s′ in the weights.

    One draw of u per step. The terms are parts of f(w + u) and f(w − u): the odd part is J u + O(σ³), the even part
    ½ uᵀH u + O(σ⁴) where the network is smooth. Unlike derivatives they include the kinks of ReLU, which carry the
    second-order effect of noise there, and their gradients are right through every normalisation layer.

    L is the squared distance, or the divergence of softmaxes ("kl"). The paper does not say how it makes distributions of
    terms. For small terms, KL is the squared distance of centred terms over 2K.
    """

    attack: InnerAttack
    beta: float = 6.0
    noise: WeightNoise = field(default_factory=WeightNoise)
    eta: float = 0.2
    order: Literal[1, 2] = 2
    distance: Distance = "squared"

    @property
    def trades(self) -> Trades:
        return Trades(self.attack, self.beta)

    def passes(self, batch: TrainingBatch) -> Passes:
        return noisy_passes(batch, self.attack, self.noise, (1, -1))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        zeroth = self.trades.value(passes, labels)
        plus, minus = shifted_passes(passes)
        clean, attacked = (
            odd_and_even(one(plus).logits, one(minus).logits, one(passes).logits) for one in (clean_pass, attacked_pass)
        )
        first = distance(clean[0], attacked[0], self.distance).mean()
        second = distance(2 * clean[1], 2 * attacked[1], self.distance).mean()
        total = zeroth.total + self.eta * first
        terms = zeroth.terms | {"first_term": first}
        if self.order == 2:
            total, terms = total + self.eta / 2 * second, terms | {"second_term": second}
        return replace(zeroth, total=total, terms=terms)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        """N: the trace of the zeroth term, TRADES."""
        return self.trades.trace(passes, labels, bias)

    def problems(self) -> list[Problem]:
        known = [] if self.order in (1, 2) else [Problem("order", f"must be 1 or 2, got {self.order}")]
        return known + at_least_0("beta", self.beta) + at_least_0("eta", self.eta)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        """In bfloat16 the even part, a difference of nearly equal logits, is wrong by 10 % at σ = 0.01, by 95 % at 0.003."""
        if self.order == 1 or recipe.precision == "no":
            return []
        return [
            Problem("order", f'must be 1 with precision = "{recipe.precision}", which rounds the second-order term away')
        ]


def odd_and_even(plus: Tensor, minus: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """(F(1) − F(−1)) / 2 and (F(1) + F(−1)) / 2 − F(0).

    >>> import torch
    >>> times = torch.tensor([1.0, -1.0, 0.0])
    >>> odd_and_even(*(5 + 2 * times + 3 * times.square()))
    (tensor(2.), tensor(3.))
    """
    return (plus - minus) / 2, (plus + minus) / 2 - centre


def distance(one: Tensor, other: Tensor, kind: Distance) -> Tensor:
    """N: ‖one − other‖² of each row, or KL(softmax(one) ‖ softmax(other)), which is rounded away in less than float64."""
    if kind == "squared":
        return (one - other).square().sum(1)
    return kl_divergence(log_softmax(one.double(), dim=1), other.double()).to(one.dtype)
