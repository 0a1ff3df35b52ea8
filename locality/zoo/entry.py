"""What is known about a model: its architecture, where its weights come from, what it expects and what it scores.

This module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from locality.types import Interpolation

LabelSpace = Literal["imagenet", "cifar10", "shapes", "tiny-imagenet-10"]


class ModelError(ValueError):
    """A model that cannot be had as it was asked for."""


class NeedsCodeError(ModelError):
    """A checkpoint that is whole, but that only code of its own, or a full unpickler, can load."""


class DamagedFileError(ModelError):
    """A checkpoint that is not as it was saved."""


@dataclass(frozen=True)
class Address:
    """Weights to fetch. Without a published checksum, the one first seen is remembered, and another refused."""

    url: str
    file: str  # its name in the cache
    checksum: str | None = None  # "sha256:" and its first 8 hexadecimal digits or more


@dataclass(frozen=True)
class Package:
    """Weights inside a Python package; its tensors have names of their own, and are told apart by their order."""

    module: str
    file: str
    checksum: str


@dataclass(frozen=True)
class Shipped:
    """Weights that come with locality; the file's sha256 is that of its card."""

    file: str
    checksum: str


@dataclass(frozen=True)
class Seed:
    """No weights: those the architecture starts from, drawn with this seed."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model. Images are resized until their short side is `resize`, then cropped to `input_size`."""

    name: str
    architecture: str  # "timm:NAME", "torchvision:NAME" or "net:NAME"
    weights: Address | Package | Shipped | Seed
    parameters: int
    label_space: LabelSpace
    training: str  # "standard", "AT", "TRADES", "random", or what a card says
    norm: str | None = None  # of the attack trained against: "linf" or "l2"
    epsilon: float | None = None
    clean: float | None = None  # per cent
    robust: float | None = None  # per cent, under `attack`
    attack: str | None = None  # "linf 4/255 autoattack"
    classes: tuple[str, ...] | None = None  # where the label space's name does not say them
    input_size: tuple[int, int] = (224, 224)  # height, width
    resize: int = 256
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    licence: str
    paper: str
    note: str = ""

    @property
    def trained(self) -> str:
        """How it was trained, in a few words.

        >>> from locality.zoo.catalog import find_entry
        >>> find_entry("vit_b16_robust").trained, find_entry("resnet50_l2_3").trained
        ('AT linf 4/255', 'AT l2 3')
        """
        if self.epsilon is None:
            return self.training
        size = f"{self.epsilon * 255:.3g}/255" if self.norm == "linf" else f"{self.epsilon:g}"
        return f"{self.training} {self.norm} {size}"
