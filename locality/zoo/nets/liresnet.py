"""Networks with small Lipschitz constants for 64×64 images: LiResNet, and the plain and residual twins of its ablation.

All three have the same stem, neck and head; only the blocks of the backbone differ. The stem has stride 4, as in the thesis,
or 2, as in later work (Hu et al. 2024): the blocks then see maps of 32×32, at four times the cost. Pixels should only be
shifted (mean 0.5, standard deviation 1), because a division by the standard deviation multiplies the constant.
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
IMAGE, NECK = 64, 4  # sides of the image and of the maps after the neck
STEM_TAPS = {2: 5, 4: 7}  # by stride
NECK_STRIDES = {2: (4, 2), 4: (4,)}  # of the neck's convolutions, by stride of the stem; each doubles the channels


def liresnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512, stride: int = 4) -> LipschitzNet:
    """Linear residual blocks: 1.4 million parameters."""
    return _net(classes, depth, width, dimension, stride, lambda side: LinearResidual(width, side, depth))


def lip_convnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512, stride: int = 4) -> LipschitzNet:
    """Plain convolutions: 1.4 million parameters."""
    return _net(classes, depth, width, dimension, stride, lambda side: LipschitzConv2d(width, width, 3, side, padding=1))


def lip_resnet(classes: int, *, depth: int = 6, width: int = 64, dimension: int = 512, stride: int = 4) -> LipschitzNet:
    """Conventional residual blocks of two convolutions each: 1.6 million parameters."""
    return _net(classes, depth, width, dimension, stride, lambda side: ConventionalResidual(width, side))


def _net(
    classes: int, depth: int, width: int, dimension: int, stride: int, block: Callable[[int], nn.Module]
) -> LipschitzNet:
    for name, number in {"depth": depth, "width": width, "dimension": dimension}.items():
        if not 1 <= number <= LARGEST[name]:
            raise ArgumentError(name, f"a whole number from 1 to {LARGEST[name]:,}", number)
        if number % 2 and name != "depth":
            raise ArgumentError(name, "even, because MinMax pairs channels", number)
    if stride not in STEM_TAPS:
        raise ArgumentError("stride", "2 or 4", stride)
    taps, side = STEM_TAPS[stride], IMAGE // stride
    backbone = [layer for _ in range(depth) for layer in (block(side), MinMax())]
    stem = LipschitzConv2d(3, width, taps, IMAGE, stride=stride, padding=taps // 2)
    neck: list[nn.Module] = []
    for step in NECK_STRIDES[stride]:
        neck += [LipschitzConv2d(width, 2 * width, step, side, stride=step), MinMax()]
        width, side = 2 * width, side // step
    return LipschitzNet(
        stem,
        MinMax(),
        *backbone,
        *neck,
        nn.Flatten(),
        LipschitzLinear(width * NECK**2, dimension),
        MinMax(),
        NormalisedHead(dimension, classes),
    )
