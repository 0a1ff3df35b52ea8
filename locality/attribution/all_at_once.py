"""Several methods at once, sharing what they share: SM ends both paths, BSM is where BIG's path starts."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
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
from locality.attribution.integrated_gradients import integrate, path_points, uses_end
from locality.attribution.smoothgrad import smooth_gradient
from locality.boundary import check_search, search_options
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices, evaluation, warn_of_zeros
from locality.types import PathMaps

Found = dict[str, PathMaps | Tensor]
OWN = {"SM", "InputXGradient", "IG", "BSM", "BIG", "SmoothGrad", "AGI"}


def attribute_all(
    model: Model | Calls,
    images: Tensor,
    methods: Sequence[str],
    target: Target = None,
    boundary: Points | None = None,
    *,
    baseline: Baseline = "black",
    points: int = 20,
    rule: str = "trapezoid",
    search: SearchName = "fast",
    on_missing: OnMissing = "nan",
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
    **options: Any,
) -> Found:
    """Maps of several methods by name, the same numbers as one by one: `PathMaps` for IG and BIG, a tensor for the others.

    `boundary` is what `find_boundary` gave, or a tensor of points. Maps have the dtype of the images.
    With n points, SM + IG + BSM + BIG take 2n − 1 gradients an image instead of 2n + 2, and the boundary is searched once.
    `options` go to the search. Names beyond our own (`captum:NAME`) run with their own defaults.

    >>> import torch
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> found = attribute_all(squares, torch.tensor([[[[0.5, 1.0]]]]), ["SM", "IG"])
    >>> found["SM"].flatten().tolist(), found["IG"].maps.flatten().tolist()
    ([0.0, 2.0], [0.0, 1.0])
    """
    wanted = names_of(methods)
    check_options(options, search, runs=boundary is None and bool({"BSM", "BIG"} & set(wanted)))
    others = other_methods(wanted, model, seed, bounds)
    path = path_points(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        bordering = {"BSM", "BIG"} & set(wanted)
        edge = None
        if bordering:
            edge = boundary_for(calls, pixels, boundary, search, seed, bounds, on_missing, chunk, **options)
        gradient = bool({"SM", "InputXGradient"} & set(wanted)) or (
            bool({"IG", "BIG"} & set(wanted)) and uses_end(path, 1.0)
        )
        at_image = evaluation(calls, pixels, class_indices(target, pixels), gradient)
        found: Found = {}
        if at_image.gradient is not None:
            warn_of_zeros(calls, at_image.gradient, "the saliency map")
            found["SM"] = at_image.gradient
            found["InputXGradient"] = at_image.gradient * pixels
        if "IG" in wanted:
            baselines = baseline_images(baseline, pixels, bounds)
            at_baseline = evaluation(calls, baselines, at_image.target, uses_end(path, 0.0))
            found["IG"] = integrate(calls, pixels, baselines, at_baseline, at_image, path)
        if edge is not None:
            rows, places = defined_rows(edge, pixels, on_missing)
            gradient = "BSM" in wanted or uses_end(path, 0.0)
            start = boundary_start(calls, places, at_image.target[rows], gradient)
            if start.gradient is not None:
                found["BSM"] = spread(start.gradient, rows, len(pixels))
            if "BIG" in wanted:
                found["BIG"] = boundary_path(calls, pixels, rows, places, start, at_image, path)
        if "SmoothGrad" in wanted:
            found["SmoothGrad"] = smooth_gradient(calls, pixels, at_image.target, seed=seed, bounds=bounds)
        if "AGI" in wanted:
            found["AGI"] = adversarial_gradient_integration(calls, pixels, at_image.target, seed=seed, bounds=bounds)
        chosen = at_image.target
    # Outside the block: what is not ours opens the model in its own way.
    for name, attribute in others.items():
        found[name] = attribute(images, chosen)
    return {name: _in_dtype(found[name], images) if name in OWN else found[name] for name in wanted}


def _in_dtype(found: PathMaps | Tensor, images: Tensor) -> PathMaps | Tensor:
    """As the classes return them; `delta` is a number about the map and keeps its precision."""
    if isinstance(found, PathMaps):
        return PathMaps(found.maps.to(images.dtype), found.integral.to(images.dtype), found.delta)
    return found.to(images.dtype)


def names_of(methods: Sequence[str]) -> list[str]:
    """The names asked for, each once; an error where they are no list of names."""
    if isinstance(methods, str):
        raise TypeError(f"`methods` must be a list of names, got {methods!r}: pass [{methods!r}]")
    for name in methods:
        if not isinstance(name, str):
            called = getattr(name, "__name__", type(name).__name__)
            raise TypeError(
                f"`methods` must be a list of names, got {called}: pass a name, or call {called}(model).attribute(images)"
            )
    return list(dict.fromkeys(methods))


def check_options(options: dict[str, Any], search: SearchName, runs: bool) -> None:
    """Raise where an argument is neither ours nor the search's; a misspelt one would change nothing and say nothing."""
    check_search(search)
    ours = [name for name in inspect.signature(attribute_all).parameters if name != "options"]
    theirs = search_options(search)
    for name in options:
        near = difflib.get_close_matches(name, [*ours, *(theirs or [])], 1)
        # A search that takes anything judges by itself, where it runs; where it does not, a near miss is meant for us.
        if name in (theirs or []) or (theirs is None and (runs or not near)):
            continue
        also = f" and, for search={search!r}, {', '.join(theirs)}" if theirs else ""
        hint = f": did you mean `{near[0]}`?" if near else ""
        raise TypeError(f"`{name}` is no argument of attribute_all, which takes {', '.join(ours)}{also}{hint}")


def other_methods(
    wanted: Sequence[str], model: Model | Calls, seed: int, bounds: Bounds
) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The methods that are not ours, ready to be asked; unknown names fail here, before any work is done."""
    from locality.attribution import method  # here, because the table there is made of this file's neighbours

    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    for name in wanted:
        factory = method(name)
        if name in OWN:
            continue
        if isinstance(model, Calls):
            raise ValueError(f"`methods` must be locality's own where `model` is a Calls, got {name!r}: pass the model")
        options = {"seed": seed, "bounds": bounds} if name.startswith("captum:") else {}  # a user's own may know neither
        found[name] = factory(model, **options).attribute
    return found
