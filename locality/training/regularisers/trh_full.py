"""The trace of the Hessian over all layers, estimated without bias by one more backward pass per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from locality.curvature.layers import unsuitable_module
from locality.curvature.output_gradients import logit_probe
from locality.errors import ArgumentError, Problem
from locality.training.regularisers.weighted import Weighted
from locality.training.step import LossValue, TrainingBatch

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class TrhFull(Weighted):
    """‖∇_W Σᵢ uᵢ · gᵢ‖² / N with random uᵢ, E[u uᵀ] = diag(p) − p pᵀ: the trace over all weights of two or more dimensions.

    It is the trace for the cross-entropy of the pass that the loss makes: of the attacked images, or of the clean ones where
    there are no others. Where a loss has `pass_weights` (clean, attacked), it is the weighted sum of both; for TRADES that
    is (1, β), the Hessian with the clean side of the divergence stopped. Pairing and margin terms of other losses do not
    count, nor do biases and normalisation layers.

    The gradient flows through the probabilities and through the backward pass into all layers. The estimate is unbiased and
    never negative, and equals the trace of the Hessian for networks that are piecewise linear in each layer. With BatchNorm
    in training mode it is the Gauss–Newton trace of the batch's loss: the statistics depend on the weights, too, and their
    part of the second derivative is left out. Over several processes, pairs of images in different processes do not meet in
    a probe, so the estimates of one and two processes agree in the mean only.
    """

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        clean, attacked = getattr(batch.loss, "pass_weights", (0.0, 1.0) if value.attacked else (1.0, 0.0))
        weighted = [
            (share, seen.logits) for share, seen in ((clean, value.clean), (attacked, value.attacked)) if seen and share
        ]
        if not weighted:
            raise ArgumentError("loss", "one that makes a pass over clean or attacked images", type(batch.loss).__name__)
        generator = batch.generator("trh_full")
        signs = [torch.randint(0, 2, logits.shape, generator=generator) * 2 - 1 for _, logits in weighted]
        weights = [weight for weight in batch.weights.values() if weight.dim() >= 2]
        differentiable = self.weight * self.schedule(batch.moment) != 0  # otherwise the step must not change
        return squared_gradient(weighted, signs, weights, differentiable)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        if recipe.net.problems():
            return []
        reason = unsuitable_module(recipe.net.without_weights())
        text = f"needs a network that is piecewise linear in each layer, but {recipe.net.name} has {reason}"
        return [Problem("", text)] if reason else []


def squared_gradient(
    passes: Sequence[tuple[float, Tensor]], signs: Sequence[Tensor], weights: Sequence[Tensor], differentiable: bool = True
) -> Tensor:
    """‖Σ √share · Jᵀu‖² / N over (share, logits) of each pass; with independent signs the passes do not mix in the mean."""
    vectors = []
    for (share, logits), sign in zip(passes, signs, strict=True):
        wide = torch.promote_types(logits.dtype, torch.float32)
        vector = logit_probe(log_softmax(logits.to(wide), 1), sign.to(logits.device, wide))
        vectors.append((share**0.5 * vector).to(logits.dtype))
    gradients = torch.autograd.grad(
        [logits for _, logits in passes],
        weights,
        vectors,
        create_graph=differentiable,
        retain_graph=True,
        allow_unused=True,
    )
    squares = [gradient.square().sum() for gradient in gradients if gradient is not None]
    return torch.stack(squares).sum() / len(passes[0][1])
