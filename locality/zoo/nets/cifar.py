"""ResNet-50 for 32×32 images, as in the published CIFAR-10 checkpoints."""

from __future__ import annotations

from torch import nn


def cifar_resnet50(classes: int) -> nn.Module:
    """ResNet-50 with a 3×3 first convolution of stride 1 and no max-pool: 23.5 million parameters."""
    from torchvision.models import resnet50

    net: nn.Module = resnet50(weights=None, num_classes=classes)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net
