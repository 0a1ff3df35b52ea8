"""Networks with small Lipschitz constants for 64×64 images: LiResNet, and the plain and residual twins of its ablation.

All three have the same stem, neck and head; only the blocks of the backbone differ. Pixels should only be shifted (mean 0.5,
standard deviation 1), because a division by the standard deviation multiplies the constant.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from locality.errors import ArgumentError
from locality.zoo.nets.lipschitz import (
    ConventionalResidual,
    LinearResidual,
    LipschitzConv2d,
    LipschitzLinear,
    LipschitzNet,
    MinMax,
    NormalisedHead,
)

LARGEST = {"depth": 256, "width": 2048, "dimension": 8192}  # more is a slip of the pen that would fill the memory
IMAGE, MAP, NECK = 64, 16, 4  # sides of the image and of the maps after the stem and the neck


def liresnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512) -> LipschitzNet:
    """Linear residual blocks: 1.4 million parameters."""
    return _net(classes, depth, width, dimension, lambda: LinearResidual(width, MAP, depth))


def lip_convnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512) -> LipschitzNet:
    """Plain convolutions: 1.4 million parameters."""
    return _net(classes, depth, width, dimension, lambda: LipschitzConv2d(width, width, 3, MAP, padding=1))


def lip_resnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512) -> LipschitzNet:
    """Conventional residual blocks of two convolutions each: 1.6 million parameters."""
    return _net(classes, depth, width, dimension, lambda: ConventionalResidual(width, MAP))


def _net(classes: int, depth: int, width: int, dimension: int, block: Callable[[], nn.Module]) -> LipschitzNet:
    for name, number in {"depth": depth, "width": width, "dimension": dimension}.items():
        if not 1 <= number <= LARGEST[name]:
            raise ArgumentError(name, f"a whole number from 1 to {LARGEST[name]:,}", number)
        if number % 2 and name != "depth":
            raise ArgumentError(name, "even, because MinMax pairs channels", number)
    backbone = [layer for _ in range(depth) for layer in (block(), MinMax())]
    return LipschitzNet(
        LipschitzConv2d(3, width, 7, IMAGE, stride=4, padding=3),
        MinMax(),
        *backbone,
        LipschitzConv2d(width, 2 * width, MAP // NECK, MAP, stride=MAP // NECK),
        MinMax(),
        nn.Flatten(),
        LipschitzLinear(2 * width * NECK**2, dimension),
        MinMax(),
        NormalisedHead(dimension, classes),
    )
