"""Losses and regularisers: each is a function of one batch; the tables name them for recipes.

A loss gets a `TrainingBatch` and gives back the number to minimise with the logits it saw. A regulariser gets the batch and
those logits, and gives back a number that is added with a weight. There is nothing to subclass: a new one is a new function
and a new line in its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from locality.training.recipe import LossPart

Objective = Callable[[Tensor], Tensor]  # N×K logits ↦ N numbers to be raised


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """What a loss may use.

    `model` is the network in training mode; over several processes it averages the gradients of the weights. `bare` is the
    same network as an attack sees it: unwrapped, without gradients, in the recipe's `attack_mode`. `attack` gives images
    near these at which an objective is higher; it begins at a random offset, or "near" the images as TRADES does.
    """

    model: Callable[[Tensor], Tensor]
    bare: Callable[[Tensor], Tensor]
    attack: Callable[[Objective, Literal["random", "near"]], Tensor]
    images: Tensor
    labels: Tensor
    settings: LossPart


@dataclass(frozen=True, eq=False)
class Outcome:
    """The loss of a batch, and the logits that were fitted to its labels."""

    loss: Tensor
    logits: Tensor


Loss = Callable[[TrainingBatch], Outcome]
Regulariser = Callable[[TrainingBatch, Tensor], Tensor]


def standard(batch: TrainingBatch) -> Outcome:
    """Cross-entropy of the images as they are."""
    return _fitted(batch, batch.images)


def adversarial(batch: TrainingBatch) -> Outcome:
    """Cross-entropy of the worst images found nearby: AT (Madry et al. 2018); with one step, fast AT (Wong et al. 2020)."""
    return _fitted(batch, batch.attack(lambda logits: cross_entropy(logits, batch.labels, reduction="none"), "random"))


def trades(batch: TrainingBatch) -> Outcome:
    """Cross-entropy of the images + β · KL(clean ‖ perturbed) (Zhang et al. 2019).

    Both halves go through the network in one pass, so BatchNorm sees clean and perturbed images together; the published
    code makes two passes, which distributed training does not allow with BatchNorm.
    """
    with torch.no_grad():
        clean = log_softmax(batch.bare(batch.images), dim=1)
    perturbed = batch.attack(lambda logits: _divergence(clean, logits), "near")
    logits, perturbed_logits = batch.model(torch.cat([batch.images, perturbed])).chunk(2)
    fitted = cross_entropy(logits, batch.labels, label_smoothing=batch.settings.label_smoothing)
    apart = _divergence(log_softmax(logits, dim=1), perturbed_logits).mean()
    return Outcome(fitted + batch.settings.beta * apart, logits)


def logit_squeezing(batch: TrainingBatch, logits: Tensor) -> Tensor:
    """Mean squared logit: small logits keep the gradients of the cross-entropy alive (Kannan et al. 2018)."""
    return logits.square().mean()


LOSSES: dict[str, Loss] = {"standard": standard, "at": adversarial, "fast_at": adversarial, "trades": trades}
REGULARISERS: dict[str, Regulariser] = {"logit_squeezing": logit_squeezing}


def _fitted(batch: TrainingBatch, images: Tensor) -> Outcome:
    logits = batch.model(images)
    return Outcome(cross_entropy(logits, batch.labels, label_smoothing=batch.settings.label_smoothing), logits)


def _divergence(reference: Tensor, logits: Tensor) -> Tensor:
    """KL(reference ‖ softmax(logits)) of each row; `reference` holds log-probabilities."""
    return kl_div(log_softmax(logits, dim=1), reference, reduction="none", log_target=True).sum(1)
