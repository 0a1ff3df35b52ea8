"""The attack inside adversarial training: a few steps of gradient ascent on the network as it is, without `open_model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from locality.errors import ArgumentError, Problem
from locality.perturbation import ascend
from locality.training.schedules import Moment, WarmUp
from locality.training.settings import from_0_to_1, positive, problem_of
from locality.types import Norm, Threat

Mode = Literal["eval", "train"]
Objective = Callable[[Tensor], Tensor]  # N×K logits ↦ N numbers to maximise


@dataclass(frozen=True)
class InnerAttack:
    """Settings of the attack: where it may go, and how. `epsilon` grows over the first `warm_up` of the epochs."""

    epsilon: float
    norm: Norm = "linf"
    steps: int = 2
    step_size: float = 0.7  # in units of epsilon
    warm_up: float = 0.0  # share of the epochs
    mode: Mode = "eval"  # of BatchNorm and dropout while the attack runs

    @property
    def threat(self) -> Threat:
        return Threat(self.norm, self.epsilon)

    def radius(self, moment: Moment) -> float:
        """Epsilon as it is at this moment of the run."""
        return self.epsilon * WarmUp(self.warm_up)(moment)

    def problems(self) -> list[Problem]:
        problems = [
            *positive("steps", self.steps),
            *positive("step_size", self.step_size),
            *from_0_to_1("warm_up", self.warm_up),
        ]
        try:
            Threat(self.norm, self.epsilon)
        except ArgumentError as error:
            problems.append(problem_of(error))
        return problems


def perturbed(
    logits: Callable[[Tensor], Tensor],
    images: Tensor,
    objective: Objective,
    start: Tensor,
    threat: Threat,
    steps: int,
    step_size: float,
) -> Tensor:
    """Images within the threat of the given ones, and within [0, 1], at which the sum of `objective(logits)` is larger.

    `start` holds the images to begin at, and `step_size` is the length of a step in pixels. Only gradients with respect to
    the images are computed; the weights' gradients stay as they are. Unlike `pgd`, no image stops early: training needs the
    worst image, not the first misclassified one.
    """

    def gradient(points: Tensor) -> Tensor:
        leaf = points.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(objective(logits(leaf)).sum(), leaf)[0]

    return ascend(gradient, images, start, threat, steps, step_size)
