"""Several methods at once with shared gradients: SM is the end of both paths, BSM the start of BIG's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from locality.attribution.agi import adversarial_gradient_integration
from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.boundary_gradients import (
    OnMissing,
    Points,
    SearchName,
    boundary_for,
    boundary_path,
    boundary_start,
    defined_rows,
    spread,
)
from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.attribution.deep_lift import multiplied_from
from locality.attribution.integrated_gradients import Points as PathPoints
from locality.attribution.integrated_gradients import integrate, quadrature, uses_end
from locality.attribution.smoothgrad import smooth_around, smooth_gradient
from locality.boundary import SEARCHES
from locality.boundary.search import resolve_search, search_name, search_options
from locality.errors import ArgumentError, did_you_mean
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices
from locality.types import PathMaps

Maps = dict[str, PathMaps | Tensor]
AT_BOUNDARY = frozenset({"BSM", "BIG", "BSG", "BDeepLIFT"})  # methods that need boundary points
OWN = AT_BOUNDARY | {"SM", "InputXGradient", "IG", "SmoothGrad", "AGI"}
FIND_BOUNDARY = ("norm", "labels", "progress", "to")  # arguments of find_boundary that are not ours


def attribute_all(
    model: Model | Calls,
    images: Tensor,
    methods: Sequence[str],
    target: Target = None,
    boundary: Points | None = None,
    *,
    baseline: Baseline = "black",
    points: PathPoints = 20,
    rule: str = "trapezoid",
    search: SearchName = "fast",
    on_missing: OnMissing = "nan",
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
    **options: Any,
) -> Maps:
    """Maps of several methods by name, equal to those of single calls: `PathMaps` for IG, BIG and BDeepLIFT, else a tensor.

    `boundary` is the result of `find_boundary` or a tensor of points; None searches. Maps have the dtype of the images.
    With n points, SM + IG + BSM + BIG take 2n − 1 gradients per image instead of 2n + 2, and the boundary is searched once.
    `points="auto"` takes as many as each image needs for completeness (`integrated_gradients`).
    `options` go to the search. Methods of Captum (`captum:NAME`) run with their own defaults.

    >>> import torch
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> maps = attribute_all(squares, torch.tensor([[[[0.5, 1.0]]]]), ["SM", "IG"])
    >>> maps["SM"].flatten().tolist(), maps["IG"].maps.flatten().tolist()
    ([0.0, 2.0], [0.0, 1.0])
    """
    names = names_of(methods)
    at_boundary = bool(AT_BOUNDARY & set(names))
    check_options(options, search, searches=boundary is None and at_boundary)
    others = other_methods(names, model, seed, bounds)
    path = quadrature(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        edge = None
        if at_boundary:
            edge = boundary_for(calls, pixels, boundary, search, seed, bounds, on_missing, chunk, **options)
        on_path = bool({"IG", "BIG"} & set(names)) and uses_end(path, 1.0)
        with_gradient = on_path or bool({"SM", "InputXGradient"} & set(names))
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient)
        maps: Maps = {}
        if at_image.gradient is not None:
            warn_of_zero_maps(calls, at_image.gradient, "the saliency map")
            maps["SM"] = at_image.gradient
            maps["InputXGradient"] = at_image.gradient * pixels
        if "IG" in names:
            baselines = baseline_images(baseline, pixels, bounds)
            at_baseline = class_gradient(calls, baselines, at_image.target, uses_end(path, 0.0))
            maps["IG"] = integrate(calls, pixels, baselines, at_baseline, at_image, path)
        if edge is not None:
            rows, start_points = defined_rows(edge, pixels, on_missing)
            with_gradient = "BSM" in names or ("BIG" in names and uses_end(path, 0.0))
            if with_gradient or "BIG" in names:
                start = boundary_start(calls, start_points, at_image.target[rows], with_gradient)
                if start.gradient is not None:
                    maps["BSM"] = spread(start.gradient, rows, len(pixels))
                if "BIG" in names:
                    maps["BIG"] = boundary_path(calls, pixels, rows, start_points, start, at_image, path)
            if "BSG" in names:
                maps["BSG"] = smooth_around(calls, pixels, rows, start_points, at_image.target, seed=seed)
            if "BDeepLIFT" in names:
                maps["BDeepLIFT"] = multiplied_from(calls, pixels, rows, start_points, at_image.target)
        if "SmoothGrad" in names:
            maps["SmoothGrad"] = smooth_gradient(calls, pixels, at_image.target, seed=seed, bounds=bounds)
        if "AGI" in names:
            maps["AGI"] = adversarial_gradient_integration(calls, pixels, at_image.target, seed=seed, bounds=bounds)
        chosen = at_image.target
    # Outside the block: other methods open the model themselves.
    for name, attribute in others.items():
        maps[name] = attribute(images, target=chosen)
    return {name: _in_dtype(maps[name], images) if name in OWN else maps[name] for name in names}


def _in_dtype(maps: PathMaps | Tensor, images: Tensor) -> PathMaps | Tensor:
    """As the classes return them; `delta` is a number about the map and keeps its precision."""
    if isinstance(maps, PathMaps):
        return PathMaps(maps.maps.to(images.dtype), maps.integral.to(images.dtype), maps.delta)
    return maps.to(images.dtype)


def names_of(methods: Sequence[str]) -> list[str]:
    """The names, each once; raises unless they are a list of names."""
    if isinstance(methods, str):
        raise TypeError(f"`methods` must be a list of names, got {methods!r}: pass [{methods!r}]")
    for name in methods:
        if not isinstance(name, str):
            called = getattr(name, "__name__", type(name).__name__)
            raise TypeError(
                f"`methods` must be a list of names, got {called}: pass a name, or call {called}(model).attribute(images)"
            )
    return list(dict.fromkeys(methods))


def check_options(options: Iterable[str], search: SearchName, searches: bool) -> None:
    """Raise where an argument is neither ours nor the search's: a misspelt one would be ignored.

    A search that accepts any name checks it itself, if it runs (`searches`). Otherwise only names close to ours are errors.
    """
    run = resolve_search(search, SEARCHES)
    ours = [name for name in inspect.signature(attribute_all).parameters if name != "options"]
    own = search_options(run)
    known = [*ours, *FIND_BOUNDARY, *(own or [])]
    for name in options:
        hint = did_you_mean(name, known)
        if name in known or (own is None and (searches or not hint)):
            continue
        also = "" if own is None else f" and, for search={search_name(search)!r}, {', '.join([*FIND_BOUNDARY, *own])}"
        raise TypeError(
            f"`{name}` is no argument of attribute_all, which takes {', '.join(ours)}{also}{f': {hint}' if hint else ''}"
        )


def check_method(name: str) -> None:
    """Raise unless there is a method of this name; Captum is imported only to look for a name that is not ours."""
    if name not in OWN:
        _class_of(name)


def _class_of(name: str) -> Callable[..., Any]:
    from locality.attribution.methods import method  # here, because the table there is made of this file's neighbours

    return method(name)


def other_methods(names: Iterable[str], model: Model | Calls, seed: int, bounds: Bounds) -> dict[str, Callable[..., Tensor]]:
    """The `attribute` functions of the methods that are not ours; unknown names raise here, before any work is done."""
    others: dict[str, Callable[..., Tensor]] = {}
    for name in names:
        if name in OWN:
            continue
        factory = _class_of(name)
        if isinstance(model, Calls):
            raise ArgumentError("methods", "locality's own where `model` is an open Calls", name, "pass the model")
        accepted = inspect.signature(factory).parameters  # other methods may accept neither
        options = {key: value for key, value in {"seed": seed, "bounds": bounds}.items() if key in accepted}
        others[name] = factory(model, **options).attribute
    return others
