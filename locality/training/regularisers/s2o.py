"""Second-order statistics optimisation (Jin et al. 2022), as its published code trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locality.errors import ArgumentError, Problem
from locality.training.losses.split import SplitLoss
from locality.training.regularisers.weighted import Weighted
from locality.training.settings import from_0_to_1
from locality.training.soft_labels import label_divergence, label_table
from locality.training.step import LossValue, TrainingBatch

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class S2o(Weighted):
    """Replaces the share `weight` of the part of the loss that is fitted to labels by one that is fitted to soft labels.

    The number that is added is S − F, where F is the fitted part and S the mean of KL(t ‖ p) over clean and attacked
    images, so that a weight α gives (1 − α) F + α S. A label's target t gives the label `label_share`. The rest goes to
    the other classes, more to those whose logits correlate less with its own over the batch. Targets have no gradient.

    The published code has α = 0.1 for AT, 0.3 for TRADES and MART, and 0.02 for CIFAR-100. Where the loss makes no pass over
    the clean images, this makes one. The correlations are those of the whole batch, over all processes.
    """

    label_share: float = 0.2

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        if value.fit is None:
            raise ArgumentError("loss", "one that names the part that is fitted to labels", type(batch.loss).__name__)
        clean = value.clean or batch.at(batch.weights).forward(batch.images)
        passes = [clean] if value.attacked is None else [clean, value.attacked]
        mean = batch.network.mean_over_processes
        soft = [soft_label_loss(seen.logits, batch.labels, self.label_share, mean) for seen in passes]
        return torch.stack(soft).mean() - value.fit

    def problems(self) -> list[Problem]:
        return from_0_to_1("weight", self.weight) + from_0_to_1("label_share", self.label_share)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        if isinstance(recipe.loss, SplitLoss):
            return []
        name = type(recipe.loss).__name__
        return [Problem("", f"needs a loss that names the part that is fitted to labels, which {name} does not")]


def soft_label_loss(
    logits: Tensor, labels: Tensor, label_share: float = 0.2, mean: Callable[[Tensor], Tensor] = torch.clone
) -> Tensor:
    """The mean of KL(t ‖ softmax(logits)) with the targets of these logits; `mean` is taken over the processes."""
    return label_divergence(soft_labels(logits, label_share, mean)[labels], logits)


@torch.no_grad()
def soft_labels(logits: Tensor, label_share: float = 0.2, mean: Callable[[Tensor], Tensor] = torch.clone) -> Tensor:
    """K×K: the target of each label. Off the diagonal, row k is proportional to max_l |A_kl| − |A_kl| with A = GᵀG.

    >>> soft_labels(torch.tensor([[2.0, 1.0, 0.0]]))[0]  # |A| = (4, 2, 0), so the others get 2 and 4 parts
    tensor([0.2000, 0.2667, 0.5333])
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    correlations = mean(logits.T @ logits).abs()  # their scale does not matter
    return label_table(correlations.amax(1, keepdim=True) - correlations, label_share)
