"""Whether attributions account for the model's output: INFD under several noises, and the completeness gap."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.class_gradient import class_gradient
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices
from locality.scores.infidelity import (
    SAMPLES,
    BaselineStep,
    GaussianNoise,
    Infidelity,
    Noise,
    PathNoise,
    SquareRemoval,
    infidelity_at,
    linear_weights,
)
from locality.types import PathMaps


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """All checks of one attribution; `nan` where the map is undefined, or without the baseline that a check needs."""

    gaussian: Infidelity
    removal: Infidelity
    path: Infidelity  # along the method's own path
    step: Infidelity  # at the path's start, ε = b − x: what a complete attribution explains exactly
    gap: Tensor  # N, |ΣA − (f_y(x) − f_y(b))|


def faithfulness(
    model: Model | Calls,
    images: Tensor,
    maps: Tensor | PathMaps,
    target: Target = None,
    baseline: Baseline | None = None,
    *,
    sigma: float = GaussianNoise.sigma,
    fill: Baseline = "black",
    largest: float = SquareRemoval.largest,
    samples: int = SAMPLES,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Faithfulness:
    """INFD under Gaussian noise, square removal and noise along the method's own path, and the completeness gap.

    `maps` is the result of `integrated_gradients` or `boundary_integrated_gradients`, or a tensor of SM, BSM or another
    method. `baseline` is where the path starts: black by default for IG; for BIG pass `boundary.points`. A tensor of maps
    has a path only if a baseline is given. Costs 3 × `samples` + 3 forward passes per image.

    >>> from locality.attribution import integrated_gradients
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> images = torch.tensor([[[[0.5, 1.0]]]])
    >>> checks = faithfulness(squares, images, integrated_gradients(squares, images, target=1), target=1)
    >>> checks.gap.item(), checks.step.raw.item(), checks.path.raw.item() > 0.01
    (0.0, 0.0, True)
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", "a whole number of perturbations per image", samples)
    if baseline is None and isinstance(maps, PathMaps):
        baseline = "black"
    gaussian, removal = GaussianNoise(sigma), SquareRemoval(fill, largest)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        weights = linear_weights(maps, pixels)
        points = None if baseline is None else baseline_images(baseline, pixels, bounds)
        if points is not None and isinstance(maps, PathMaps):
            _check_path(maps, pixels, points)
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False)

        def under(noise: Noise) -> Infidelity:
            return infidelity_at(calls, pixels, weights, at_image, noise, samples, seed, bounds)

        if baseline is None or points is None:
            nothing = torch.full_like(at_image.logit, torch.nan)
            no_path = Infidelity("no path", 0, *[nothing] * 7)
            return Faithfulness(under(gaussian), under(removal), no_path, no_path, nothing)
        at_baseline = class_gradient(calls, points, at_image.target, with_gradient=False)
        gap = _gap(maps, at_image.logit - at_baseline.logit)
        path, step = under(PathNoise(baseline)), under(BaselineStep(baseline))
        return Faithfulness(under(gaussian), under(removal), path, step, gap)


def completeness_gap(
    model: Model | Calls,
    images: Tensor,
    maps: Tensor | PathMaps,
    target: Target = None,
    baseline: Baseline = "black",
    *,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """N: |ΣA − (f_y(x) − f_y(b))|, by how much the attribution misses completeness; `nan` where the map is undefined.

    In logits, which compares methods on one model; across models divide it by |f_y(x) − f_y(b)|.

    >>> double = lambda images: images.flatten(1) * 2
    >>> completeness_gap(double, torch.tensor([[[[0.5, 1.0]]]]), torch.tensor([[[[0.75, 0.0]]]]), target=0).tolist()
    [0.25]
    """
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        linear_weights(maps, pixels)  # raises for maps of another shape
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False)
        points = baseline_images(baseline, pixels, bounds)
        at_baseline = class_gradient(calls, points, at_image.target, with_gradient=False)
        return _gap(maps, at_image.logit - at_baseline.logit)


def _gap(maps: Tensor | PathMaps, difference: Tensor) -> Tensor:
    attribution = (maps.maps if isinstance(maps, PathMaps) else maps).detach().to(difference)
    return (attribution.flatten(1).sum(1) - difference).abs()


def _check_path(maps: PathMaps, images: Tensor, points: Tensor) -> None:
    """Raise unless the maps are (x − b) ⊙ integral for this baseline: a common mistake is to score BIG along IG's path."""
    expected = ((images - points) * maps.integral.to(images)).flatten(1)
    error = (maps.maps.to(images).flatten(1) - expected).abs().amax(1)
    size = torch.maximum(maps.maps.to(images).flatten(1).abs().amax(1), expected.abs().amax(1))
    wrong = int((error > 1e-3 * size).sum())  # false for nan, the undefined maps
    if wrong:
        raise ValueError(
            f"`baseline` must be where the path of `maps` starts, which fails for {wrong} of {len(images)} images: pass "
            "baseline=boundary.points for BIG, and for IG the baseline it was made with"
        )
