"""The paper's appendix B.2: AutoPGD (Croce & Hein, ICML 2020) with cross-entropy and DLR loss at growing epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locality.boundary.pgd_cw import EPSILONS, check_settings
from locality.model_calls import Calls
from locality.model_calls.randomness import own_randomness
from locality.model_calls.third_party import FoolboxBridge
from locality.perturbation import margin, per_image

if TYPE_CHECKING:
    from locality.boundary import Norm
from locality.progress import Progress

ITERATIONS = 100
# The DLR loss divides by the difference of the first and the third logit.
CLASSES_FOR_DLR = 3
ZERO_GRADIENTS = "search='autopgd': the gradient is exactly zero at some points, so AutoPGD cannot leave them"


def autopgd_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    seeds: list[int],
    progress: Progress,
    epsilons: Sequence[float] = EPSILONS,
    **options: Any,
) -> Tensor:
    """ℓ2 APGD-CE and APGD-DLR, 100 iterations, one start, at each ε until either succeeds; the closer of the two wins.

    The random start x + ε·t/‖t‖ is drawn from the image's own seed, where pyautoattack draws it for the whole batch, so that
    the company of an image does not matter. With two classes there is no DLR loss and cross-entropy runs alone.
    """
    check_settings("autopgd", norm, epsilons, options)
    images = images.detach().clamp(0, 1)
    losses = ("ce", "dlr") if calls.logits(images[:1]).shape[1] >= CLASSES_FOR_DLR else ("ce",)

    points = images.clone()
    left = torch.arange(len(images), device=images.device)
    directions = _directions(images, seeds)
    for epsilon in epsilons:
        closest = torch.full((len(left),), torch.inf, device=images.device)
        for loss in losses:
            tried = _apgd(calls, images[left], labels[left], directions[left], epsilon, loss)
            across = margin(calls.logits(tried), labels[left]) < 0
            distance = torch.where(across, (tried - images[left]).flatten(1).norm(dim=1), torch.inf)
            # Without a success yet, the latest iterate stands in.
            better = (distance < closest) | closest.isinf()
            points[left] = torch.where(per_image(better), tried, points[left])
            closest = torch.minimum(closest, distance)
        left = left[closest.isinf()]
        if len(left) == 0:
            break
        progress(len(images) - len(left), len(images))
    progress(len(images), len(images))
    return points


def _directions(images: Tensor, seeds: list[int]) -> Tensor:
    """A random direction of length 1 for each image, from its seed."""
    drawn = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    directions = torch.stack(drawn).to(images)
    return directions / per_image(directions.flatten(1).norm(dim=1))


def _apgd(calls: Calls, images: Tensor, labels: Tensor, directions: Tensor, epsilon: float, loss: str) -> Tensor:
    """The last point across that APGD met, or the one of the largest loss where it met none."""
    from pyautoattack.autopgd_base import APGDAttack  # type: ignore[import-untyped]

    def part(chunk: Tensor, classes: Tensor, towards: Tensor) -> tuple[Tensor, ...]:
        attack = APGDAttack(
            FoolboxBridge(calls),
            n_iter=ITERATIONS,
            norm="L2",
            eps=epsilon,
            loss=loss,
            device=chunk.device,
            logger=SimpleNamespace(warning=lambda message: calls.warn(ZERO_GRADIENTS)),
        )
        attack.init_hyperparam(chunk)
        # One run with a given start, not `perturb`: that seeds the global generators and draws one start for the batch.
        # The run draws a start too before it takes ours, so the caller's generators are shielded.
        with own_randomness(0, chunk.device):
            best, robust, _, across = attack.attack_single_run(chunk, classes, x_init=chunk + epsilon * towards)
        return (torch.where(per_image(robust), best, across).detach(),)

    return calls.in_chunks(part, images, labels, directions)[0]
