"""Projected gradient descent within a ball around each image: PGD-20 and CW-20 are two settings of one plain function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import check_labels, check_target, working_copy
from locality.model_calls.randomness import image_seeds
from locality.perturbation import RELATIVE_STEP_SIZE, margin, project, random_in_ball, steepest_direction
from locality.types import Norm, Threat

Loss = Literal["ce", "margin"]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """N: −log p_y."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """N: the largest other logit minus that of the label (Carlini & Wagner 2017), positive once the class has changed."""
    return -margin(logits, labels)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"ce": cross_entropy, "margin": margin_loss}


def pgd(
    model: Model | Calls,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    norm: Norm = "linf",
    steps: int = 20,
    step_size: float | None = None,
    loss: Loss = "ce",
    seed: int = 0,
    *,
    random_start: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """Points within `epsilon` of the images that raise the loss (Madry et al. 2018): x ← P(x + step · direction(∇loss)).

    The direction is the gradient's sign (ℓ∞) or the gradient over its length (ℓ2); P projects onto the ball and onto [0, 1].
    An image stops at its first iterate of another class. Otherwise its last iterate is returned, whose class has not been
    evaluated. The random start depends on the image's pixels and the seed.

    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -1.0], [2.0, 0.0]])
    >>> pgd(linear, torch.full((1, 1, 1, 2), 0.5), torch.tensor([0]), epsilon=0.25, loss="margin").flatten().tolist()
    [0.25, 0.25]
    """
    Threat(norm, epsilon)  # checks both
    step_size = epsilon * RELATIVE_STEP_SIZE[norm] if step_size is None else step_size
    if loss not in LOSSES:
        raise unknown_choice("loss", loss, LOSSES)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ArgumentError("steps", "a whole number of gradient steps", steps)
    if not (math.isfinite(step_size) and step_size > 0):
        raise ArgumentError("step_size", "a positive length in pixels", step_size)
    pixels = working_copy(images)
    with open_model(model, pixels, chunk) as calls:
        classes = check_labels(labels, len(pixels)).to(pixels.device)
        points = random_in_ball(pixels, image_seeds(pixels, seed), epsilon, norm) if random_start else pixels.clone()
        active = torch.arange(len(pixels), device=pixels.device)
        for _ in range(steps):
            logits, gradient = calls.gradient(points[active], _with_checked_labels(LOSSES[loss]), classes[active])
            unbroken = logits.argmax(dim=1) == classes[active]
            active = active[unbroken]
            if len(active) == 0:
                break
            moved = points[active] + step_size * steepest_direction(gradient[unbroken], norm)
            points[active] = project(moved, pixels[active], epsilon, norm)
        return points


def _with_checked_labels(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss after a check of the labels: `gather` would only say that an index is out of range."""

    def checked(logits: Tensor, labels: Tensor) -> Tensor:
        check_target(labels, logits.shape[1])
        return loss(logits, labels)

    return checked
