"""A catalog with one small model that is fetched from a server on this machine."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted_server import Answer, Server, running_server
from torch import nn

from locality.types import ModelSpec
from locality.zoo import catalog
from locality.zoo.architectures import build
from locality.zoo.catalog import CIFAR10, find_card
from locality.zoo.model_card import Address, ModelCard


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own, also for the libraries of others."""
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with running_server(monkeypatch) as running:
        yield running


@pytest.fixture
def small_net() -> nn.Module:
    return build("net:shapes_cnn", 10, seed=5)


@pytest.fixture
def toy(server: Server, cache: Path, small_net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> ModelCard:
    """The model `toy` of the catalog; the server has its weights."""
    card = replace(
        find_card("resnet50_random"),
        spec=ModelSpec("toy", (64, 64), 64, classes=CIFAR10),
        architecture="net:shapes_cnn",
        weights=Address(server.url, "toy.pth"),
    )
    monkeypatch.setattr(catalog, "PUBLISHED", (card, find_card("resnet50_random")))
    server.answers = [Answer(body=saved(small_net.state_dict()))]
    return card


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Saves an object with torch and gives the path."""

    def save(content: object, name: str = "checkpoint.pth", **options: object) -> Path:
        (tmp_path / name).write_bytes(saved(content, **options))
        return tmp_path / name

    return save


def saved(content: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)  # type: ignore[arg-type]
    return buffer.getvalue()
