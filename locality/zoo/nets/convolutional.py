"""Plain convolutional networks."""

from __future__ import annotations

from torch import nn

from locality.zoo.nets.forward_pass import FeatureSequential


def shapes_cnn(classes: int) -> FeatureSequential:
    """Four convolutions, for `shapes`: 0.1 million parameters."""
    return FeatureSequential(
        convolution(3, 32, stride=2),
        convolution(32, 64, stride=2),
        convolution(64, 64),
        convolution(64, 96, stride=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 96, classes),
    )


def tiny_vgg(classes: int) -> FeatureSequential:
    """Six convolutions between max-pools, as in VGG: 0.6 million parameters."""
    return FeatureSequential(
        convolution(3, 24),
        nn.MaxPool2d(2),
        convolution(24, 48),
        nn.MaxPool2d(2),
        convolution(48, 96),
        convolution(96, 96),
        nn.MaxPool2d(2),
        convolution(96, 160),
        convolution(160, 192),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(192, classes),
    )


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """A convolution, BatchNorm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )
