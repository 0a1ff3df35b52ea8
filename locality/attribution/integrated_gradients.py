"""Integrated Gradients: the mean gradient on the straight line from a baseline to the image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.gradient_sum import gradient_sum
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Evaluation, Target, class_indices, evaluation, warn_of_zeros
from locality.types import PathMaps

Points = tuple[Tensor, Tensor]  # where on the path, from 0 (baseline) to 1 (image), and with which weight


def trapezoid(points: int) -> Points:
    """Both ends and equal steps; the ends count half. The weights sum to 1 (Captum's to (n − 1)/n)."""
    if points < 2:
        raise ValueError(f"`points` must be at least 2 for the trapezoid rule, got {points}: it uses both ends of the path")
    weights = torch.full((points,), 1 / (points - 1), dtype=torch.float64)
    weights[[0, -1]] /= 2
    return torch.linspace(0, 1, points, dtype=torch.float64), weights


def gausslegendre(points: int) -> Points:
    """Gauss-Legendre nodes and weights, moved from [−1, 1] to [0, 1]; the ends are not among them."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)


def riemann(shift: float) -> Callable[[int], Points]:
    """Equal weights at (j + shift)/n."""

    def rule(points: int) -> Points:
        places = (torch.arange(points, dtype=torch.float64) + shift) / points
        return places, torch.full((points,), 1 / points, dtype=torch.float64)

    return rule


RULES: dict[str, Callable[[int], Points]] = {
    "trapezoid": trapezoid,
    "riemann_trapezoid": trapezoid,  # Captum's name; equals Captum's × n/(n − 1)
    "gausslegendre": gausslegendre,
    "riemann_left": riemann(0.0),
    "riemann_right": riemann(1.0),
    "riemann_middle": riemann(0.5),
}


def path_points(rule: str, points: int) -> Points:
    """Places and weights of the rule, which sum to 1."""
    if rule not in RULES:
        raise ValueError(f"`rule` must be one of {', '.join(RULES)}, got {rule!r}")
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise ValueError(f"`points` must be a whole number of points on the path, got {points!r}")
    return RULES[rule](points)


def uses_end(path: Points, place: float) -> bool:
    """Whether the rule asks for the gradient at this end of the path."""
    return bool((path[0] == place).any())


def integrate(
    calls: Calls, images: Tensor, baselines: Tensor, at_baseline: Evaluation, at_image: Evaluation, path: Points
) -> PathMaps:
    """(x − b) ⊙ Σ_j w_j ∂f_y(b + t_j(x − b)), given what is known at the two ends."""
    places, weights = path
    offset = images - baselines
    inner = (places > 0) & (places < 1)
    steps = places[inner].to(images).view(-1, 1, 1, 1)
    integral = gradient_sum(
        calls, images, at_image.target, weights[inner], lambda image, j: baselines[image] + steps[j] * offset[image]
    )
    for place, end in ((0.0, at_baseline), (1.0, at_image)):
        if uses_end(path, place):
            assert end.gradient is not None
            integral += float(weights[places == place].sum()) * end.gradient
    maps = offset * integral
    return PathMaps(maps, integral, maps.flatten(1).sum(1) - (at_image.logit - at_baseline.logit))


def integrated_gradients(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    baseline: Baseline = "black",
    points: int = 20,
    rule: str = "trapezoid",
    *,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """IG = (x − b) ⊙ ∫₀¹ ∂f_y(b + t(x − b)) dt (Sundararajan et al. 2017); `gap` is |ΣIG − (f_y(x) − f_y(b))|.

    The ends' logits come with their gradients, so the gap costs nothing with the trapezoid rule and one or two forward
    passes with rules that leave an end out.

    >>> import torch
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> found = integrated_gradients(squares, torch.tensor([[[[0.5, 1.0]]]]), target=1)
    >>> found.maps.flatten().tolist()  # x², all of it
    [0.0, 1.0]
    """
    path = path_points(rule, points)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        baselines = baseline_images(baseline, pixels, bounds)
        at_image = evaluation(calls, pixels, class_indices(target, pixels), uses_end(path, 1.0))
        at_baseline = evaluation(calls, baselines, at_image.target, uses_end(path, 0.0))
        found = integrate(calls, pixels, baselines, at_baseline, at_image, path)
        warn_of_zeros(calls, found.integral, "the mean gradient of Integrated Gradients")
        return found
