"""The small networks that are trained here: name ↦ a function of the number of classes. All take 64×64 images."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from locality.zoo.nets.convolutional import shapes_cnn, tiny_vgg
from locality.zoo.nets.residual import tiny_resnet
from locality.zoo.nets.transformer import shapes_vit, tiny_vit

NETS: dict[str, Callable[[int], nn.Module]] = {
    "shapes_cnn": shapes_cnn,
    "shapes_vit": shapes_vit,
    "tiny_resnet": tiny_resnet,
    "tiny_vgg": tiny_vgg,
    "tiny_vit": tiny_vit,
}
