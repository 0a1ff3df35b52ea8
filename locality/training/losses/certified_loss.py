"""What the losses of certified training share: margins, how fast they can change, and a radius that grows (GloRo, LiResNet).

K_ji estimates how fast the margin f_j − f_i can change with the pixels (`LipschitzNet.margin_norms`). It is in the graph,
so the loss makes the network accurate and its Lipschitz constant small at once. The estimate is from below, so the log's
`certified_accuracy` is no certificate; the card's is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from locality.errors import ArgumentError, Problem
from locality.training.schedules import SCHEDULES, Linear, Moment, Schedule
from locality.training.settings import chosen_from, positive, problem_of, problems_in
from locality.training.step import LossValue, Terms, TrainingBatch
from locality.types import Threat
from locality.zoo.nets.forward_pass import ForwardPass
from locality.zoo.nets.lipschitz import LipschitzNet

if TYPE_CHECKING:
    from locality.training.recipe import Recipe


@dataclass(frozen=True)
class CertifiedLoss(ABC):
    """A loss of margins at an ℓ2 distance of `epsilon` times the `schedule`, which by default ends above 1.

    A radius that ends at twice the one to be certified makes up for the images that are not seen in training.
    """

    epsilon: float  # the ℓ2 radius to be certified, in pixels of [0, 1]
    schedule: Schedule = field(default=Linear(0.1, 2.0, 0.5), metadata=chosen_from(SCHEDULES))
    power_steps: int = 5  # of the power iteration that estimates K, from where the last step's ended

    @abstractmethod
    def value(self, clean: ForwardPass, labels: Tensor, norms: Tensor, radius: float) -> LossValue:
        """The loss of a pass; `norms` is the K×K table of K_ji, and `radius` that of this moment."""

    @property
    def threat(self) -> Threat:
        return Threat("l2", self.epsilon)

    def radius(self, moment: Moment) -> float:
        """The radius that is trained for at this moment of the run."""
        return self.epsilon * self.schedule(moment)

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        norms = batch.margin_norms(self.power_steps)
        radius = self.radius(batch.moment)
        value = self.value(clean, batch.labels, norms, radius)
        with torch.no_grad():
            right = clean.logits.argmax(1) == batch.labels
            certified = right & (bottom_logit(clean.logits, norms, self.epsilon) < clean.logits.amax(1))
        terms: Terms = {"certified_accuracy": certified.float().mean(), "lipschitz": norms.detach().max(), "epsilon": radius}
        return replace(value, terms=value.terms | terms)

    def problems(self) -> list[Problem]:
        problems = positive("power_steps", self.power_steps)
        try:
            Threat("l2", self.epsilon)
        except ArgumentError as error:
            problems.append(problem_of(error, "epsilon"))
        return problems

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        """A problem unless the recipe's network has estimates of K. The network is built without its weights."""
        if problems_in(recipe.net):
            return []  # listed already
        try:
            net = recipe.net.without_weights()
        except (TypeError, ValueError):
            return []  # reported when the network is built
        return _net_problems(net, recipe.net.name)


def _net_problems(net: nn.Module, name: str) -> list[Problem]:
    advice = "choose liresnet, lip_convnet or lip_resnet"
    if not isinstance(net, LipschitzNet):
        return [Problem("", f"needs a network with `margin_norms`, which {name} does not have: {advice}")]
    unbounded = {type(part).__name__ for part in net.modules() if isinstance(part, _BatchNorm | _DropoutNd)}
    if unbounded:
        layers = " and ".join(sorted(unbounded))
        return [
            Problem("", f"needs layers with a Lipschitz constant in training, which {layers} of {name} has not: {advice}")
        ]
    return []


def bottom_logit(logits: Tensor, norms: Tensor, radius: float) -> Tensor:
    """N: f_⊥ = max over i ≠ j of f_i + radius·K_ji, where j is the prediction; above f_j, the prediction may change.

    >>> logits = torch.tensor([[3.0, 1.0, 0.0]])
    >>> bottom_logit(logits, torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]), radius=0.5).tolist()
    [2.0]
    """
    prediction = logits.argmax(1, keepdim=True)
    moved = logits + radius * norms[prediction[:, 0]]
    # By index: other classes may have the same logit.
    return moved.scatter(1, prediction, -torch.inf).amax(1)
