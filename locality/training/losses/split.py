"""What the losses share: the passes through the network are apart from the value, which is a pure function of them.

So the value can be computed again from other passes, tested without an attack, and has its Hessian's trace beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from locality.training.inner_attack import InnerAttack
from locality.training.step import LossValue, Passes, TrainingBatch
from locality.types import Threat
from locality.zoo.nets.forward_pass import ForwardPass


class SplitLoss(ABC):
    """A loss in two parts: `passes` attacks and evaluates the network, `value` is a pure function of what it saw."""

    @abstractmethod
    def passes(self, batch: TrainingBatch) -> Passes:
        """The passes that the value needs. Images are attacked once per step, through `batch.once`."""

    @abstractmethod
    def value(self, passes: Passes, labels: Tensor) -> LossValue:
        """The loss, a mean over the images, and its terms; `fit` is the part that is fitted to the labels."""

    @abstractmethod
    def trace(self, passes: Passes, labels: Tensor, bias: bool = False) -> Tensor:
        """N: the trace of the Hessian of each image's loss with respect to the weights of the head, in closed form.

        Attacked images count as constants. `bias` also counts the head's bias. The head must be a linear layer.
        """

    def __call__(self, batch: TrainingBatch) -> LossValue:
        return self.value(self.passes(batch), batch.labels)


class AttackedLoss(SplitLoss):
    """A loss with an attack, which is a field of the settings; the log shows its radius as `epsilon`."""

    attack: InnerAttack

    @property
    def threat(self) -> Threat:
        return self.attack.threat

    def __call__(self, batch: TrainingBatch) -> LossValue:
        value = super().__call__(batch)
        return replace(value, terms=value.terms | {"epsilon": self.attack.radius(batch.moment)})


def worst_images(batch: TrainingBatch, attack: InnerAttack, start: Literal["random", "near"] = "random") -> Tensor:
    """The batch's images, attacked once per step to maximise the cross-entropy."""

    def objective(logits: Tensor) -> Tensor:
        return cross_entropy(logits, batch.labels, reduction="none")

    return batch.once("attacked images", lambda: batch.attack(attack, objective, start))


def pair_of_passes(batch: TrainingBatch, attacked: Tensor) -> Passes:
    """Clean and attacked images in one pass, so BatchNorm sees both together.

    Published code makes two passes, which distributed training with BatchNorm does not allow.
    """
    return Passes(*batch.forward(torch.cat([batch.images, attacked])).chunk(2))


def clean_pass(passes: Passes) -> ForwardPass:
    """The pass over clean images, which the loss has made."""
    assert passes.clean is not None
    return passes.clean


def attacked_pass(passes: Passes) -> ForwardPass:
    """The pass over attacked images, which the loss has made."""
    assert passes.attacked is not None
    return passes.attacked
