"""Gradients at the image: the saliency map and input × gradient."""

from __future__ import annotations

from torch import Tensor

from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices


def saliency_map(
    model: Model | Calls, images: Tensor, target: Target = None, *, bounds: Bounds = UNIT, chunk: int | None = None
) -> Tensor:
    """SM = ∂f_y(x)/∂x (Simonyan et al. 2013), signed.

    >>> import torch
    >>> weights = torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> linear = lambda images: images.flatten(1) @ weights
    >>> saliency_map(linear, torch.rand(1, 1, 1, 2), target=1).flatten().tolist()
    [-2.0, 3.0]
    """
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        gradient = class_gradient(calls, pixels, class_indices(target, pixels)).gradient
        assert gradient is not None
        warn_of_zero_maps(calls, gradient, "the saliency map")
        return gradient


def input_x_gradient(
    model: Model | Calls, images: Tensor, target: Target = None, *, bounds: Bounds = UNIT, chunk: int | None = None
) -> Tensor:
    """x ⊙ ∂f_y(x)/∂x (Shrikumar et al. 2016), signed.

    >>> import torch
    >>> double = lambda images: images.flatten(1) * 2
    >>> input_x_gradient(double, torch.tensor([[[[0.5, 1.0]]]]), target=0).flatten().tolist()
    [1.0, 0.0]
    """
    return saliency_map(model, images, target, bounds=bounds, chunk=chunk) * images.detach()
