"""Models for suites, loaded by name in this process and in others: `suite_models:steady` and some that misbehave."""

import multiprocessing
import os
import signal
import time

import torch
from torch import Tensor, nn

from locality.data.sources.cifar10 import CLASSES as CIFAR10_CLASSES
from locality.data.sources.shapes import CLASSES
from locality.types import ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.pixel_model import PixelModel


class Little(nn.Sequential):
    """A convolution and a linear layer with random weights."""

    def __init__(self, seed: int = 0) -> None:
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        super().__init__(nn.Conv2d(3, 4, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 20 * 20, 10))
        torch.set_rng_state(state)

    def forward(self, images: Tensor) -> Tensor:
        for layer in self:
            images = layer(images)
        return images


class Hungry(Little):
    """Fails for more than two images at once, with an error that is not about memory."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 2:
            raise RuntimeError("the driver gave up")
        return super().forward(images)


class Stuck(Little):
    """Predicts, and fails when a gradient is computed."""

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad:
            raise RuntimeError("it is stuck")
        return super().forward(images)


class Picky(Little):
    """Gives `nan` for images whose first pixel is bright."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        bright = images[:, 0, 0, 0] > 0.5  # after the normaliser
        return torch.where(bright[:, None], logits * torch.nan, logits)


class Deadly(Little):
    """Kills its process, unless it is the parent, for an image whose first pixel is that of the environment."""

    def forward(self, images: Tensor) -> Tensor:
        pixel = (float(os.environ.get("DEADLY_PIXEL", "inf")) - 0.5) / 0.25
        if multiprocessing.parent_process() is not None and bool(((images[:, 0, 0, 0] - pixel).abs() < 1e-4).any()):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)


class Endless(Little):
    """Never returns from a gradient in other processes than the one that the environment names."""

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad and os.environ.get("ENDLESS_EXCEPT") != str(os.getpid()):
            time.sleep(3600)
        return super().forward(images)


class Hesitant(Little):
    """Abstains where its two largest logits are close to each other."""

    def abstains(self, logits: Tensor) -> Tensor:
        first, second = logits.topk(2).values.unbind(1)
        return first - second < 0.1


class Silent(Little):
    """Abstains always."""

    def abstains(self, logits: Tensor) -> Tensor:
        return torch.ones(len(logits), dtype=torch.bool)


def _wrapped(net: nn.Module) -> PixelModel:
    spec = ModelSpec("little", (64, 64), 64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), classes=CLASSES)
    return PixelModel(net, spec)


def _of_cifar10(seed: int) -> PixelModel:
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 30), nn.Tanh(), nn.Linear(30, 10))
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.2, generator=generator)
    return PixelModel(net, ModelSpec("ten", (32, 32), 32, mean=(0.5,) * 3, std=(0.25,) * 3, classes=CIFAR10_CLASSES))


def cifar() -> PixelModel:
    return _of_cifar10(0)


def other_cifar() -> PixelModel:
    return _of_cifar10(1)


def steady() -> PixelModel:
    return _wrapped(Little())


def other() -> PixelModel:
    return _wrapped(Little(seed=1))


def hungry() -> PixelModel:
    return _wrapped(Hungry())


def stuck() -> PixelModel:
    return _wrapped(Stuck())


def picky() -> PixelModel:
    return _wrapped(Picky())


def deadly() -> PixelModel:
    return _wrapped(Deadly())


def endless() -> PixelModel:
    return _wrapped(Endless())


def hesitant() -> PixelModel:
    return _wrapped(Hesitant())


def silent() -> PixelModel:
    return _wrapped(Silent())


def sure() -> PixelModel:
    return _wrapped(nn.Sequential(Little(), nn.Softmax(1)))


def broken() -> PixelModel:
    raise KeyError("no such layer")


def lipschitz() -> PixelModel:
    """A small LiResNet with random weights, whose radii are a fair share of the distances."""
    state = torch.get_rng_state()
    torch.manual_seed(0)
    net = NETS["liresnet"](10, depth=2, width=8, dimension=16)
    torch.set_rng_state(state)
    return PixelModel(net, ModelSpec("lipschitz", (64, 64), 64, mean=(0.5,) * 3, std=(1.0,) * 3, classes=CLASSES)).eval()
