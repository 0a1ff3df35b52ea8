"""Small networks in float64 whose Hessians autograd can write down."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.functional import cross_entropy, gelu, relu

from locality.curvature.layers import weight_layers


class Residual(nn.Module):
    """A convolution with a shortcut; what follows a layer changes its output in place."""

    def __init__(self, channels: int, groups: int = 1) -> None:
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, features: Tensor) -> Tensor:
        return relu(self.norm(self.inner(features)) + features, inplace=True)


class HiddenGelu(nn.Module):
    """No module says that this network is not piecewise linear."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, images: Tensor) -> Tensor:
        return gelu(3 * self.layer(images.flatten(1)))


class Viewing(nn.Module):
    """It flattens with `.view`, which needs contiguous memory."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Conv2d(3, 4, 2), nn.Linear(36, 3)

    def forward(self, images: Tensor) -> Tensor:
        features = relu(self.inner(images))
        logits: Tensor = self.head(features.view(len(features), -1))
        return logits


class Twice(nn.Module):
    """One layer that is used twice: the logits are quadratic in its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layer(relu(self.layer(images.flatten(1))))
        return logits


def convolutional(seed: int = 0) -> nn.Sequential:
    """Convolutions with stride, groups, dilation and other paddings, BatchNorm with statistics, max-pool, a residual sum."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1, padding_mode="reflect"),
        nn.ReLU(inplace=True),
        Residual(4, groups=2),
        nn.Conv2d(4, 5, 3, padding="same", dilation=2, bias=False),
        nn.BatchNorm2d(5),
        nn.ReLU6(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(20, 6),
        nn.LeakyReLU(0.1),
        nn.Linear(6, 3),
    ).double()
    with torch.no_grad():
        for _ in range(3):
            net(torch.rand(16, 3, 8, 8, dtype=torch.float64))
    return net


def images_and_labels(count: int, side: int = 8, classes: int = 3, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 3, side, side, generator=generator, dtype=torch.float64)
    return images, torch.randint(classes, (count,), generator=generator)


def block_hessian(model: nn.Module, images: Tensor, labels: Tensor, name: str) -> Tensor:
    """The Hessian of the mean cross-entropy by one weight, by autograd, in eval mode."""
    weight = weight_layers(model)[name]

    def loss(flat: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, {name: flat.view_as(weight)}, (images,)), labels)

    training = model.training
    model.eval()
    block: Tensor = hessian(loss, weight.detach().flatten())
    model.train(training)
    return block


def block_traces(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([block_hessian(model, images, labels, name).trace() for name in weight_layers(model)])
