"""Saliency maps of a smoothed model, and Theorem 1 and Corollary 1 of the thesis about one ReLU layer in closed form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locality.attribution.smoothgrad import smooth_gradient
from locality.certified.smoothed_model import SmoothedModel
from locality.certified.smoothing import check_noise
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target, class_indices


def smoothed_saliency(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    sigma: float = 0.25,
    samples: int = 100,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """The saliency map of f_σ by Monte Carlo: ∂/∂x E[f_y(x + ε)] = E[∂f_y(x + ε)/∂x], N×C×H×W.

    Without a target, y is the class that f_σ predicts, which may differ from that of the image without noise. With a target
    this is SmoothGrad. In both cases it is the saliency map of `SmoothedModel(model, sigma, samples, seed)`.

    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> smoothed_saliency(linear, torch.rand(1, 1, 1, 2), target=1, samples=4).flatten().tolist()
    [-2.0, 3.0]
    """
    check_noise(sigma, samples=samples)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        chosen = class_indices(target, pixels)
        if chosen is None:
            smoothed = SmoothedModel(calls.run, sigma, samples, seed, chunk=calls.chunk)
            with torch.no_grad():
                chosen = smoothed(pixels).argmax(dim=1)
            calls.forwards += len(pixels) * samples
        return smooth_gradient(calls, pixels, chosen, samples, sigma, seed=seed, bounds=bounds)


def smoothed_relu_saliency(weights: Tensor, images: Tensor, sigma: float) -> Tensor:
    """Theorem 1 in closed form: the saliency maps of E[ReLU(W(x + ε))] are w_k·Φ(w_k·x / (σ‖w_k‖)), N×K×C×H×W.

    >>> smoothed_relu_saliency(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1, 1, 2), sigma=1.0).flatten().tolist()
    [1.5, 2.0]
    """
    activations = images.flatten(1) @ weights.T / (sigma * weights.norm(dim=1))
    maps: Tensor = torch.special.ndtr(activations)[:, :, None] * weights
    return maps.view(len(images), len(weights), *images.shape[1:])


def smoothed_relu_bound(weights: Tensor, distance: Tensor, sigma: float) -> Tensor:
    """‖w_k‖·‖x − x′‖/(σ√(2π)), N×K: at least the distance of the two saliency maps of Theorem 1 (Corollary 1: x′ = x_adv).

    This bound decreases with σ. The distance itself may grow: without noise, two points on the same side of a ReLU have the
    same map.

    >>> smoothed_relu_bound(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0]), sigma=2.0).item()  # 5/(2·2.5066)
    0.9973...
    """
    lengths: Tensor = weights.norm(dim=1)
    return distance[:, None] * lengths / (sigma * math.sqrt(2 * math.pi))
