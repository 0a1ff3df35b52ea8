"""The paper's appendix B.2: AutoPGD (Croce & Hein, ICML 2020) with cross-entropy and DLR loss at growing epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from locality.boundary.pgd_cw import EPSILONS, check_epsilons
from locality.boundary.search import SearchContext, limited_to
from locality.errors import needing
from locality.model_calls import Calls
from locality.model_calls.checks import UNIT
from locality.model_calls.randomness import own_randomness
from locality.model_calls.third_party import FoolboxBridge
from locality.perturbation import margin, per_image

ITERATIONS = 100
# The DLR loss divides by the difference of the first and the third logit.
CLASSES_FOR_DLR = 3
ZERO_GRADIENTS = "search='autopgd': the gradient is exactly zero at some points, so AutoPGD cannot leave them"


@limited_to(norms=("l2",), bounds=UNIT)
def autopgd_search(context: SearchContext, *, epsilons: Sequence[float] = EPSILONS) -> Tensor:
    """ℓ2 APGD-CE and APGD-DLR, 100 iterations, one start, at each ε until either succeeds; the closer of the two wins.

    The random start x + ε·t/‖t‖ is drawn from the image's own seed. pyautoattack draws it for the whole batch, so that
    results would depend on the batch. The DLR loss needs three classes; with two, only cross-entropy runs.
    """
    check_epsilons(epsilons)
    calls, labels = context.calls, context.labels
    images = context.images.detach().clamp(0, 1)
    losses = ("ce", "dlr") if calls.logits(images[:1]).shape[1] >= CLASSES_FOR_DLR else ("ce",)

    points = images.clone()
    active = torch.arange(len(images), device=images.device)
    directions = _directions(images, context.seeds)
    for epsilon in epsilons:
        closest = torch.full((len(active),), torch.inf, device=images.device)
        for loss in losses:
            tried = _apgd(calls, images[active], labels[active], directions[active], epsilon, loss)
            across = margin(calls.logits(tried), labels[active]) < 0
            distance = torch.where(across, (tried - images[active]).flatten(1).norm(dim=1), torch.inf)
            # Without a success so far, the latest iterate is used.
            better = (distance < closest) | closest.isinf()
            points[active] = torch.where(per_image(better), tried, points[active])
            closest = torch.minimum(closest, distance)
        active = active[closest.isinf()]
        if len(active) == 0:
            break
        context.progress(len(images) - len(active), len(images))
    context.progress(len(images), len(images))
    return points


def _directions(images: Tensor, seeds: list[int]) -> Tensor:
    """A random direction of length 1 for each image, from its seed."""
    drawn = [torch.randn(images.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    directions = torch.stack(drawn).to(images)
    return directions / per_image(directions.flatten(1).norm(dim=1))


def _apgd(calls: Calls, images: Tensor, labels: Tensor, directions: Tensor, epsilon: float, loss: str) -> Tensor:
    """The last point across that APGD visited, or the one of the largest loss where it visited none."""
    with needing("`search` autopgd"):
        from pyautoattack.autopgd_base import APGDAttack  # type: ignore[import-untyped]

    def attack_chunk(chunk: Tensor, classes: Tensor, directions: Tensor) -> tuple[Tensor, ...]:
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
        # Not `perturb`: it seeds the global generators and draws one start for the whole batch. A single run draws a
        # start too, before it uses ours, so the caller's generators are protected.
        with own_randomness(0, chunk.device):
            best, robust, _, across = attack.attack_single_run(chunk, classes, x_init=chunk + epsilon * directions)
        return (torch.where(per_image(robust), best, across).detach(),)

    return calls.in_chunks(attack_chunk, images, labels, directions)[0]
