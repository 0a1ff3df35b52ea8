"""One ReLU layer, whose mean under Gaussian noise is known in closed form, for several tests."""

import math

import torch
from torch import Tensor

SHAPE = (1, 3, 4)
WEIGHTS = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))


def one_layer(images: Tensor) -> Tensor:
    return (images.flatten(1) @ WEIGHTS.T).relu()


def some_images(count: int = 4, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def phi(values: Tensor) -> Tensor:
    """The distribution function of N(0, 1)."""
    probabilities: Tensor = torch.special.ndtr(values)
    return probabilities


def mean_relu(images: Tensor, sigma: float) -> Tensor:
    """E[max(0, a + s·z)] = a·Φ(a/s) + s·φ(a/s), s = σ‖w‖."""
    activation, spread = images.flatten(1) @ WEIGHTS.T, sigma * WEIGHTS.norm(dim=1)
    density = torch.exp(-((activation / spread) ** 2) / 2) / math.sqrt(2 * math.pi)
    mean: Tensor = activation * phi(activation / spread) + spread * density
    return mean
