"""SmoothGrad: the mean gradient under Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.attribution.gradient_sum import gradient_sum
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices, evaluation, warn_of_zeros


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

    y is the class of the image without noise. Noisy samples may leave [0, 1], as published: cutting them off would
    shift the mean of the noise. The noise of an image depends on its pixels and the seed alone.

    >>> import torch
    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> smooth_gradient(linear, torch.rand(1, 1, 1, 2), target=1, samples=4).flatten().tolist()
    [-2.0, 3.0]
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"`samples` must be a whole number of noisy images, got {samples!r}")
    if not sigma >= 0:
        raise ValueError(f"`sigma` must be the noise's standard deviation in pixels, 0 or more, got {sigma!r}")
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = class_indices(target, pixels)
        if chosen is None:
            chosen = evaluation(calls, pixels, None, gradient=False).target
        generators = [torch.Generator().manual_seed(number) for number in image_seeds(pixels, seed)]

        def noisy(image: Tensor, _: Tensor) -> Tensor:
            # One draw a sample: then neither chunk nor batch changes what an image's generator gives next.
            shape = pixels.shape[1:]
            noise = torch.stack([torch.randn(shape, generator=generators[number]) for number in image.tolist()])
            return pixels[image] + sigma * noise.to(pixels)

        found = gradient_sum(calls, pixels, chosen, torch.full((samples,), 1 / samples), noisy)
        warn_of_zeros(calls, found, "the mean gradient of SmoothGrad")
        return found
