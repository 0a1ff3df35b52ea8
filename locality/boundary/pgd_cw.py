"""The thesis' boundary search: ℓ2 PGD at growing epsilons, then ℓ2 CW, both through Foolbox; the closer success wins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.boundary.search import SearchContext, limited_to
from locality.errors import ArgumentError
from locality.model_calls import Calls
from locality.model_calls.checks import UNIT
from locality.model_calls.third_party import FoolboxBridge, foolbox_model, load_foolbox
from locality.perturbation import margin, per_image
from locality.progress import Progress, no_progress

EPSILONS = (36 / 255, 64 / 255, 0.3, 0.5, 0.7, 0.9, 1.1)
STEPS = 100
# Foolbox multiplies this by epsilon: steps of 2ε/100. Passing 2ε/100 itself is a known fault of published code.
RELATIVE_STEP_SIZE = 2 / 100
CW_STEP_SIZE = 1e-2
CW_EPSILON = 1.0
# Not stated in the thesis, our choice: no random start, no early abort (it depends on the batch's loss), and for CW these.
CW_BINARY_SEARCHES = 9
CW_INITIAL_CONSTANT = 1e-3


@dataclass(frozen=True, eq=False)
class PaperPieces:
    """The results of PGD and of CW; points are those of the attack, not yet on the boundary."""

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


@limited_to(norms=("l2",), bounds=UNIT)
def paper_search(context: SearchContext, *, epsilons: Sequence[float] = EPSILONS) -> Tensor:
    """The closer of PGD's and CW's point (thesis, chapter 3; settings in `paper_pieces`); nothing in it is random."""
    pieces = paper_pieces(context.calls, context.images, context.labels, context.progress, epsilons)
    beyond = int((pieces.beyond & (pieces.cw_distance < pieces.pgd_distance)).sum())
    if beyond:
        context.calls.warn(
            f"search='paper': the points of {beyond} of {len(context.images)} images are CW's and farther away than the "
            f"paper's ε = {CW_EPSILON:.1f} for it; PGD with larger `epsilons` may find closer ones"
        )
    return pieces.points


def paper_pieces(
    calls: Calls,
    images: Tensor,
    labels: Tensor,
    progress: Progress = no_progress,
    epsilons: Sequence[float] = EPSILONS,
) -> PaperPieces:
    """ℓ2 PGD, 100 steps of 2ε/100 at each ε until the first success; then ℓ2 CW, 9 × 100 steps of 1e-2, unclipped."""
    check_epsilons(epsilons)
    images = images.detach().clamp(0, 1)  # Foolbox requires exact bounds, `check_images` allows float noise.
    stages = len(epsilons) + 1  # CW is the last; it runs on every image, so no image is finished before

    pgd_points = images.clone()
    pgd_epsilon = torch.full((len(images),), torch.nan, device=images.device)
    active = torch.arange(len(images), device=images.device)
    for number, epsilon in enumerate(epsilons):
        pgd_points[active] = _pgd(calls, images[active], labels[active], epsilon)
        across = margin(calls.logits(pgd_points[active]), labels[active]) < 0
        pgd_epsilon[active[across]] = epsilon
        active = active[~across]
        progress(len(images) * (number + 1) // stages, len(images))
        if len(active) == 0:
            break
    pgd_success = ~pgd_epsilon.isnan()

    cw_points, cw_success = _carlini_wagner(calls, images, labels, progress, stages)
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


def check_epsilons(epsilons: Sequence[float]) -> None:
    """Raise unless the epsilons are positive and increase."""
    values = list(epsilons)
    if not values or values[0] <= 0 or any(later <= earlier for earlier, later in itertools.pairwise(values)):
        raise ArgumentError("epsilons", "positive and increasing", values, "each image stops at its first success")


def _pgd(calls: Calls, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    attack = load_foolbox().attacks.L2ProjectedGradientDescentAttack(
        rel_stepsize=RELATIVE_STEP_SIZE, steps=STEPS, random_start=False
    )

    def part(chunk: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        return (attack.run(foolbox_model(FoolboxBridge(calls), chunk.device), chunk, classes, epsilon=epsilon).detach(),)

    return calls.in_chunks(part, images, labels)[0]


def _carlini_wagner(calls: Calls, images: Tensor, labels: Tensor, progress: Progress, stages: int) -> tuple[Tensor, Tensor]:
    """CW's points, as Foolbox returns them with `epsilons=None`, and whether they are across."""
    attack = load_foolbox().attacks.L2CarliniWagnerAttack(
        binary_search_steps=CW_BINARY_SEARCHES,
        steps=STEPS,
        stepsize=CW_STEP_SIZE,
        initial_const=CW_INITIAL_CONSTANT,
        abort_early=False,
    )
    done = 0

    def part(chunk: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        nonlocal done
        points = attack.run(foolbox_model(FoolboxBridge(calls), chunk.device), chunk, classes).detach()
        done += len(chunk)
        progress((len(images) * (stages - 1) + done) // stages, len(images))
        return (points,)

    points = calls.in_chunks(part, images, labels)[0]
    # Foolbox returns a black image where CW fails, and black is often another class: a failure would count as a success.
    black = points.flatten(1).eq(0).all(dim=1)
    points = torch.where(per_image(black), images, points)
    return points, margin(calls.logits(points), labels) < 0


def _distance(images: Tensor, points: Tensor, success: Tensor) -> Tensor:
    return torch.where(success, (points - images).flatten(1).norm(dim=1), torch.inf)
