"""The attack inside adversarial training: few steps of ascent, from a start drawn for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Norm = Literal["linf", "l2"]


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

    `start` is the offset to begin at and `step_size` the length of a step, both in pixels. Only gradients with respect to
    the images are computed; those of the weights are left as they are.
    """
    offset = _inside(start, images, epsilon, norm)
    for _ in range(steps):
        leaf = (images + offset).detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(objective(model(leaf)).sum(), leaf)
        offset = _inside(offset + step_size * _steepest(gradient, norm), images, epsilon, norm)
    return (images + offset).detach()


def random_starts(shape: tuple[int, ...], seeds: list[int], epsilon: float, norm: Norm) -> Tensor:
    """One offset an image, drawn from its own seed: uniform in the cube (ℓ∞), or in a random direction (ℓ2)."""
    drawn = torch.empty(len(seeds), *shape)
    for row, seed in zip(drawn, seeds, strict=True):
        generator = torch.Generator().manual_seed(seed)
        if norm == "linf":
            row.uniform_(-epsilon, epsilon, generator=generator)
        else:
            row.normal_(generator=generator)
            row.mul_(epsilon * torch.rand((), generator=generator) / row.norm())
    return drawn


def _steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """The direction of unit length in which the objective rises most."""
    if norm == "linf":
        return gradient.sign()
    return gradient / _lengths(gradient).clamp_min(1e-12)


def _inside(offset: Tensor, images: Tensor, epsilon: float, norm: Norm) -> Tensor:
    """The nearest offset inside the ball, then cut so that pixels stay within [0, 1] (which never makes it longer)."""
    offset = offset.clamp(-epsilon, epsilon) if norm == "linf" else offset * (epsilon / _lengths(offset)).clamp_max(1)
    return (images + offset).clamp(0, 1) - images


def _lengths(offset: Tensor) -> Tensor:
    lengths: Tensor = offset.flatten(1).norm(dim=1)
    return lengths.clamp_min(1e-12).view(-1, 1, 1, 1)
