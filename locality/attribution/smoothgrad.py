"""SmoothGrad and Boundary SmoothGrad: the mean gradient under Gaussian noise, around the image or its boundary point."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.attribution.boundary_gradients import OnMissing, Points, defined_rows, spread
from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.attribution.gradient_sum import gradient_sum
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices


def smooth_gradient(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    samples: int = 50,
    sigma: float = 0.15,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """E[∂f_y(x + ε)/∂x], ε ~ N(0, σ²) (Smilkov et al. 2017): 50 samples, σ = 15 % of the pixel range.

    y is the class of the image without noise. Noisy samples may leave [0, 1], as published: clipping them would shift the
    mean of the noise. The noise of an image depends on its pixels and the seed alone.

    >>> import torch
    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> smooth_gradient(linear, torch.rand(1, 1, 1, 2), target=1, samples=4).flatten().tolist()
    [-2.0, 3.0]
    """
    check_noise(samples, sigma)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = _classes(calls, pixels, target)
        return mean_gradient(calls, pixels, chosen, samples, sigma, image_seeds(pixels, seed))


def boundary_smooth_gradient(
    model: Model | Calls,
    images: Tensor,
    boundary: Points,
    target: Target = None,
    samples: int = 50,
    sigma: float = 0.15,
    *,
    seed: int = 0,
    on_missing: OnMissing = "nan",
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """BSG = E[∂f_y(x′ + ε)/∂x′], ε ~ N(0, σ²): SmoothGrad at the boundary point x′; `nan` where no boundary was found.

    The ICML 2022 paper has no formula; this is what its authors' code computes: y is the class of the image, and the map is
    not multiplied by the image. The noise of an image is that of `smooth_gradient`, so that only the centre differs.

    >>> import torch
    >>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
    >>> boundary_smooth_gradient(model, images, torch.tensor([[[[0.6, 0.6]]]]), samples=4).flatten().tolist()
    [1.0, 0.0]
    """
    check_noise(samples, sigma)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        rows, points = defined_rows(boundary, pixels, on_missing)
        chosen = _classes(calls, pixels, target)
        return smooth_around(calls, pixels, rows, points, chosen, samples, sigma, seed)


def smooth_around(
    calls: Calls,
    images: Tensor,
    rows: Tensor,
    points: Tensor,
    target: Tensor,
    samples: int = 50,
    sigma: float = 0.15,
    seed: int = 0,
) -> Tensor:
    """The mean gradient around the points of the images `rows`; `nan` for the others."""
    seeds = image_seeds(images, seed)
    own = [seeds[row] for row in rows.tolist()]
    maps = mean_gradient(calls, points, target[rows], samples, sigma, own) if own else points
    return spread(maps, rows, len(images))


def mean_gradient(calls: Calls, centres: Tensor, target: Tensor, samples: int, sigma: float, seeds: list[int]) -> Tensor:
    """Mean of ∂f_y over Gaussian noise around each centre, drawn from its own seed."""
    generators = [torch.Generator().manual_seed(image_seed) for image_seed in seeds]

    def noisy(image: Tensor, _: Tensor) -> Tensor:
        # One draw per sample, so that an image's noise depends neither on the chunk nor on the batch.
        noise = torch.stack([torch.randn(centres.shape[1:], generator=generators[index]) for index in image.tolist()])
        return centres[image] + sigma * noise.to(centres)

    maps = gradient_sum(calls, centres, target, torch.full((samples,), 1 / samples), noisy)
    warn_of_zero_maps(calls, maps, "the mean gradient of SmoothGrad")
    return maps


def check_noise(samples: int, sigma: float) -> None:
    """Raise for a number of samples or a standard deviation that cannot be."""
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", "a whole number of noisy images of at least 1", samples)
    if not sigma >= 0:
        raise ArgumentError("sigma", "the standard deviation of the noise in pixels, 0 or more", sigma)


def _classes(calls: Calls, images: Tensor, target: Target) -> Tensor:
    chosen = class_indices(target, images)
    return class_gradient(calls, images, None, with_gradient=False).target if chosen is None else chosen
