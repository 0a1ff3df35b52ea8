"""The direction in which the loss rises, which AWP and SAM move the weights along."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from locality.training.network import Weights
from locality.training.step import Loss, TrainingBatch


def uphill(batch: TrainingBatch, loss: Loss, weights: Weights, names: Iterable[str]) -> dict[str, Tensor]:
    """The gradient of the loss at `weights`, averaged over the processes, for the named ones.

    The pass is on the side: BatchNorm's statistics stay, and the step's own pass sees the same attacked images.
    """
    chosen = list(names)
    total = loss(batch.at(weights)).total
    gradients = torch.autograd.grad(total, [weights[name] for name in chosen])
    return {name: batch.network.mean_over_processes(gradient) for name, gradient in zip(chosen, gradients, strict=True)}
