"""SmoothGrad: the mean gradient under Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

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
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", "a whole number of noisy images of at least 1", samples)
    if not sigma >= 0:
        raise ArgumentError("sigma", "the standard deviation of the noise in pixels, 0 or more", sigma)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = class_indices(target, pixels)
        if chosen is None:
            chosen = class_gradient(calls, pixels, None, with_gradient=False).target
        generators = [torch.Generator().manual_seed(image_seed) for image_seed in image_seeds(pixels, seed)]

        def noisy(image: Tensor, _: Tensor) -> Tensor:
            # One draw per sample, so that an image's noise depends neither on the chunk nor on the batch.
            shape = pixels.shape[1:]
            noise = torch.stack([torch.randn(shape, generator=generators[index]) for index in image.tolist()])
            return pixels[image] + sigma * noise.to(pixels)

        maps = gradient_sum(calls, pixels, chosen, torch.full((samples,), 1 / samples), noisy)
        warn_of_zero_maps(calls, maps, "the mean gradient of SmoothGrad")
        return maps
