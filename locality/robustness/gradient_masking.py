"""Reasons not to trust a robust accuracy: outputs that change from call to call, probabilities, masked gradients.

An attack that is led by gradients says little about a model whose gradients lead nowhere (Athalye et al. 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.randomness import image_seeds
from locality.perturbation import per_image, project
from locality.robustness.autoattack import Threat
from locality.robustness.pgd import Norm, cross_entropy, margin_loss

# AutoAttack's own limits: the change of logits over their length, and the share of images that only Square breaks.
UNSTEADY = 1e-4
SQUARE_SHARE = 0.002
RIVALS = 4  # random directions that a gradient is compared with
BLIND_SHARE = 0.2  # of images whose gradient does not beat them; for a smooth model it is 0
STEP_SHARE = 1 / 4  # of epsilon: a step short enough for a gradient to be right about
PROBABILITIES = "the model returns probabilities, not logits: gradients vanish behind a softmax, remove it"


def examine(calls: Calls, images: Tensor, labels: Tensor, threat: Threat) -> tuple[str, ...]:
    """Sentences about what is wrong with the model as an attack sees it; `labels` are its predictions.

    A gradient is blind where a step along it raises the margin loss no more than the best of four random steps of the same
    length: with d pixels, the right direction beats a random one by a factor of about √d.
    """
    logits = calls.logits(images)
    checks = (_unsteady(calls, images, logits), _probabilities(logits), *_zero(calls, images, labels))
    sentences = [sentence for sentence in checks if sentence]
    if len(sentences) == 0:
        sentences = [sentence for sentence in [_blind(calls, images, labels, threat)] if sentence]
    return tuple(sentences)


def square_sentence(broken_by_square: int, images: int) -> str | None:
    """A warning where an attack without gradients breaks what those with gradients left."""
    if broken_by_square <= SQUARE_SHARE * images:
        return None
    return (
        f"the Square attack, which needs no gradients, broke {broken_by_square} of {images} images that the others left: "
        "the model may mask gradients, and the robust accuracy may be too high"
    )


def _unsteady(calls: Calls, images: Tensor, logits: Tensor) -> str | None:
    change = (calls.logits(images) - logits).norm(dim=1) / logits.norm(dim=1).clamp_min(1e-10)
    if not float(change.max()) > UNSTEADY:
        return None
    return (
        f"the model's outputs change from call to call, by {float(change.max()):.2g} of their length: attacks on a random "
        "model need the mean of many calls, the robust accuracy may be too high"
    )


def _probabilities(logits: Tensor) -> str | None:
    if bool((logits >= 0).all()) and bool(((logits.sum(dim=1) - 1).abs() < 1e-4).all()):
        return PROBABILITIES
    return None


def _zero(calls: Calls, images: Tensor, labels: Tensor) -> tuple[str, ...]:
    zero = _zeros(calls.gradient(images, cross_entropy, labels)[1])
    if zero == 0:
        return ()
    others = _zeros(calls.gradient(images, margin_loss, labels)[1])
    hope = "; that of the margin is not: use cw20, paper or standard" if others == 0 else ""
    return (
        f"the gradient of the cross-entropy is exactly zero at {zero} of {len(images)} images, so the model may mask "
        f"gradients and the robust accuracy be too high{hope}",
    )


def _zeros(gradient: Tensor) -> int:
    return int((gradient.flatten(1) == 0).all(dim=1).sum())


def _blind(calls: Calls, images: Tensor, labels: Tensor, threat: Threat) -> str | None:
    step = threat.epsilon * STEP_SHARE
    _, gradient = calls.gradient(images, margin_loss, labels)
    along = _loss_after(calls, images, labels, gradient, threat.norm, step)
    generators = [torch.Generator().manual_seed(number) for number in image_seeds(images, threat.seed)]
    best = torch.full_like(along, -torch.inf)
    for _ in range(RIVALS):
        noise = torch.stack([torch.randn(images.shape[1:], generator=generator) for generator in generators])
        best = torch.maximum(best, _loss_after(calls, images, labels, noise.to(images), threat.norm, step))
    blind = int((along < best).sum())
    if blind <= BLIND_SHARE * len(images):
        return None
    return (
        f"a step along the gradient is no better than a random one for {blind} of {len(images)} images, so the model may "
        "mask gradients and the robust accuracy be too high"
    )


def _loss_after(calls: Calls, images: Tensor, labels: Tensor, direction: Tensor, norm: Norm, step: float) -> Tensor:
    """N: the margin loss after a step of that length along `direction`."""
    unit = direction.sign() if norm == "linf" else direction / per_image(direction.flatten(1).norm(dim=1).clamp_min(1e-30))
    return margin_loss(calls.logits(project(images + step * unit, images, step, norm)), labels)
