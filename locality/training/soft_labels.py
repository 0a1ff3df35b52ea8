"""Soft labels of a fixed mass on the true class: a K×K table with one distribution per label."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax


def label_table(preferences: Tensor, true_mass: float) -> Tensor:
    """K×K: row k has `true_mass` on class k and spreads the rest over the other classes in proportion to `preferences`.

    `preferences` (K numbers, or K×K with a row per label) are at least 0. A row whose other classes all have 0 spreads the
    rest evenly.

    >>> label_table(torch.tensor([5.0, 3.0, 1.0]), true_mass=0.6)
    tensor([[0.6000, 0.3000, 0.1000],
            [0.3333, 0.6000, 0.0667],
            [0.2500, 0.1500, 0.6000]])
    """
    classes = preferences.shape[-1]
    others = 1 - torch.eye(classes, dtype=preferences.dtype, device=preferences.device)
    table = preferences.expand(classes, classes) * others
    largest = table.amax(1, keepdim=True)
    table = torch.where(largest > 0, table / largest, others)  # before the sum, which could overflow
    rest = (1 - true_mass) * table / table.sum(1, keepdim=True).clamp_min(1)
    return rest + true_mass * (1 - others)


def label_divergence(targets: Tensor, logits: Tensor) -> Tensor:
    """Mean over the rows of KL(targets ‖ softmax(logits)); `targets` holds probabilities."""
    return kl_div(log_softmax(logits, dim=1), targets, reduction="batchmean")
