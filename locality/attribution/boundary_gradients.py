"""Attributions from the nearest point across the decision boundary: BSM and BIG (Wang et al. 2022)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from locality.attribution.class_gradient import ClassGradient, class_gradient, warn_of_zero_maps
from locality.attribution.integrated_gradients import Path, integrate, quadrature, uses_end
from locality.attribution.integrated_gradients import Points as PathPoints
from locality.boundary import Search, find_boundary
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model, warn_caller
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices
from locality.types import Boundary, PathMaps

OnMissing = Literal["nan", "last"]
SearchName = str | Search  # a name in locality.boundary.SEARCHES, or a search function
Points = Boundary | Tensor  # the result of find_boundary, or N×C×H×W points, all of which count as found


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
    """The given boundary points, or those that the search finds; then a warning says how many maps are undefined."""
    if boundary is not None:
        return boundary
    edge = find_boundary(model, images, search=search, seed=seed, bounds=bounds, chunk=chunk, **options)
    missing = int((~edge.found).sum())
    if missing and on_missing == "nan":
        warn_caller(
            f"no boundary was found for {missing} of {len(images)} images: their maps are undefined (nan); "
            "on_missing='last' uses the search's last point instead"
        )
    return edge


def defined_rows(boundary: Points, images: Tensor, on_missing: OnMissing) -> tuple[Tensor, Tensor]:
    """Indices of the images with a boundary point, and the points; "last" uses the last iterate where none was found."""
    if on_missing not in ("nan", "last"):
        raise ArgumentError("on_missing", "'nan' (undefined) or 'last' (the last iterate)", on_missing)
    if not isinstance(boundary, Boundary | Tensor):
        raise TypeError(
            f"`boundary` must be the Boundary of find_boundary or a tensor of points, got {type(boundary).__name__}"
        )
    points = boundary if isinstance(boundary, Tensor) else boundary.points
    if points.shape != images.shape:
        expected = f"one point for each image, of shape {tuple(images.shape)}"
        raise ArgumentError("boundary", expected, tuple(points.shape), "pass the result of find_boundary for these images")
    chosen = torch.ones(len(points), dtype=torch.bool) if isinstance(boundary, Tensor) else boundary.found
    if on_missing == "last":
        chosen = torch.ones_like(chosen)
    rows = chosen.to(images.device).nonzero()[:, 0]
    chosen_points = points.detach().to(images)[rows]
    if not chosen_points.isfinite().all():
        raise ArgumentError("boundary", "finite", "nan or inf")
    return rows, chosen_points


def spread(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """The values of the chosen images in a batch of `count`; `nan`, undefined, elsewhere."""
    spread_values = torch.full((count, *values.shape[1:]), torch.nan, dtype=values.dtype, device=values.device)
    spread_values[rows] = values
    return spread_values


def boundary_start(calls: Calls, points: Tensor, target: Tensor, with_gradient: bool = True) -> ClassGradient:
    """The gradient at the boundary points: BSM, and where BIG's path begins."""
    if len(points) == 0:
        return ClassGradient(target, torch.zeros(0, device=points.device), torch.zeros_like(points))
    start = class_gradient(calls, points, target, with_gradient)
    if start.gradient is not None:
        warn_of_zero_maps(calls, start.gradient, "the gradient at the boundary point")
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
            chosen = class_gradient(calls, pixels, None, with_gradient=False).target
        gradient = boundary_start(calls, points, chosen[rows]).gradient
        assert gradient is not None
        return spread(gradient, rows, len(pixels))


def boundary_path(
    calls: Calls,
    images: Tensor,
    rows: Tensor,
    points: Tensor,
    start: ClassGradient,
    at_image: ClassGradient,
    path: Path,
) -> PathMaps:
    """BIG's path for the images with a boundary point; `nan` for the others."""
    if len(rows) == 0:
        return PathMaps(*(spread(empty[rows], rows, len(images)) for empty in (images, images, at_image.logit)))
    defined = integrate(calls, images[rows], points, start, at_image.rows(rows), path)
    return PathMaps(*(spread(part, rows, len(images)) for part in (defined.maps, defined.integral, defined.delta)))


def boundary_integrated_gradients(
    model: Model | Calls,
    images: Tensor,
    boundary: Points,
    target: Target = None,
    points: PathPoints = 20,
    rule: str = "trapezoid",
    *,
    on_missing: OnMissing = "nan",
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """BIG = (x − x′) ⊙ ∫₀¹ ∂f_y(x′ + t(x − x′)) dt: Integrated Gradients whose baseline is the boundary point.

    Maps, integral and delta are `nan` where no boundary was found, unless `on_missing="last"` uses the last iterate.

    >>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
    >>> boundary_integrated_gradients(model, images, find_boundary(model, images)).maps.flatten()
    tensor([0.2000, -0.0000])
    """
    path = quadrature(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        rows, start_points = defined_rows(boundary, pixels, on_missing)
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), uses_end(path, 1.0))
        start = boundary_start(calls, start_points, at_image.target[rows], uses_end(path, 0.0))
        return boundary_path(calls, pixels, rows, start_points, start, at_image, path)
