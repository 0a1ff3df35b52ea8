"""Randomised adversarial training: the divergence of TRADES with noise on the weights (Jin et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.errors import Problem
from locality.training.inner_attack import InnerAttack
from locality.training.losses.split import AttackedLoss, attacked_pass, clean_pass, pair_of_passes
from locality.training.losses.trades import Trades, divergence_of, divergent_images
from locality.training.settings import at_least_0, below_1
from locality.training.step import LossValue, Passes, Terms, TrainingBatch
from locality.training.weight_noise import WeightNoise, passes_at, shifted


@dataclass(frozen=True, eq=False)
class NoisyPasses(Passes):
    """Passes over clean and attacked images at w, and at each of the shifted weights w + u and w − u."""

    shifted: tuple[Passes, ...] = ()


@dataclass(frozen=True)
class Rat(AttackedLoss):
    """CE(f_w(s), y) + β · E_u KL(f_{w+u}(s) ‖ f_{w+u}(s′)), where s′ maximises the divergence at w + u (Equation 5).

    The mean over u is estimated from one draw per step: by w + u and w − u, whose noise of odd order cancels, or with
    `antithetic = false` by w + u alone. Both are unbiased.
    """

    attack: InnerAttack
    beta: float = 6.0
    noise: WeightNoise = field(default_factory=WeightNoise)
    antithetic: bool = True
    label_smoothing: float = 0.0

    def passes(self, batch: TrainingBatch) -> Passes:
        return noisy_passes(batch, self.attack, self.noise, (1, -1) if self.antithetic else (1,))

    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        clean = clean_pass(passes)
        fit = cross_entropy(clean.logits, labels, label_smoothing=self.label_smoothing)
        divergence = torch.stack([divergence_of(seen) for seen in shifted_passes(passes)]).mean()
        terms: Terms = {"cross_entropy": fit, "kl_divergence": divergence}
        return LossValue(fit + self.beta * divergence, terms, clean, attacked_pass(passes), fit)

    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        """N: the trace at u = 0, where the loss is TRADES."""
        return Trades(self.attack, self.beta).trace(passes, labels, bias)

    def problems(self) -> list[Problem]:
        return at_least_0("beta", self.beta) + below_1("label_smoothing", self.label_smoothing)


def noisy_passes(batch: TrainingBatch, attack: InnerAttack, noise: WeightNoise, signs: Sequence[int]) -> NoisyPasses:
    """Attack at w + u, and evaluate both kinds of images at w and at w + sign · u.

    The pass at w sees the attacked images, too, though the loss of `rat` does not need them: they belong in BatchNorm's
    statistics, as in TRADES, and in what regularisers see.
    """
    offset = noise.draw(batch)
    fixed = {name: weight.detach() for name, weight in batch.weights.items()}
    attacked = divergent_images(batch.at(shifted(fixed, offset)), attack)
    on_the_side = passes_at(batch, torch.cat([batch.images, attacked]), offset, signs)
    centre = pair_of_passes(batch, attacked)
    return NoisyPasses(centre.clean, centre.attacked, tuple(Passes(*seen.chunk(2)) for seen in on_the_side))


def shifted_passes(passes: Passes) -> tuple[Passes, ...]:
    """The passes at shifted weights, which the loss has made."""
    assert isinstance(passes, NoisyPasses)
    return passes.shifted
