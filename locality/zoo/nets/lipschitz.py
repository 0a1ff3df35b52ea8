"""Layers whose Lipschitz constants are cheap to estimate while a network is trained, and to bound once it is.

`norm(steps)` is the estimate of training, by power iteration from the direction that the last call left behind. It is
differentiable and never above the true norm, so nothing is certified with it: `certified/lipschitz_bound.py` has the bounds.
Directions are buffers that checkpoints leave out. A network iterates on all its convolutions of one shape at once, as one
grouped convolution, which takes less than half of the time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, normalize

from locality.errors import ArgumentError
from locality.operator_norms import conv_transpose, power_iteration
from locality.zoo.nets.forward_pass import FeatureSequential


class MinMax(nn.Module):
    """The larger and the smaller of two channels, paired across the halves: at each input a permutation, so 1-Lipschitz.

    >>> MinMax()(torch.tensor([[1.0, 5.0, 3.0, 4.0]])).tolist()
    [[3.0, 5.0, 1.0, 4.0]]
    """

    def forward(self, features: Tensor) -> Tensor:
        if features.shape[1] % 2:
            raise ArgumentError("features", "of an even number of channels for MinMax", features.shape[1])
        sorted_pairs: Tensor = _SortedPairs.apply(features)  # type: ignore[no-untyped-call]
        return sorted_pairs


class _SortedPairs(torch.autograd.Function):
    """`MinMax` with a backward pass that permutes: ten times as fast on a CPU as that of torch's maximum and minimum."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor) -> Tensor:
        first, second = features.chunk(2, dim=1)
        return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        first, second = inputs[0].chunk(2, dim=1)
        ctx.save_for_backward(first.ge(second).to(first.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors  # 1 where the first is the larger, 0 where the two change places
        larger, smaller = gradient.chunk(2, dim=1)
        return torch.cat([torch.lerp(smaller, larger, kept), torch.lerp(larger, smaller, kept)], dim=1)


@dataclass(frozen=True, eq=False)
class Operator:
    """A matrix or a convolution, and the buffer that keeps the direction of its power iteration."""

    owner: WithDirection
    weight: Tensor
    stride: int = 1
    padding: int = 0

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for operators that can be iterated together."""
        return (self.weight.shape, self.owner.direction.shape, self.stride, self.padding)


class WithNorm(ABC):
    """A layer whose Lipschitz constant follows from the norms of its operators."""

    @abstractmethod
    def operators(self) -> Sequence[Operator]:
        """The operators, at the weights of this moment."""

    def combined(self, norms: Sequence[Tensor]) -> Tensor:
        """The layer's constant, from the norms of its operators in their order."""
        (norm,) = norms
        return norm

    def norm(self, steps: int) -> Tensor:
        """The estimate of training, with its gradient."""
        return self.combined(operator_norms(self.operators(), steps))


class WithDirection(WithNorm):
    """A layer of one operator, with its direction."""

    direction: Tensor


class LipschitzConv2d(nn.Conv2d, WithDirection):
    """A convolution on maps of size×size, initialised with an orthogonal matrix of taps.

    Where blocks of pixels do not overlap, each is multiplied by the same matrix, whose norm is that of the convolution.
    """

    def __init__(self, inputs: int, outputs: int, taps: int, size: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(inputs, outputs, taps, stride, padding)
        nn.init.orthogonal_(self.weight)
        self.size = size
        self.in_blocks = stride >= taps and padding == 0
        shape = (inputs * taps**2,) if self.in_blocks else (inputs, size, size)
        self.register_buffer("direction", _random_direction(1, *shape), persistent=False)

    def operators(self) -> Sequence[Operator]:
        if self.in_blocks:
            return [Operator(self, self.weight.flatten(1))]
        return [Operator(self, self.weight, int(self.stride[0]), int(self.padding[0]))]


class LipschitzLinear(nn.Linear, WithDirection):
    """A dense layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("direction", _random_direction(1, inputs), persistent=False)

    def operators(self) -> Sequence[Operator]:
        return [Operator(self, self.weight)]


class LinearResidual(nn.Module, WithDirection):
    """x + s·β⊙conv(x) + b as one convolution with the kernel I + s·β⊙W, so that its norm is that of the sum (LiResNet).

    s = 1/√depth. β has one factor per output channel and is 1 at first; W ~ N(0, 1)/(9·channels).
    """

    def __init__(self, channels: int, size: int, depth: int) -> None:
        super().__init__()
        self.channels, self.size, self.scale = channels, size, 1 / math.sqrt(depth)
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3) / (9 * channels))
        self.multiplier = nn.Parameter(torch.ones(channels, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("direction", _random_direction(1, channels, size, size), persistent=False)

    def kernel(self) -> Tensor:
        """The kernel that is applied."""
        centre = torch.zeros(3, 3, dtype=self.weight.dtype, device=self.weight.device)
        centre[1, 1] = 1
        identity = torch.eye(self.channels, dtype=centre.dtype, device=centre.device)[:, :, None, None] * centre
        return identity + self.scale * self.multiplier * self.weight

    def forward(self, features: Tensor) -> Tensor:
        return conv2d(features, self.kernel(), self.bias, padding=1)

    def operators(self) -> Sequence[Operator]:
        return [Operator(self, self.kernel(), padding=1)]

    def extra_repr(self) -> str:
        return f"{self.channels}, scale={self.scale!r}"


class ConventionalResidual(nn.Module, WithNorm):
    """x + β·conv(MinMax(conv(x))) with one factor β, 0 at first; its bound is 1 + |β|·‖conv‖·‖conv‖."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.first = LipschitzConv2d(channels, channels, 3, size, padding=1)
        self.activation = MinMax()
        self.second = LipschitzConv2d(channels, channels, 3, size, padding=1)
        self.multiplier = nn.Parameter(torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        inner: Tensor = self.second(self.activation(self.first(features)))
        return features + self.multiplier * inner

    def operators(self) -> Sequence[Operator]:
        return [*self.first.operators(), *self.second.operators()]

    def combined(self, norms: Sequence[Tensor]) -> Tensor:
        first, second = norms
        return 1 + self.multiplier.abs() * first * second


class NormalisedHead(nn.Module):
    """Logits ⟨w_i/‖w_i‖, z⟩ + b_i: rows of length 1 cannot grow instead of the margin (last-layer normalisation)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        plain = nn.Linear(inputs, classes)
        self.in_features, self.out_features = inputs, classes
        self.weight, self.bias = plain.weight, plain.bias

    def rows(self) -> Tensor:
        """The matrix that is applied."""
        return normalize(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return linear(features, self.rows(), self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class LipschitzNet(FeatureSequential):
    """Layers with a `norm` or of Lipschitz constant 1, then a `NormalisedHead`."""

    def features_norm(self, steps: int) -> Tensor:
        """The training estimate of the features' Lipschitz constant: the product of the layers' norms, in full precision."""
        weight = next(self.parameters())
        with torch.autocast(weight.device.type, enabled=False):
            layers = [layer for layer in list(self)[:-1] if isinstance(layer, WithNorm)]
            operators = [layer.operators() for layer in layers]
            norms = iter(operator_norms([one for some in operators for one in some], steps))
            product = weight.new_ones(())
            for layer, own in zip(layers, operators, strict=True):
                product = product * layer.combined([next(norms) for _ in own])
        return product

    def margin_norms(self, steps: int) -> Tensor:
        """K×K training estimates for the margins f_j − f_i: ‖w_j − w_i‖ times the norm of the features, 0 for i = j.

        They are not upper bounds, so not for certificates.
        """
        rows = self._normalised_head().rows()
        # Not torch.cdist: the gradient of a distance 0, of a class to itself, must be 0 rather than nan.
        squares = (rows[:, None] - rows[None]).square().sum(2)
        positive = squares > 0
        lengths = torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)
        return self.features_norm(steps) * lengths

    def _normalised_head(self) -> NormalisedHead:
        if not isinstance(self.head, NormalisedHead):
            raise ArgumentError("head", "a NormalisedHead", type(self.head).__name__)
        return self.head


def _random_direction(*shape: int) -> Tensor:
    # Drawn, because a constant image may be orthogonal to the top direction; from its own stream, so that the weights that
    # follow do not depend on it.
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), device="cpu")


def operator_norms(operators: Sequence[Operator], steps: int) -> list[Tensor]:
    """Estimates from below with their gradients, in the order of the operators. Their directions move on."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, operator in enumerate(operators):
        alike.setdefault(operator.kind, []).append(index)
    norms: dict[int, Tensor] = {}
    for indices in alike.values():
        norms |= zip(indices, _norms_of_alike([operators[index] for index in indices], steps), strict=True)
    return [norms[index] for index in range(len(operators))]


def _norms_of_alike(operators: Sequence[Operator], steps: int) -> Sequence[Tensor]:
    first, count = operators[0], len(operators)
    weights = torch.cat([one.weight for one in operators]) if count > 1 else first.weight
    directions = torch.cat([one.owner.direction for one in operators])
    if directions.dim() == 2:
        matrices = weights.view(count, -1, directions.shape[1])
        norms, directions = power_iteration(
            lambda v: (matrices @ v[..., None])[..., 0], lambda u: (matrices.mT @ u[..., None])[..., 0], directions, steps
        )
    else:
        size = (directions.shape[-2], directions.shape[-1])

        def joined(images: Tensor) -> Tensor:
            return images.flatten(0, 1)[None]

        def parted(images: Tensor) -> Tensor:
            return images.view(count, -1, *images.shape[2:])

        norms, directions = power_iteration(
            lambda v: parted(conv2d(joined(v), weights, None, first.stride, first.padding, groups=count)),
            lambda u: parted(conv_transpose(joined(u), weights, size, first.stride, first.padding, count)),
            parted(joined(directions).contiguous(memory_format=torch.channels_last)),  # faster on a CPU
            steps,
        )
    for operator, direction in zip(operators, directions, strict=True):
        operator.owner.direction = direction[None].clone(memory_format=torch.contiguous_format)
    return norms.unbind()
