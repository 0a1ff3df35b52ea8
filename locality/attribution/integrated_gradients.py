"""Integrated Gradients: the mean gradient on the straight line from a baseline to the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.class_gradient import ClassGradient, class_gradient, warn_of_zero_maps
from locality.attribution.gradient_sum import gradient_sum
from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices
from locality.perturbation import per_image
from locality.types import PathMaps

Quadrature = tuple[Tensor, Tensor]  # positions on the path, from 0 (baseline) to 1 (image), and their weights


@dataclass(frozen=True)
class AutoPoints:
    """As many points of the trapezoid rule as each image needs: doubled until the gap is small, reusing all gradients.

    An image is finished when its gap is at most `tolerance` · |f(x) − f(b)|, or when it has `most` intervals.
    """

    tolerance: float = 0.05
    first: int = 16  # intervals; there is one point more
    most: int = 512


Path = Quadrature | AutoPoints
Points = int | Literal["auto"] | AutoPoints


def trapezoid(points: int) -> Quadrature:
    """Equal steps including both ends, which have half the weight. The weights sum to 1 (Captum's to (n − 1)/n)."""
    if points < 2:
        raise ArgumentError("points", "at least 2 for the trapezoid rule", points, "it uses both ends of the path")
    weights = torch.full((points,), 1 / (points - 1), dtype=torch.float64)
    weights[[0, -1]] /= 2
    return torch.linspace(0, 1, points, dtype=torch.float64), weights


def gausslegendre(points: int) -> Quadrature:
    """Gauss-Legendre nodes and weights, mapped from [−1, 1] to [0, 1]; the ends are not among them."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)


def riemann(shift: float) -> Callable[[int], Quadrature]:
    """Equal weights at (j + shift)/n."""

    def rule(points: int) -> Quadrature:
        positions = (torch.arange(points, dtype=torch.float64) + shift) / points
        return positions, torch.full((points,), 1 / points, dtype=torch.float64)

    return rule


RULES: dict[str, Callable[[int], Quadrature]] = {
    "trapezoid": trapezoid,
    "riemann_trapezoid": trapezoid,  # Captum's name; equals Captum's × n/(n − 1)
    "gausslegendre": gausslegendre,
    "riemann_left": riemann(0.0),
    "riemann_right": riemann(1.0),
    "riemann_middle": riemann(0.5),
}


def quadrature(rule: str, points: Points) -> Path:
    """Positions on the path and their weights, which sum to 1; or how to choose them, for "auto"."""
    if rule not in RULES:
        raise unknown_choice("rule", rule, RULES)
    if points == "auto" or isinstance(points, AutoPoints):
        if RULES[rule] is not trapezoid:
            raise ArgumentError("rule", "the trapezoid rule where `points` is 'auto'", rule, "its points are nested")
        return AutoPoints() if points == "auto" else points
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise ArgumentError("points", "a whole number of points on the path, or 'auto'", points)
    return RULES[rule](points)


def uses_end(path: Path, end: float) -> bool:
    """Whether the rule needs the gradient at this end of the path, 0 or 1."""
    return isinstance(path, AutoPoints) or bool((path[0] == end).any())


def integrate(
    calls: Calls, images: Tensor, baselines: Tensor, at_baseline: ClassGradient, at_image: ClassGradient, path: Path
) -> PathMaps:
    """(x − b) ⊙ Σ_j w_j ∂f_y(b + t_j(x − b)), given the gradients at the two ends."""
    if isinstance(path, AutoPoints):
        return integrate_until_complete(calls, images, baselines, at_baseline, at_image, path)
    positions, weights = path
    offset = images - baselines
    inner = (positions > 0) & (positions < 1)
    steps = per_image(positions[inner].to(images))
    integral = gradient_sum(
        calls, images, at_image.target, weights[inner], lambda image, j: baselines[image] + steps[j] * offset[image]
    )
    for end, known in ((0.0, at_baseline), (1.0, at_image)):
        if uses_end(path, end):
            assert known.gradient is not None
            integral += float(weights[positions == end].sum()) * known.gradient
    maps = offset * integral
    return PathMaps(maps, integral, maps.flatten(1).sum(1) - (at_image.logit - at_baseline.logit))


def integrate_until_complete(
    calls: Calls, images: Tensor, baselines: Tensor, at_baseline: ClassGradient, at_image: ClassGradient, auto: AutoPoints
) -> PathMaps:
    """The trapezoid rule with `auto.first` intervals, halved for the images whose gap is too large."""
    assert at_baseline.gradient is not None
    assert at_image.gradient is not None
    offset = images - baselines
    change = at_image.logit - at_baseline.logit
    rounding = 1e-6 * torch.maximum(at_image.logit.abs(), at_baseline.logit.abs())
    total = (at_baseline.gradient + at_image.gradient) / 2  # and the gradients between, each once
    intervals = torch.full((len(images),), auto.first, device=images.device)
    steps = torch.arange(1, auto.first) / auto.first
    unfinished = torch.arange(len(images), device=images.device)
    while len(unfinished):
        total[unfinished] += _gradients_between(
            calls, images[unfinished], at_image.target[unfinished], baselines[unfinished], offset[unfinished], steps
        )
        delta = (offset * total).flatten(1).sum(1) / intervals - change
        gap_left = delta.abs() > auto.tolerance * change.abs() + rounding
        unfinished = (gap_left & (intervals < auto.most)).nonzero()[:, 0]
        # All unfinished images have been halved equally often. The next points are the middles.
        halves = auto.first if not len(unfinished) else int(intervals[unfinished[0]])
        steps = (torch.arange(halves) + 0.5) / halves
        intervals[unfinished] *= 2
    integral = total / per_image(intervals.to(images))
    maps = offset * integral
    return PathMaps(maps, integral, maps.flatten(1).sum(1) - change)


def _gradients_between(
    calls: Calls, images: Tensor, target: Tensor, baselines: Tensor, offset: Tensor, steps: Tensor
) -> Tensor:
    """N×C×H×W: the sum of the gradients at the steps of the path."""
    positions = per_image(steps.to(images))
    return gradient_sum(
        calls, images, target, torch.ones(len(steps)), lambda image, j: baselines[image] + positions[j] * offset[image]
    )


def relative_gap(path_maps: PathMaps) -> Tensor:
    """N: the completeness gap relative to |f(x) − f(b)|; `nan` where that is 0 or the map is undefined.

    >>> maps = torch.tensor([[[[1.0, 2.0]]]])
    >>> relative_gap(PathMaps(maps, maps, torch.tensor([0.6]))).tolist()  # 3 instead of 2.4
    [0.25]
    """
    change = (path_maps.maps.to(path_maps.delta.dtype).flatten(1).sum(1) - path_maps.delta).abs()
    return torch.where(change > 0, path_maps.gap / change, torch.nan)


def integrated_gradients(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    baseline: Baseline = "black",
    points: Points = 20,
    rule: str = "trapezoid",
    *,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """IG = (x − b) ⊙ ∫₀¹ ∂f_y(b + t(x − b)) dt (Sundararajan et al. 2017); `gap` is |ΣIG − (f_y(x) − f_y(b))|.

    The logits at the ends come with the gradients there, so the gap is free with the trapezoid rule and costs one or two
    forward passes with rules that do not use both ends. `points="auto"` starts with 17 points and doubles their number,
    reusing all gradients, for each image whose gap is above 5 % of |f_y(x) − f_y(b)|, up to 513 points; `AutoPoints` has
    other limits.

    >>> import torch
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> integrated_gradients(squares, torch.tensor([[[[0.5, 1.0]]]]), target=1).maps.flatten().tolist()  # all of x²
    [0.0, 1.0]
    """
    path = quadrature(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        baselines = baseline_images(baseline, pixels, bounds)
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), uses_end(path, 1.0))
        at_baseline = class_gradient(calls, baselines, at_image.target, uses_end(path, 0.0))
        path_maps = integrate(calls, pixels, baselines, at_baseline, at_image, path)
        warn_of_zero_maps(calls, path_maps.integral, "the mean gradient of Integrated Gradients")
        return path_maps
