"""The thesis' boundary search: ℓ2 PGD at growing epsilons, then ℓ2 CW, both through Foolbox; the closer success wins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.third_party import FoolboxBridge, foolbox_model, load_foolbox
from locality.perturbation import margin, per_image

if TYPE_CHECKING:
    from locality.boundary import Norm
from locality.progress import Progress

EPSILONS = (36 / 255, 64 / 255, 0.3, 0.5, 0.7, 0.9, 1.1)
STEPS = 100
# Foolbox multiplies this by epsilon: steps of 2ε/100. Passing 2ε/100 itself is a known fault of published code.
RELATIVE_STEP = 2 / 100
CW_STEP = 1e-2
CW_EPSILON = 1.0
# Not stated in the thesis, our choice: no random start, and for CW these. Early abort would look at the batch's loss.
CW_BINARY_SEARCHES = 9
CW_INITIAL_CONSTANT = 1e-3


@dataclass(frozen=True, eq=False)
class PaperPieces:
    """What PGD and CW found, apart; points lie wherever the attack left them, not yet on the boundary."""

    pgd_points: Tensor  # N×C×H×W, last iterate at the largest epsilon where none succeeded
    pgd_success: Tensor  # N bool
    pgd_epsilon: Tensor  # N, the first successful epsilon, nan where none succeeded
    pgd_distance: Tensor  # N, ℓ2, inf where none succeeded
    cw_points: Tensor  # N×C×H×W, the image where CW failed
    cw_success: Tensor  # N bool
    cw_distance: Tensor  # N, ℓ2, inf where CW failed
    beyond: Tensor  # N bool, CW succeeded but further away than the paper's epsilon of 1.0

    @property
    def points(self) -> Tensor:
        """The closer success, or PGD's last iterate where neither succeeded."""
        return torch.where(per_image(self.cw_distance < self.pgd_distance), self.cw_points, self.pgd_points)


def paper_search(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    seeds: list[int],
    progress: Progress,
    epsilons: Sequence[float] = EPSILONS,
    **options: Any,
) -> Tensor:
    """The closer of PGD's and CW's point (thesis, chapter 3; settings in `paper_pieces`); nothing in it is random."""
    check_settings("paper", norm, epsilons, options)
    pieces = paper_pieces(calls, images, labels, progress, epsilons)
    beyond = int((pieces.beyond & (pieces.cw_distance < pieces.pgd_distance)).sum())
    if beyond:
        calls.warn(
            f"search='paper': the points of {beyond} of {len(images)} images are CW's and lie further away than the "
            f"paper's ε = {CW_EPSILON:.1f} for it; PGD with larger `epsilons` may come closer"
        )
    return pieces.points


def paper_pieces(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    progress: Progress = lambda done, total: None,
    epsilons: Sequence[float] = EPSILONS,
) -> PaperPieces:
    """ℓ2 PGD, 100 steps of 2ε/100 at each ε until the first success; then ℓ2 CW, 9 × 100 steps of 1e-2, unclipped."""
    check_settings("paper", "l2", epsilons, {})
    images = images.detach().clamp(0, 1)  # Foolbox insists on exact bounds, `check_images` forgives float noise.
    rounds = len(epsilons) + 1  # CW is the last; every image takes part in it, so none is finished before

    pgd_points = images.clone()
    pgd_epsilon = torch.full((len(images),), torch.nan, device=images.device)
    left = torch.arange(len(images), device=images.device)
    for number, epsilon in enumerate(epsilons):
        pgd_points[left] = _pgd(calls, images[left], labels[left], epsilon)
        across = margin(calls.logits(pgd_points[left]), labels[left]) < 0
        pgd_epsilon[left[across]] = epsilon
        left = left[~across]
        progress(len(images) * (number + 1) // rounds, len(images))
        if len(left) == 0:
            break
    pgd_success = ~pgd_epsilon.isnan()

    cw_points, cw_success = _carlini_wagner(calls, images, labels, progress, rounds)
    cw_distance = _distance(images, cw_points, cw_success)
    return PaperPieces(
        pgd_points=pgd_points,
        pgd_success=pgd_success,
        pgd_epsilon=pgd_epsilon,
        pgd_distance=_distance(images, pgd_points, pgd_success),
        cw_points=cw_points,
        cw_success=cw_success,
        cw_distance=cw_distance,
        beyond=cw_success & (cw_distance > CW_EPSILON),
    )


def check_settings(search: str, norm: Norm, epsilons: Sequence[float], options: dict[str, Any]) -> None:
    """Raise unless the search is asked for ℓ2, at growing epsilons and with no other option."""
    if norm != "l2":
        raise ValueError(f"`norm` must be 'l2' for search={search!r}, got {norm!r}: search='fast' takes both")
    if options:
        raise TypeError(f"`{min(options)}` is no option of search={search!r}: it takes epsilons")
    values = list(epsilons)
    if not values or values[0] <= 0 or any(later <= earlier for earlier, later in itertools.pairwise(values)):
        raise ValueError(f"`epsilons` must be positive and grow, got {values}: each image stops at its first success")


def _pgd(calls: Calls, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    attack = load_foolbox().attacks.L2ProjectedGradientDescentAttack(
        rel_stepsize=RELATIVE_STEP, steps=STEPS, random_start=False
    )

    def part(chunk: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        return (attack.run(foolbox_model(FoolboxBridge(calls), chunk.device), chunk, classes, epsilon=epsilon).detach(),)

    return calls.in_chunks(part, images, labels)[0]


def _carlini_wagner(calls: Calls, images: Tensor, labels: Tensor, progress: Progress, rounds: int) -> tuple[Tensor, Tensor]:
    """CW's own points, as Foolbox gives them with `epsilons=None`, and where they are across."""
    attack = load_foolbox().attacks.L2CarliniWagnerAttack(
        binary_search_steps=CW_BINARY_SEARCHES,
        steps=STEPS,
        stepsize=CW_STEP,
        initial_const=CW_INITIAL_CONSTANT,
        abort_early=False,
    )
    done = 0

    def part(chunk: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        nonlocal done
        points = attack.run(foolbox_model(FoolboxBridge(calls), chunk.device), chunk, classes).detach()
        done += len(chunk)
        progress((len(images) * (rounds - 1) + done) // rounds, len(images))
        return (points,)

    points = calls.in_chunks(part, images, labels)[0]
    # Foolbox gives a black image where CW fails, and black is often another class: a failure would pass for a success.
    black = points.flatten(1).eq(0).all(dim=1)
    points = torch.where(per_image(black), images, points)
    return points, margin(calls.logits(points), labels) < 0


def _distance(images: Tensor, points: Tensor, success: Tensor) -> Tensor:
    return torch.where(success, (points - images).flatten(1).norm(dim=1), torch.inf)
