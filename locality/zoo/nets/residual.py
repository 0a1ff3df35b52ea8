"""A small residual network."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from locality.zoo.nets.forward_pass import FeatureSequential


class ResidualBlock(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.short_cut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short_cut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        inner = relu(self.first_norm(self.first(features)), inplace=True)
        return relu(self.second_norm(self.second(inner)) + self.short_cut(features), inplace=True)


def tiny_resnet(classes: int) -> FeatureSequential:
    """Seven convolutions, six of them in three residual blocks: 0.6 million parameters."""
    return FeatureSequential(
        nn.Conv2d(3, 24, 3, 2, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(inplace=True),
        ResidualBlock(24, 48, stride=2),
        ResidualBlock(48, 96),
        ResidualBlock(96, 176, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(176, classes),
    )
