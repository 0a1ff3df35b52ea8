"""TrH: the trace of the Hessian of the loss with respect to the weights of the last layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locality.curvature.closed_forms import squared_length
from locality.errors import ArgumentError, Problem
from locality.training.linear_head import linear_head_problems
from locality.training.losses.split import SplitLoss
from locality.training.regularisers.weighted import Weighted
from locality.training.step import LossValue, Terms, TrainingBatch

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class Trh(Weighted):
    """Mean trace over the images, in the closed form that the loss has beside it; `bias` also counts the head's bias.

    Its gradient reaches all layers through features and logits. The published weights suit features of length² ≈ 1,000; the
    trace is proportional to that. It can be lowered by features that shrink while the head grows, so the log shows both,
    and the published recipes add weight decay. It is the trace of the loss alone, without the other regularisers.
    """

    bias: bool = False

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        if not isinstance(batch.loss, SplitLoss):
            raise ArgumentError("loss", "one with a trace", type(batch.loss).__name__, "see SplitLoss")
        return batch.loss.trace(value.passes, batch.labels, self.bias).mean()

    @torch.no_grad()
    def terms(self, batch: TrainingBatch, value: LossValue) -> Terms:
        """Mean squared length of the features, and the norm of the head's weight."""
        lengths = [squared_length(seen.features) for seen in (value.clean, value.attacked) if seen is not None]
        head = batch.weights[batch.network.head_weight]
        return {"trh_squared_features": torch.cat(lengths).mean(), "trh_head_norm": head.norm()}

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        problems = linear_head_problems(recipe)
        if not isinstance(recipe.loss, SplitLoss):
            problems.append(Problem("", f"needs a loss with a trace, which {type(recipe.loss).__name__} does not have"))
        return problems
