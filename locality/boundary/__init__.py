"""The nearest point across the decision boundary: `find_boundary` and the table of searches.

SEARCHES is a plain dictionary of functions `(context, **options) → candidates`. Any other search can be added:

>>> list(SEARCHES)
['fast', 'thorough', 'paper', 'autopgd', 'rays']
>>> SEARCHES["white"] = lambda context: torch.ones_like(context.images)
>>> brightness = lambda images: torch.stack([0.5 - images.mean((1, 2, 3)), images.mean((1, 2, 3)) - 0.5], dim=1)
>>> edge = find_boundary(brightness, torch.full((1, 1, 2, 2), 0.25), search="white")
>>> round(edge.distance.item(), 3)  # bisected: four pixels, each 0.25 brighter
0.5
>>> del SEARCHES["white"]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from locality.boundary.autopgd import autopgd_search
from locality.boundary.bisect import bisect
from locality.boundary.fast import fast_search
from locality.boundary.pgd_cw import paper_search
from locality.boundary.rays import rays_search
from locality.boundary.search import Search as Search
from locality.boundary.search import SearchContext as SearchContext
from locality.boundary.search import check_limits, check_options, check_targeted, resolve_search, search_name, uses_gradients
from locality.boundary.tangent import LOW_OPTIMALITY, cosine_to_normal
from locality.boundary.thorough import thorough_search
from locality.boundary.towards import OTHERS, TO, towards, two_classes
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, check_images, check_labels, check_target
from locality.model_calls.randomness import image_seeds
from locality.model_calls.search_logits import UNDEFINED_GRADIENTS, logit_scales, search_logits
from locality.model_calls.targets import Target, class_indices
from locality.perturbation import length, margin
from locality.progress import Progress, no_progress
from locality.types import Boundary, Norm

# Every search by name; any Foolbox minimum-norm attack is `foolbox:NAME`.
SEARCHES: dict[str, Search] = {
    "fast": fast_search,
    "thorough": thorough_search,
    "paper": paper_search,
    "autopgd": autopgd_search,
    "rays": rays_search,
}
# Some models round so differently from batch to batch that a bisected point turns out to lie on the near side. Such a point
# is moved back towards the candidate by these shares of the remaining distance, one after the other.
CORRECTION_SHARES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
BLOCK_SIZE = 256  # images searched together: enough to fill any device, few enough for the searches' own memory


def find_boundary(
    model: Model | Calls,
    images: Tensor,
    labels: Tensor | None = None,
    search: str | Search = "fast",
    norm: Norm = "l2",
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
    progress: Progress | None = None,
    to: Target = None,
    **options: Any,
) -> Boundary:
    """The nearest found points with another prediction, each bisected onto the boundary and verified by a forward pass.

    The class left is the predicted one. Where `labels` is given and differs from the prediction, the image is already
    across: distance 0. Points stay within `bounds` (None: anywhere). `search` is a name in SEARCHES, `foolbox:NAME`, or a
    function like those; `options` go to it. `progress(done, total)` is called as images are finished.
    `to` is one class or one per image: only points with that prediction count, and an image with it has distance 0.
    In ℓ∞ steps follow signs, and rounding can flip the sign of a pixel with a tiny gradient: for a few images of robust
    models the distance depends on the batch size, by at most 1 % in our measurements. In ℓ2 it does not.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
    >>> edge = find_boundary(model, torch.tensor([0.8, 0.2, 0.5, 0.5]).view(1, 1, 2, 2))
    >>> round(edge.distance.item(), 3), edge.crossed_to.item()  # |0.8 − 0.2|/√2
    (0.424, 1)
    >>> model = torch.nn.Flatten()
    >>> edge = find_boundary(model, torch.tensor([0.8, 0.3, 0.5]).view(1, 1, 1, 3), to=1)
    >>> edge.points.flatten()  # the first two are equal; without `to` it would be the first and the third
    tensor([0.5500, 0.5500, 0.5000])
    """
    check_images(images, bounds)
    run = resolve_search(search, SEARCHES)
    check_limits(run, search_name(search), norm, bounds, SEARCHES)
    check_options(run, search_name(search), options)
    if labels is not None:
        if to is not None:
            raise ArgumentError("labels", "left out with `to`", "both", "the class left is then the predicted one")
        labels = check_labels(labels, len(images)).to(images.device)
    wanted = class_indices(to, images, "to")
    if wanted is not None:
        check_targeted(run, search_name(search), SEARCHES)
    report = no_progress if progress is None else progress
    blocks = []
    with open_model(model, images, chunk, bounds) as calls:
        gradients, forwards = calls.gradients, calls.forwards
        for start in range(0, len(images), BLOCK_SIZE):
            pixels = images[start : start + BLOCK_SIZE].detach().to(torch.float32, copy=True)

            def report_block(done: int, total: int | None, start: int = start) -> None:
                report(start + done, len(images))

            logits = calls.logits(pixels)
            predictions = logits.argmax(dim=1)
            leaving = predictions if labels is None else labels[start : start + BLOCK_SIZE]
            check_target(leaving, logits.shape[1], "labels")
            context = SearchContext(calls, pixels, leaving, norm, image_seeds(pixels, seed), report_block)
            if wanted is None:
                blocks.append(_search_by_scale(context, logits, run, options))
            else:
                blocks.append(_search_towards(context, logits, wanted[start : start + BLOCK_SIZE], run, options))
            report_block(len(pixels), len(images))
        points, distance, found, left, crossed_to, optimality = (torch.cat(column) for column in zip(*blocks, strict=True))
        spent = calls.gradients - gradients, calls.forwards - forwards
        edge = Boundary(points, distance, found, left, crossed_to, optimality, *spent)
        if uses_gradients(run):
            _warn_of_poor_points(calls, edge)
    return edge


def _search_towards(
    context: SearchContext, logits: Tensor, to: Tensor, run: Search, options: dict[str, Any]
) -> tuple[Tensor, ...]:
    """`_search_by_scale` for each group of images with the same class in `to`."""
    check_target(to, logits.shape[1], "to")
    found: list[tuple[Tensor, ...]] = []
    order: list[int] = []
    for wanted in to.unique().tolist():
        rows = (to == wanted).nonzero()[:, 0].tolist()

        def report(done: int, total: int | None, before: int = len(order)) -> None:
            context.progress(before + done, len(logits))

        group = replace(context.rows(rows, report), labels=torch.full_like(context.labels[rows], OTHERS))
        with towards(context.calls, wanted):
            points, distance, reached, _, crossed_to, optimality = _search_by_scale(
                group, two_classes(logits[rows], wanted), run, options
            )
        crossed_to = torch.where(crossed_to == TO, wanted, -1)
        found.append((points, distance, reached, context.labels[rows], crossed_to, optimality))
        order += rows
    return _in_order(found, order)


def _search_by_scale(context: SearchContext, logits: Tensor, run: Search, options: dict[str, Any]) -> tuple[Tensor, ...]:
    """`_search_block` for each group of images whose logits are rescaled alike: almost always one, and as they are."""
    scales = logit_scales(logits)
    found: list[tuple[Tensor, ...]] = []
    order: list[int] = []
    for scale in dict.fromkeys(scales):
        rows = [row for row, other in enumerate(scales) if other == scale]

        def report(done: int, total: int | None, before: int = len(order)) -> None:
            context.progress(before + done, len(logits))

        group = context if len(rows) == len(scales) else context.rows(rows, report)
        with search_logits(context.calls, group.images, logits[rows], scale):
            found.append(_search_block(group, scale.of(logits[rows]), run, options))
        order += rows
    return _in_order(found, order)


def _in_order(found: list[tuple[Tensor, ...]], order: list[int]) -> tuple[Tensor, ...]:
    """The columns of several groups of rows as one; `order` lists the row that each entry belongs to."""
    back = torch.tensor(order, device=found[0][0].device).argsort()
    return tuple(torch.cat(column)[back] for column in zip(*found, strict=True))


def _search_block(context: SearchContext, logits: Tensor, run: Search, options: dict[str, Any]) -> tuple[Tensor, ...]:
    """The fields of Boundary for one block of images; `logits` are those of the images."""
    calls, images, labels = context.calls, context.images, context.labels
    points, candidates = images.clone(), images.clone()
    inside = labels == logits.argmax(dim=1)
    if inside.any():
        searched = context.rows(torch.nonzero(inside)[:, 0].tolist())
        candidates[inside] = run(searched, **options).clamp(*calls.limits)
    if not uses_gradients(run):
        return _as_found(context, candidates, inside)
    if inside.any():
        points[inside] = bisect(calls, images[inside], candidates[inside], labels[inside], image_logits=logits[inside])
    # The class reached and the boundary's normal come with one gradient; `found` is decided by these logits.
    reached, normal = calls.gradient(points, margin, labels)
    bisected = (points != candidates).flatten(1).any(dim=1)
    for share in CORRECTION_SHARES:
        missed = bisected & (margin(reached, labels) >= 0)
        if not missed.any():
            break
        points[missed] += share * (candidates[missed] - points[missed])
        reached[missed], normal[missed] = calls.gradient(points[missed], margin, labels[missed])
    # A model that changes its answer for the image itself has not been taken across.
    found = (margin(reached, labels) < 0) & (~inside | (points != images).flatten(1).any(dim=1))
    crossed_to = torch.where(found, reached.scatter(1, labels[:, None], -torch.inf).argmax(dim=1), -1)
    if bool((normal.flatten(1).abs().amax(dim=1) == 0)[~found].any()) and not calls.warned(UNDEFINED_GRADIENTS):
        calls.warn("`model` has gradients of exactly 0: its logits do not change around these images, no boundary was found")
    offset = points - images
    distance = torch.where(found, length(offset, context.norm), torch.inf)
    optimality = torch.where(found, cosine_to_normal(offset, normal, context.norm), torch.nan)
    return points, distance, found, labels, crossed_to, optimality


def _as_found(context: SearchContext, points: Tensor, inside: Tensor) -> tuple[Tensor, ...]:
    """The fields of Boundary from predicted classes alone; `inside` are the images that were searched."""
    images, labels = context.images, context.labels
    reached = context.calls.logits(points).argmax(dim=1)
    found = (reached != labels) & (~inside | (points != images).flatten(1).any(dim=1))
    distance = torch.where(found, length(points - images, context.norm), torch.inf)
    optimality = torch.full_like(distance, torch.nan)
    return points, distance, found, labels, torch.where(found, reached, -1), optimality


def _warn_of_poor_points(calls: Calls, edge: Boundary) -> None:
    """Warn of points that were found, but not by following gradients: they may be far from the nearest."""
    count, moved = len(edge.found), edge.found & (edge.distance > 0)
    flat = int((moved & edge.optimality.isnan()).sum())  # a normal of length 0 has no angle
    if flat and not calls.warned(UNDEFINED_GRADIENTS):
        calls.warn(
            f"`model` has gradients of exactly 0 at the boundary points of {flat} of {count} images: their distances come "
            "from a search without gradients (does the model round, or are its logits saturated?)"
        )
    poor = int((moved & (edge.optimality < LOW_OPTIMALITY)).sum())
    if poor:
        calls.warn(
            f"the boundary points of {poor} of {count} images are probably not the nearest (`optimality` < "
            f"{LOW_OPTIMALITY:g}): try search='thorough' and check for masked gradients"
        )
