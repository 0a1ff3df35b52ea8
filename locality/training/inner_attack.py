"""The attack inside adversarial training: few steps of ascent on the network as it is, for speed without `open_model`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.perturbation import project, steepest_direction
from locality.types import Norm


def perturbed(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    objective: Callable[[Tensor], Tensor],
    start: Tensor,
    epsilon: float,
    norm: Norm,
    steps: int,
    step_size: float,
) -> Tensor:
    """Images within `epsilon` of the given ones, and within [0, 1], at which the sum of `objective(logits)` is larger.

    `start` are the images to begin at, and `step_size` is the length of a step in pixels. Only gradients with respect to
    the images are computed; those of the weights are left as they are. Unlike `pgd`, no image stops early: training wants
    the worst image, not the first bad one.
    """
    points = project(start, images, epsilon, norm)
    for _ in range(steps):
        leaf = points.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(objective(model(leaf)).sum(), leaf)
        points = project(points + step_size * steepest_direction(gradient, norm), images, epsilon, norm)
    return points.detach()
