"""For tests of training: a small network, a batch for a loss, and one toy of each part that a table can be extended by."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locality.training.averaging import Average
from locality.training.network import FeatureModel, Network, Weights
from locality.training.regularisers.weighted import Weighted
from locality.training.run_state import State
from locality.training.schedules import Moment
from locality.training.step import Loss, LossValue, TrainingBatch
from locality.training.step_size import StepSize
from locality.types import ModelSpec
from locality.zoo.nets.forward_pass import FeatureSequential
from locality.zoo.pixel_model import PixelModel

START = Moment(step=0, steps=10, epoch=0, epochs=5)


def pixel_model(net: nn.Module, size: int = 2) -> PixelModel:
    """The network on pixels as they are."""
    return PixelModel(net, ModelSpec("toy", (size, size), size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))


def network_of(net: nn.Module, size: int = 2) -> Network:
    """The network under training, in one process."""
    model = FeatureModel(pixel_model(net, size)).train()
    return Network(model, model)


def linear_net(classes: int = 3, seed: int = 0) -> FeatureSequential:
    """Logits linear in the 12 pixels of a 2×2 image."""
    torch.manual_seed(seed)
    return FeatureSequential(nn.Flatten(), nn.Linear(12, classes))


def normalised_net(seed: int = 0) -> FeatureSequential:
    """A network with BatchNorm on 2×2 images."""
    torch.manual_seed(seed)
    return FeatureSequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def batch_of(network: Network, images: Tensor, labels: Tensor, loss: Loss, moment: Moment = START) -> TrainingBatch:
    """A batch as a training step makes it."""
    seeds = range(len(images))
    return TrainingBatch(images, labels, seeds, moment, network, loss, network.weights)


class RememberingLayer(nn.Module):
    """Scales features by a number that it moves in training and that checkpoints leave out, as a power iteration does."""

    memory: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.ones(()), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        if self.training:
            self.memory = 0.9 * self.memory + 0.1 * features.detach().square().mean().sqrt()
        return features / (1 + self.memory)


def toy_net(classes: int, *, width: int = 4) -> nn.Module:
    """A small network with BatchNorm, an option, and a buffer that is in no checkpoint."""
    return FeatureSequential(
        nn.AvgPool2d(16),
        nn.Conv2d(3, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Flatten(),
        RememberingLayer(),
        nn.Linear(16 * width, classes),
    )


@dataclass(frozen=True)
class ToyLoss:
    """Cross-entropy times a number."""

    scale: float = 2.0

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        fit = cross_entropy(clean.logits, batch.labels)
        return LossValue(self.scale * fit, {"fit": fit, "scale": self.scale}, clean=clean)


@dataclass(frozen=True)
class FeatureDecay(Weighted):
    """Mean squared feature."""

    def __call__(self, batch: TrainingBatch, value: LossValue) -> Tensor:
        assert value.clean is not None
        return value.clean.features.square().mean()


@dataclass(frozen=True)
class Ascent:
    """Weights moved uphill by `size`, plus noise of the same size that all processes share."""

    size: float

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        total = loss(batch.at(weights)).total
        gradients = torch.autograd.grad(total, list(weights.values()))
        generator = batch.generator("ascent")
        shifted = {}
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
            uphill = batch.network.mean_over_processes(gradient)
            noise = torch.randn(weight.shape, generator=generator)
            shifted[name] = weight + self.size * (uphill / uphill.norm().clamp_min(1e-12) + noise)
        return shifted


@dataclass(frozen=True)
class FirstAndLast:
    """Mean of the weights after the first and after the last step."""

    def __call__(self, weights: Weights, state: State | None) -> Average:
        return _FirstAndLast(None if state is None else state["first"])


class _FirstAndLast:
    stale_statistics = False

    def __init__(self, first: dict[str, Tensor] | None) -> None:
        self.first, self.last = first, first

    @property
    def state(self) -> State:
        return {"first": self.first}

    def update(self, moment: Moment, weights: Weights) -> None:
        self.last = {name: value.clone() for name, value in weights.items()}
        self.first = self.first or self.last

    def result(self) -> Weights:
        assert self.first is not None
        assert self.last is not None
        return {name: (value + self.last[name]) / 2 for name, value in self.first.items()}


@dataclass(frozen=True)
class Backing:
    """A step size that shrinks by `factor` whenever the loss has risen."""

    factor: float = 0.5

    def __call__(self, state: State | None) -> StepSize:
        return _Backing(self.factor, **(state or {"current": 1.0, "loss": float("inf")}))


@dataclass
class _Backing:
    factor: float
    current: float
    loss: float

    @property
    def state(self) -> State:
        return {"current": self.current, "loss": self.loss}

    def size(self, moment: Moment) -> float:
        return self.current

    def observe(self, measured: Mapping[str, float]) -> None:
        if measured["loss"] > self.loss:
            self.current *= self.factor
        self.loss = measured["loss"]


def weights_of(model: nn.Module) -> Tensor:
    """All tensors of a model in one row."""
    return torch.cat([value.flatten().float() for value in model.state_dict().values()])


def same_state(one: Any, other: Any) -> bool:
    """Whether two states hold the same numbers, bit for bit."""
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same_state(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def number(value: Tensor | float) -> float:
    """A term of a loss as a plain number."""
    return value.item() if isinstance(value, Tensor) else value


def run_in_two_processes(script: str, recipe: Path, out: Path) -> None:
    """Run a test file, which trains the recipe where it is the main module, in two processes that share the work."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command = [*launch, "--master-port", str(port), script, str(recipe), str(out)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    }
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
