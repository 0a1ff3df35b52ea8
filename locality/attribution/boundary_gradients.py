"""Attributions from the nearest point across the decision boundary: BSM and BIG (Wang et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from locality.attribution.integrated_gradients import Points as PathPoints
from locality.attribution.integrated_gradients import integrate, path_points, uses_end
from locality.boundary import find_boundary
from locality.model_calls import Calls, Model, open_model, warn_caller
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Evaluation, Target, class_indices, evaluation, warn_of_zeros
from locality.types import Boundary, PathMaps

OnMissing = Literal["nan", "last"]
SearchName = str | Callable[..., Tensor]  # a name in locality.boundary.SEARCHES, or a search of the caller's own
Points = Boundary | Tensor  # what find_boundary gave, or N×C×H×W points from anywhere, all of which count as found


def boundary_for(
    model: Model | Calls,
    images: Tensor,
    boundary: Points | None,
    search: SearchName,
    seed: int,
    bounds: Bounds,
    on_missing: OnMissing = "nan",
    chunk: int | None = None,
    **options: Any,
) -> Points:
    """The boundary points given, or those that the search finds.

    Whoever gives points knows which were found; whoever does not is told how many maps will be undefined.
    """
    if boundary is not None:
        return boundary
    edge = find_boundary(model, images, search=search, seed=seed, bounds=bounds, chunk=chunk, **options)
    missing = int((~edge.found).sum())
    if missing and on_missing == "nan":
        warn_caller(
            f"no boundary was found for {missing} of {len(images)} images: their maps are nan, undefined; "
            "on_missing='last' takes the search's last point instead"
        )
    return edge


def defined_rows(boundary: Points, images: Tensor, on_missing: OnMissing) -> tuple[Tensor, Tensor]:
    """The images with a boundary point, by number, and those points; "last" takes the last iterate where none was found."""
    if on_missing not in ("nan", "last"):
        raise ValueError(f"`on_missing` must be 'nan' (undefined) or 'last' (the last iterate), got {on_missing!r}")
    if not isinstance(boundary, Boundary | Tensor):
        raise TypeError(
            f"`boundary` must be a Boundary, as find_boundary gives it, or a tensor of points, got {type(boundary).__name__}"
        )
    points = boundary if isinstance(boundary, Tensor) else boundary.points
    if points.shape != images.shape:
        raise ValueError(
            f"`boundary` must hold one point for each image, got {tuple(points.shape)} for images of shape "
            f"{tuple(images.shape)}: pass what find_boundary gave for these images"
        )
    chosen = torch.ones(len(points), dtype=torch.bool) if isinstance(boundary, Tensor) else boundary.found
    if on_missing == "last":
        chosen = torch.ones_like(chosen)
    rows = chosen.to(images.device).nonzero()[:, 0]
    places = points.detach().to(images)[rows]
    if not places.isfinite().all():
        raise ValueError("`boundary` must hold finite points, got nan or inf")
    return rows, places


def spread(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The values of the chosen images in a batch of `count`; `nan`, undefined, elsewhere."""
    found = torch.full((count, *values.shape[1:]), torch.nan, dtype=values.dtype, device=values.device)
    found[rows] = values
    return found


def boundary_start(calls: Calls, points: Tensor, target: Tensor, gradient: bool = True) -> Evaluation:
    """What BSM is and BIG's path begins with: the gradient at the boundary points."""
    if len(points) == 0:
        return Evaluation(target, torch.zeros(0, device=points.device), torch.zeros_like(points))
    start = evaluation(calls, points, target, gradient)
    if start.gradient is not None:
        warn_of_zeros(calls, start.gradient, "the gradient at the boundary point")
    return start


def boundary_saliency(
    model: Model | Calls,
    images: Tensor,
    boundary: Points,
    target: Target = None,
    *,
    on_missing: OnMissing = "nan",
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """BSM = ∂f_y(x′)/∂x′ at the boundary point x′, y the class of the image; `nan` where no boundary was found.

    >>> edge = find_boundary(lambda images: images.flatten(1) * 2, torch.tensor([[[[0.8, 0.4]]]]))
    >>> boundary_saliency(lambda images: images.flatten(1) * 2, torch.tensor([[[[0.8, 0.4]]]]), edge).flatten().tolist()
    [2.0, 0.0]
    """
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        rows, points = defined_rows(boundary, pixels, on_missing)
        chosen = class_indices(target, pixels)
        if chosen is None:  # not the class at the point, which lies across
            chosen = evaluation(calls, pixels, None, gradient=False).target
        gradient = boundary_start(calls, points, chosen[rows]).gradient
        assert gradient is not None
        return spread(gradient, rows, len(pixels))


def boundary_path(
    calls: Calls, images: Tensor, rows: Tensor, points: Tensor, start: Evaluation, at_image: Evaluation, path: PathPoints
) -> PathMaps:
    """BIG's path for the images with a boundary point; `nan` for the others."""
    if len(rows) == 0:
        return PathMaps(*(spread(empty[rows], rows, len(images)) for empty in (images, images, at_image.logit)))
    found = integrate(calls, images[rows], points, start, at_image.rows(rows), path)
    return PathMaps(*(spread(part, rows, len(images)) for part in (found.maps, found.integral, found.delta)))


def boundary_integrated_gradients(
    model: Model | Calls,
    images: Tensor,
    boundary: Points,
    target: Target = None,
    points: int = 20,
    rule: str = "trapezoid",
    *,
    on_missing: OnMissing = "nan",
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """BIG = (x − x′) ⊙ ∫₀¹ ∂f_y(x′ + t(x − x′)) dt: Integrated Gradients whose baseline is the boundary point.

    Maps, integral and gap are `nan` where no boundary was found, unless `on_missing="last"` takes the search's last iterate.

    >>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
    >>> boundary_integrated_gradients(model, images, find_boundary(model, images)).maps.flatten()
    tensor([0.2000, -0.0000])
    """
    path = path_points(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        rows, places = defined_rows(boundary, pixels, on_missing)
        at_image = evaluation(calls, pixels, class_indices(target, pixels), uses_end(path, 1.0))
        start = boundary_start(calls, places, at_image.target[rows], uses_end(path, 0.0))
        return boundary_path(calls, pixels, rows, places, start, at_image, path)
