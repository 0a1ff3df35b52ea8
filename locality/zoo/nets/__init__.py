"""The small networks that are trained here, by name. All take 64×64 images and have features and a head (`forward_pass`).

A network is a function of the number of classes; its keyword arguments are the options that a recipe may set:
`net = { name = "tiny_vit", depth = 6 }`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from locality.zoo.nets.centroid import centroid_net
from locality.zoo.nets.convolutional import shapes_cnn, tiny_vgg
from locality.zoo.nets.liresnet import lip_convnet, lip_resnet, liresnet
from locality.zoo.nets.residual import tiny_resnet
from locality.zoo.nets.transformer import shapes_vit, tiny_vit

INPUT_SIZE = (64, 64)  # height and width that they were made for
NETS: dict[str, Callable[..., nn.Module]] = {
    "shapes_cnn": shapes_cnn,
    "shapes_vit": shapes_vit,
    "tiny_resnet": tiny_resnet,
    "tiny_vgg": tiny_vgg,
    "tiny_vit": tiny_vit,
    "liresnet": liresnet,
    "lip_convnet": lip_convnet,
    "lip_resnet": lip_resnet,
    "centroid_net": centroid_net,
}
