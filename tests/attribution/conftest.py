"""Small models whose maps are known or hard: linear, in-place ReLU with BatchNorm, timm's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from locality.types import Boundary


class Convolutional(nn.Module):
    """In-place ReLU, BatchNorm with statistics, dropout: what makes attributions go wrong when state is not kept."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.Dropout(0.5))
        self.head = nn.Linear(12, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(self.stem(images)).mean((2, 3))) * 4
        return logits


@pytest.fixture
def network() -> Convolutional:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Convolutional()
        model.train()
        with torch.no_grad():
            for _ in range(5):
                model(torch.rand(16, 3, 12, 12))
    return model.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(7, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def timm_model() -> Callable[..., nn.Module]:
    """A timm model with random weights that is not constant: some initialise their heads with zeros."""
    import timm

    def make(name: str, **options: Any) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = timm.create_model(name, pretrained=False, num_classes=6, **options)
            for part in model.modules():
                if isinstance(part, nn.Linear):
                    nn.init.normal_(part.weight, std=0.2)
        return model.eval()

    return make


class Linear(nn.Module):
    """f(x) = Wx + c: every method is known in closed form."""

    def __init__(self, classes: int = 4, shape: tuple[int, ...] = (3, 4, 4)) -> None:
        super().__init__()
        size = int(torch.tensor(shape).prod())
        generator = torch.Generator().manual_seed(2)
        self.weight = nn.Parameter(torch.randn(classes, size, generator=generator))
        self.shape = shape

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T + 0.5

    def rows(self, target: Tensor) -> Tensor:
        return self.weight.detach()[target].view(-1, *self.shape)


@pytest.fixture
def linear() -> Linear:
    return Linear()


def edge_at(points: Tensor, found: Tensor | None = None) -> Boundary:
    """A boundary of points chosen by the test."""
    count = len(points)
    where = torch.ones(count, dtype=torch.bool) if found is None else found
    zeros = torch.zeros(count, dtype=torch.int64)
    return Boundary(points, torch.ones(count), where, zeros, zeros + 1, torch.ones(count))


@pytest.fixture
def make_edge() -> Callable[..., Boundary]:
    return edge_at
