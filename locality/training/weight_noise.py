"""Gaussian noise on the weights: one draw per step, the same in every process, and passes at the weights it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from locality.errors import ArgumentError, Problem
from locality.training.network import Weights
from locality.training.settings import positive
from locality.training.step import TrainingBatch
from locality.zoo.nets.forward_pass import ForwardPass

Offset = dict[str, Tensor]  # by the names of the weights that move; the others stay


@dataclass(frozen=True)
class WeightNoise:
    """u ~ N(0, σ²) on matrices and kernels; biases and normalisation layers have none."""

    sigma: float = 0.01
    unit: Literal["absolute", "relative"] = "absolute"  # relative: sigma times the root mean square of each tensor
    on: Literal["matrices", "convolutions"] = "matrices"  # matrices: every tensor of at least two dimensions

    def offset(self, weights: Weights, generator: torch.Generator) -> Offset:
        """A draw of u, without gradient, from a generator on the CPU, tensor by tensor in the order of the names."""
        smallest = 2 if self.on == "matrices" else 4
        moved = {name: value.detach() for name, value in weights.items() if value.dim() >= smallest}
        if not moved:
            raise ArgumentError("noise.on", "a kind of layer that the network has", self.on)
        return {
            name: self._scale(value) * torch.randn(value.shape, generator=generator).to(value)
            for name, value in moved.items()
        }

    def draw(self, batch: TrainingBatch) -> Offset:
        """The draw of this step: the same for every evaluation of the loss, also at other weights."""
        return batch.once("weight noise", lambda: self.offset(batch.weights, batch.generator("weight noise")))

    def _scale(self, weight: Tensor) -> Tensor | float:
        return self.sigma if self.unit == "absolute" else self.sigma * weight.square().mean().sqrt()

    def problems(self) -> list[Problem]:
        return positive("sigma", self.sigma)


def shifted(weights: Weights, offset: Offset, sign: int = 1) -> Weights:
    """w + sign · u, as functions of w.

    >>> shifted({"kernel": torch.ones(1, 1), "bias": torch.ones(1)}, {"kernel": torch.ones(1, 1)}, -1)
    {'kernel': tensor([[0.]]), 'bias': tensor([1.])}
    """
    return {name: value + sign * offset[name] if name in offset else value for name, value in weights.items()}


def passes_at(batch: TrainingBatch, images: Tensor, offset: Offset, signs: Sequence[int]) -> list[ForwardPass]:
    """Passes on the side at w + sign · u, one per sign.

    Dropout drops the same features in each of them, and in the pass that the caller makes next: differences between the
    passes are due to the weights alone.
    """
    seen = []
    for sign in signs:
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
            seen.append(batch.at(shifted(batch.weights, offset, sign)).forward(images))
    return seen
