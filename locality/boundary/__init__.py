"""The nearest point across the decision boundary: `find_boundary`, and the searches behind it.

SEARCHES is a plain dictionary; a search of one's own goes in like any entry, and its name is then known everywhere:

>>> list(SEARCHES)
['fast', 'thorough', 'paper', 'autopgd']
>>> SEARCHES["white"] = lambda calls, images, labels, norm, seeds, progress: torch.ones_like(images)
>>> brightness = lambda images: torch.stack([0.5 - images.mean((1, 2, 3)), images.mean((1, 2, 3)) - 0.5], dim=1)
>>> edge = find_boundary(brightness, torch.full((1, 1, 2, 2), 0.25), search="white")
>>> round(edge.distance.item(), 3)  # bisected: four pixels, each 0.25 brighter
0.5
>>> del SEARCHES["white"]
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from locality.boundary.autopgd import autopgd_search
from locality.boundary.bisect import bisect
from locality.boundary.fast import fast_search
from locality.boundary.foolbox_attacks import foolbox_search
from locality.boundary.pgd_cw import paper_search
from locality.boundary.tangent import POOR, cosine_to_normal
from locality.boundary.thorough import thorough_search
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import Bounds, check_images, check_labels, check_target
from locality.model_calls.randomness import image_seeds
from locality.perturbation import length, margin
from locality.progress import Progress
from locality.types import Boundary

Norm = Literal["l2", "linf"]
# Where a model rounds so differently from batch to batch that a bisected point turns out to lie on the near side, it is
# moved back towards the search's own point by these shares of what is left.
SHARES_BACK = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
BLOCK = 256  # images searched together: enough to fill any device, little enough for the searches' own memory


class Search(Protocol):
    """A search gives a candidate for each image: a point across the boundary, or its last iterate where it found none.

    Images are N×C×H×W float32 within [0, 1], labels the classes to leave, `seeds` one number an image for any randomness.
    Candidates need not lie on the boundary: `find_boundary` checks and bisects them.
    """

    def __call__(
        self, calls: Calls, images: Tensor, labels: Tensor, norm: Norm, seeds: list[int], progress: Progress, **options: Any
    ) -> Tensor: ...


# Every search by name; any Foolbox minimum-norm attack is `foolbox:NAME`.
SEARCHES: dict[str, Callable[..., Tensor]] = {
    "fast": fast_search,
    "thorough": thorough_search,
    "paper": paper_search,
    "autopgd": autopgd_search,
}
LIMITLESS = ("fast", "thorough")  # take any norm and any range of pixels
L2_ONLY = ("paper", "autopgd")  # and [0, 1], as Foolbox's; what a search of the caller's own takes is not for us to say


def find_boundary(
    model: Model | Calls,
    images: Tensor,
    labels: Tensor | None = None,
    search: str | Callable[..., Tensor] = "fast",
    norm: Norm = "l2",
    seed: int = 0,
    bounds: Bounds = (0.0, 1.0),
    chunk: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Boundary:
    """The nearest found points with another prediction, each bisected onto the boundary and checked by a forward pass.

    The class left is the predicted one. Where `labels` is given and differs from the prediction, the image is across
    already: distance 0. Points keep within `bounds` (None: anywhere). `search` is a name in SEARCHES, `foolbox:NAME`, or a
    function like those; `options` go to it.
    `progress(done, total)` is called as images are finished.
    In ℓ∞ steps follow signs, and rounding can turn that of a pixel that hardly matters: for a few images of robust models
    the distance differs with the size of the batch, by up to a hundredth where we measured it; in ℓ2 it does not.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
    >>> edge = find_boundary(model, torch.tensor([0.8, 0.2, 0.5, 0.5]).view(1, 1, 2, 2))
    >>> round(edge.distance.item(), 3), edge.crossed_to.item()  # |0.8 − 0.2|/√2
    (0.424, 1)
    """
    check_images(images, bounds)
    run = _search(search, norm, bounds)
    if labels is not None:
        check_labels(labels, len(images))
    pieces = []
    with open_model(model, images, chunk, bounds) as calls:
        gradients, forwards = calls.gradients, calls.forwards
        for start in range(0, len(images), BLOCK):
            block = images[start : start + BLOCK].detach().to(torch.float32, copy=True)
            given = None if labels is None else labels[start : start + BLOCK].to(images.device)

            def report(done: int, total: int | None, start: int = start) -> None:
                if progress is not None:
                    progress(start + done, len(images))

            pieces.append(_block(calls, block, given, run, norm, image_seeds(block, seed), report, options))
            report(len(block), len(images))
        points, distance, found, left, crossed_to, optimality = (torch.cat(column) for column in zip(*pieces, strict=True))
        spent = calls.gradients - gradients, calls.forwards - forwards
        edge = Boundary(points, distance, found, left, crossed_to, optimality, *spent)
        _warn_of_poor_points(calls, edge)
    return edge


def _block(
    calls: Calls,
    images: Tensor,
    labels: Tensor | None,
    run: Callable[..., Tensor],
    norm: Norm,
    seeds: list[int],
    progress: Progress,
    options: dict[str, Any],
) -> tuple[Tensor, ...]:
    """The fields of Boundary for some images."""
    logits = calls.logits(images)
    predicted = logits.argmax(dim=1)
    labels = predicted if labels is None else labels.long()
    check_target(labels, logits.shape[1], "labels")
    points, candidates = images.clone(), images.clone()
    inside = labels == predicted
    if inside.any():
        kept = [seed for seed, wanted in zip(seeds, inside.tolist(), strict=True) if wanted]
        candidates[inside] = run(calls, images[inside], labels[inside], norm, kept, progress, **options).clamp(*calls.limits)
        points[inside] = bisect(calls, images[inside], candidates[inside], labels[inside], image_logits=logits[inside])
    # The class reached and the boundary's normal come with one gradient; what it shows is what counts as found.
    reached, normal = calls.gradient(points, margin, labels)
    bisected = (points != candidates).flatten(1).any(dim=1)
    for share in SHARES_BACK:
        missed = bisected & (margin(reached, labels) >= 0)
        if not missed.any():
            break
        points[missed] += share * (candidates[missed] - points[missed])
        reached[missed], normal[missed] = calls.gradient(points[missed], margin, labels[missed])
    found = margin(reached, labels) < 0
    crossed_to = torch.where(found, reached.scatter(1, labels[:, None], -torch.inf).argmax(dim=1), -1)
    if bool((normal.flatten(1).abs().amax(dim=1) == 0)[~found].any()):
        calls.warn("`model` has gradients of exactly 0: its logits do not change around these images, no boundary was found")
    offset = points - images
    distance = torch.where(found, length(offset, norm), torch.inf)
    optimality = torch.where(found, cosine_to_normal(offset, normal, norm), torch.nan)
    return points, distance, found, labels, crossed_to, optimality


def _warn_of_poor_points(calls: Calls, edge: Boundary) -> None:
    """Warn of points that were found, but not by following gradients: they need not be anywhere near the nearest."""
    count, moved = len(edge.found), edge.found & (edge.distance > 0)
    flat = int((moved & edge.optimality.isnan()).sum())  # the normal has no length, so there is no angle to it
    if flat:
        calls.warn(
            f"`model` has gradients of exactly 0 at the boundary points of {flat} of {count} images: their distances are "
            "those of a blind search (does it round, or are its logits saturated?)"
        )
    poor = int((moved & (edge.optimality < POOR)).sum())
    if poor:
        calls.warn(
            f"the boundary points of {poor} of {count} images are hardly the nearest (`optimality` below {POOR:g}): "
            "try search='thorough', and see whether the model's gradients mean anything"
        )


def check_search(search: object) -> None:
    """Raise unless `search` is a function, a name in SEARCHES or `foolbox:NAME`."""
    if callable(search):
        return
    if not isinstance(search, str):
        raise TypeError(f"`search` must be one of {', '.join(SEARCHES)}, foolbox:NAME or a function, got {search!r}")
    if search in SEARCHES:
        return
    if search.startswith("foolbox:"):
        foolbox_search(search.removeprefix("foolbox:"))
        return
    near = difflib.get_close_matches(search, SEARCHES, n=1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"`search` must be one of {', '.join(SEARCHES)} or foolbox:NAME, got {search!r}{hint}")


def search_options(search: str | Callable[..., Tensor]) -> list[str] | None:
    """What may follow a search's name as `options`; None where only the search itself knows (Foolbox's, one's own).

    >>> search_options("paper")
    ['norm', 'labels', 'progress', 'epsilons']
    """
    if not isinstance(search, str) or search not in (*LIMITLESS, *L2_ONLY):
        return None
    parameters = list(inspect.signature(SEARCHES[search]).parameters.values())[6:]  # after those that every search has
    own = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return ["norm", "labels", "progress", *own]


def _search(search: str | Callable[..., Tensor], norm: Norm, bounds: Bounds) -> Callable[..., Tensor]:
    if norm not in ("l2", "linf"):
        raise ValueError(f"`norm` must be 'l2' or 'linf', got {norm!r}")
    check_search(search)
    if callable(search):
        return search
    by_foolbox = search.startswith("foolbox:")
    if (search in L2_ONLY or by_foolbox) and (bounds is None or tuple(bounds) != (0.0, 1.0)):
        raise ValueError(f"`bounds` other than (0, 1) work with {' and '.join(LIMITLESS)}, got search {search!r}")
    if by_foolbox:
        return foolbox_search(search.removeprefix("foolbox:"))
    if norm == "linf" and search in L2_ONLY:
        raise ValueError(f"`norm` 'linf' works with {' and '.join(LIMITLESS)}, got search {search!r}")
    return SEARCHES[search]
