"""Reasons not to trust a robust accuracy: outputs that change from call to call, probabilities, masked gradients.

Attacks that follow gradients say little about a model whose gradients do not lead to other classes (Athalye et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.randomness import image_seeds
from locality.perturbation import project, steepest_direction
from locality.robustness.pgd import cross_entropy, margin_loss
from locality.types import Threat

# AutoAttack's own limits: the change of logits over their length, and the share of images that only Square breaks.
LARGEST_CHANGE = 1e-4
LARGEST_SQUARE_SHARE = 0.002
RANDOM_DIRECTIONS = 4  # that a gradient is compared with
LARGEST_BLIND_SHARE = 0.2  # of images whose gradient is no better than them; for a smooth model it is 0
RELATIVE_STEP_SIZE = 1 / 4  # of epsilon: short enough for a gradient to predict the loss

Kind = Literal["few classes", "unsteady outputs", "probabilities", "zero gradients", "blind gradients", "square"]


@dataclass(frozen=True)
class Caveat:
    """A reason not to take a robust accuracy at face value."""

    kind: Kind
    text: str


PROBABILITIES = Caveat(
    "probabilities", "the model returns probabilities, not logits: gradients vanish behind a softmax, remove it"
)


def examine(
    calls: Calls, images: Tensor, labels: Tensor, threat: Threat, seed: int = 0, *, gradients: bool = True
) -> tuple[Caveat, ...]:
    """What is wrong with the model as an attack sees it; `labels` are its predictions.

    A gradient is blind if a step along it raises the margin loss no more than the best of four random steps of the same
    length: with d pixels, the right direction beats a random one by a factor of about √d. Without `gradients`, only the
    outputs are examined.
    """
    logits = calls.logits(images)
    if not gradients:
        unsteady = _unsteady(calls, images, logits)
        return () if unsteady is None else (unsteady,)
    checks = (_unsteady(calls, images, logits), _probabilities(logits), _zero(calls, images, labels))
    caveats = tuple(caveat for caveat in checks if caveat is not None)
    if caveats:
        return caveats
    blind = _blind(calls, images, labels, threat, seed)
    return () if blind is None else (blind,)


def square_caveat(broken_by_square: int, images: int) -> Caveat | None:
    """What it means if an attack without gradients breaks images that those with gradients left unbroken."""
    if broken_by_square <= LARGEST_SQUARE_SHARE * images:
        return None
    text = (
        f"the Square attack, which needs no gradients, broke {broken_by_square} of {images} images that the other attacks "
        "did not: the model may mask gradients, and the robust accuracy may be too high"
    )
    return Caveat("square", text)


def _unsteady(calls: Calls, images: Tensor, logits: Tensor) -> Caveat | None:
    change = (calls.logits(images) - logits).norm(dim=1) / logits.norm(dim=1).clamp_min(1e-10)
    if not float(change.max()) > LARGEST_CHANGE:
        return None
    text = (
        f"the model's outputs change from call to call, by {float(change.max()):.2g} of their length: attacks on a random "
        "model need the mean of many calls, and the robust accuracy may be too high"
    )
    return Caveat("unsteady outputs", text)


def _probabilities(logits: Tensor) -> Caveat | None:
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < 1e-4).all()):
        return PROBABILITIES
    return None


def _zero(calls: Calls, images: Tensor, labels: Tensor) -> Caveat | None:
    zero = _zeros(calls.gradient(images, cross_entropy, labels)[1])
    if zero == 0:
        return None
    margin_zero = _zeros(calls.gradient(images, margin_loss, labels)[1])
    hint = "; that of the margin is not: use cw20, paper or standard" if margin_zero == 0 else ""
    text = (
        f"the gradient of the cross-entropy is exactly zero at {zero} of {len(images)} images: the model may mask "
        f"gradients, and the robust accuracy may be too high{hint}"
    )
    return Caveat("zero gradients", text)


def _zeros(gradient: Tensor) -> int:
    return int((gradient.flatten(1) == 0).all(dim=1).sum())


def _blind(calls: Calls, images: Tensor, labels: Tensor, threat: Threat, seed: int) -> Caveat | None:
    _, gradient = calls.gradient(images, margin_loss, labels)
    along = _loss_after_step(calls, images, labels, gradient, threat)
    generators = [torch.Generator().manual_seed(number) for number in image_seeds(images, seed)]
    best = torch.full_like(along, -torch.inf)
    for _ in range(RANDOM_DIRECTIONS):
        noise = torch.stack([torch.randn(images.shape[1:], generator=generator) for generator in generators])
        best = torch.maximum(best, _loss_after_step(calls, images, labels, noise.to(images), threat))
    blind = int((along < best).sum())
    if blind <= LARGEST_BLIND_SHARE * len(images):
        return None
    text = (
        f"a step along the gradient is no better than a random one for {blind} of {len(images)} images: the model may mask "
        "gradients, and the robust accuracy may be too high"
    )
    return Caveat("blind gradients", text)


def _loss_after_step(calls: Calls, images: Tensor, labels: Tensor, direction: Tensor, threat: Threat) -> Tensor:
    """N: the margin loss after a short step along `direction`."""
    step = threat.radius * RELATIVE_STEP_SIZE
    moved = images + step * steepest_direction(direction, threat.norm)
    return margin_loss(calls.logits(project(moved, images, step, threat.norm)), labels)
