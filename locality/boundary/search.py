"""What a boundary search is: its arguments, its limits, and how a search and its options are looked up and checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from torch import Tensor

from locality.errors import ArgumentError, did_you_mean, unknown_choice
from locality.model_calls import Calls
from locality.model_calls.checks import Bounds
from locality.progress import Progress, no_progress
from locality.types import NORMS, Norm

FOOLBOX = "foolbox:"  # before the name of one of Foolbox's minimum-norm attacks
Decorated = TypeVar("Decorated", bound=Callable[..., Tensor])


@dataclass(frozen=True, eq=False)
class SearchContext:
    """Everything a search gets besides its own options. Points must lie within `calls.limits`."""

    calls: Calls
    images: Tensor  # N×C×H×W float32
    labels: Tensor  # N int64, the classes to leave
    norm: Norm
    seeds: list[int]  # one per image, for any randomness
    progress: Progress = no_progress

    def rows(self, chosen: list[int], progress: Progress | None = None) -> SearchContext:
        """The context of some of the images, with another `progress` unless None."""
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            seeds=[self.seeds[row] for row in chosen],
            progress=self.progress if progress is None else progress,
        )


class Search(Protocol):
    """A search returns one candidate per image: a point across the boundary, or its last iterate where it found none.

    Candidates need not lie on the boundary: `find_boundary` checks and bisects them.
    """

    # `*arguments` only tells type checkers that any options are allowed.
    def __call__(self, context: SearchContext, /, *arguments: Any, **options: Any) -> Tensor: ...


def limited_to(
    norms: Sequence[Norm] = tuple(NORMS), bounds: Bounds = None, gradients: bool = True, targeted: bool = True
) -> Callable[[Decorated], Decorated]:
    """Declare which norms and which range of pixels (None: any) a search supports; undeclared, it supports all.

    `gradients=False` declares a search by predicted classes alone: none is computed for `optimality` either, and its points,
    which it has bisected itself, stay as they are. `targeted=False` declares that it cannot search for a given class.
    """

    def declare(search: Decorated) -> Decorated:
        vars(search).update(norms=tuple(norms), bounds=bounds, gradients=gradients, targeted=targeted)
        return search

    return declare


def supported_norms(search: Search) -> tuple[Norm, ...]:
    """The norms that the search supports."""
    norms: tuple[Norm, ...] = getattr(search, "norms", tuple(NORMS))
    return norms


def supported_bounds(search: Search) -> Bounds:
    """The only range of pixels that the search supports; None if it supports any."""
    bounds: Bounds = getattr(search, "bounds", None)
    return bounds


def uses_gradients(search: Search) -> bool:
    """Whether the search declares nothing else."""
    declared: bool = getattr(search, "gradients", True)
    return declared


def check_targeted(search: Search, name: str, searches: Mapping[str, Search]) -> None:
    """Raise if the search cannot look for a given class; the error lists those in `searches` that can."""
    if not getattr(search, "targeted", True):
        others = [other for other, candidate in searches.items() if getattr(candidate, "targeted", True)]
        raise ArgumentError("to", f"left out for search={name!r}", "a class", f"supported by {', '.join(others)}")


def resolve_search(search: str | Search, searches: Mapping[str, Search]) -> Search:
    """The search behind a name in `searches` or `foolbox:NAME`; a function is returned as it is.

    >>> resolve_search("fats", {"fast": lambda context: context.images})
    Traceback (most recent call last):
    locality.errors.ArgumentError: `search` must be one of fast or foolbox:NAME, got 'fats': did you mean 'fast'?
    """
    if not isinstance(search, str):
        if callable(search):
            return search
        raise TypeError(f"`search` must be one of {', '.join(searches)}, {FOOLBOX}NAME or a function, got {search!r}")
    if search.startswith(FOOLBOX):
        from locality.boundary.foolbox_attacks import foolbox_search  # here, because that file imports this one

        return foolbox_search(search)
    if search not in searches:
        raise unknown_choice("search", search, searches, also=f"{FOOLBOX}NAME")
    return searches[search]


def check_limits(search: Search, name: str, norm: Norm, bounds: Bounds, searches: Mapping[str, Search]) -> None:
    """Raise if the search does not support the norm or the bounds; the error lists those in `searches` that do."""
    if norm not in NORMS:
        raise unknown_choice("norm", norm, NORMS)
    norms, only = supported_norms(search), supported_bounds(search)
    if norm not in norms:
        others = [other for other, candidate in searches.items() if norm in supported_norms(candidate)]
        expected = f"{' or '.join(map(repr, norms))} for search={name!r}"
        raise ArgumentError("norm", expected, norm, f"supported by {', '.join(others)}")
    if only is not None and (bounds is None or tuple(bounds) != only):
        others = [other for other, candidate in searches.items() if supported_bounds(candidate) is None]
        expected = f"({only[0]:g}, {only[1]:g}) for search={name!r}"
        raise ArgumentError("bounds", expected, bounds, f"other bounds are supported by {', '.join(others)}")


def search_options(search: Search) -> list[str] | None:
    """Names of the search's own options; None where it accepts any name and checks them itself, as Foolbox's do.

    >>> search_options(lambda context, *, steps=3: context.images)
    ['steps']
    """
    parameters = list(inspect.signature(search).parameters.values())[1:]  # the first is the context
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def check_options(search: Search, name: str, options: Iterable[str]) -> None:
    """Raise a TypeError, as Python does for an unknown argument, if the search has no such option."""
    known = search_options(search)
    for option in options:
        if known is not None and option not in known:
            hint = did_you_mean(option, known)
            raise TypeError(
                f"`{option}` is no option of search={name!r}, which takes {', '.join(known) or 'none'}"
                f"{f': {hint}' if hint else ''}"
            )


def search_name(search: str | Search) -> str:
    """The name of a search, also of one that is a function."""
    return search if isinstance(search, str) else getattr(search, "__name__", type(search).__name__)
