"""What is proved about single layers: a Lipschitz constant, and how far their float64 evaluation may be from exact.

To add a layer, write a function of the layer, the shape of its input, C×H×W, and whether its proof may take long, and add a
line to `LAYER_BOUNDS`. Layers are looked up by their exact type, because a subclass may compute something else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from locality.conv_norms import conv_norm_upper
from locality.errors import ArgumentError
from locality.operator_norms import (
    SLIGHTLY_MORE,
    UNIT_ROUNDOFF,
    absolute_conv_norm_upper,
    gamma,
    matrix_norm_upper,
    output_size,
)
from locality.zoo.nets.centroid import CentroidHead
from locality.zoo.nets.lipschitz import (
    ConventionalResidual,
    LinearResidual,
    LipschitzConv2d,
    LipschitzLinear,
    MinMax,
    NormalisedHead,
)
from locality.zoo.nets.residual import ResidualBlock

Shape = tuple[int, ...]  # of one image's input


class LayerFunction(Protocol):
    """The bound of a layer; `tight` allows a proof of two minutes."""

    def __call__(self, layer: Any, shape: Shape, tight: bool = False, /) -> LayerBound: ...


@dataclass(frozen=True)
class LayerBound:
    """Upper bounds for a layer g, and for layers in a row.

    For exact inputs: ‖g(x) − g(x′)‖ ≤ norm·‖x − x′‖ and ‖g(x)‖ ≤ norm·‖x‖ + offset. Evaluated in float64 at an input that is
    wrong by e, the output is wrong by norm·e + rate·(‖x‖ + e) + shift at most.
    """

    norm: float = 1.0
    offset: float = 0.0
    rate: float = 0.0
    shift: float = 0.0

    def then(self, after: LayerBound) -> LayerBound:
        """The bound of this layer followed by another.

        >>> LayerBound(norm=2.0, offset=1.0).then(LayerBound(norm=3.0, offset=0.5))  # doctest: +ELLIPSIS
        LayerBound(norm=6.00000000000000..., offset=3.50000000000000..., rate=0.0, shift=0.0)
        """
        of_error = after.norm + after.rate
        return LayerBound(
            norm=self.norm * after.norm * SLIGHTLY_MORE,
            offset=(after.norm * self.offset + after.offset) * SLIGHTLY_MORE,
            rate=(of_error * self.rate + after.rate * self.norm) * SLIGHTLY_MORE,
            shift=(of_error * self.shift + after.rate * self.offset + after.shift) * SLIGHTLY_MORE,
        )

    def plus(self, other: LayerBound) -> LayerBound:
        """The bound of the sum of two branches with the same input."""
        norm, offset = (self.norm + other.norm) * SLIGHTLY_MORE, (self.offset + other.offset) * SLIGHTLY_MORE
        return LayerBound(
            norm,
            offset,
            rate=(self.rate + other.rate + UNIT_ROUNDOFF * norm) * SLIGHTLY_MORE,
            shift=(self.shift + other.shift + UNIT_ROUNDOFF * offset) * SLIGHTLY_MORE,
        )

    def magnitude(self, length: Tensor) -> Tensor:
        """Upper bounds on the length of the output, for inputs of these lengths."""
        return (self.norm * length + self.offset) * SLIGHTLY_MORE

    def error(self, length: Tensor) -> Tensor:
        """Upper bounds on the rounding error of the output, for exact inputs of these lengths."""
        return (self.rate * length + self.shift) * SLIGHTLY_MORE


EXACT = LayerBound()  # 1-Lipschitz, keeps zero at zero, and is evaluated without rounding


def affine(norm: float, absolute: float, offset: float, terms: int) -> LayerBound:
    """The bound of x ↦ Ax + b from ‖A‖, the norm of |A|, ‖b‖ and the number of terms of an inner product."""
    error = gamma(terms)
    return LayerBound(norm, offset, error * absolute * SLIGHTLY_MORE, error * offset * SLIGHTLY_MORE)


def length_upper(values: Tensor | None, times: int = 1) -> float:
    """‖values‖·√times, rounded up; 0 without values."""
    if values is None:
        return 0.0
    return float(values.detach().norm()) * math.sqrt(times) * (1 + gamma(values.numel() + 8))


def normalisation(mean: Tensor, std: Tensor, shape: Shape) -> LayerBound:
    """(x − mean)/std, whose Lipschitz constant is 1/min(std)."""
    norm = SLIGHTLY_MORE / float(std.min())
    return affine(norm, norm, length_upper(mean / std, math.prod(shape[1:])), terms=4)


def convolution(
    kernel: Tensor, bias: Tensor | None, shape: Shape, stride: Any = 1, padding: Any = 0, *, tight: bool = False
) -> LayerBound:
    """conv2d with a kernel that has all its channels and taps."""
    size = (shape[1], shape[2])
    positions = math.prod(output_size(kernel, size, stride, padding))
    return affine(
        conv_norm_upper(kernel, size, stride, padding, tight=tight),
        absolute_conv_norm_upper(kernel, stride, padding),
        length_upper(bias, positions),
        terms=kernel[0].numel() + 2,
    )


def _conv2d(layer: nn.Conv2d, shape: Shape, tight: bool = False) -> LayerBound:
    if layer.padding_mode != "zeros":
        raise ArgumentError("padding_mode", "zeros in every convolution to be certified", layer.padding_mode)
    kernel, dilation = layer.weight.detach(), (layer.dilation[0], layer.dilation[1])
    outputs, inputs, *taps = kernel.shape
    spread = [(count - 1) * step + 1 for count, step in zip(taps, dilation, strict=True)]
    dense = kernel.new_zeros(outputs, inputs * layer.groups, *spread)
    for group in range(layer.groups):
        rows = slice(group * outputs // layer.groups, (group + 1) * outputs // layer.groups)
        columns = slice(group * inputs, (group + 1) * inputs)
        dense[rows, columns, :: dilation[0], :: dilation[1]] = kernel[rows]
    padding: Any = layer.padding
    if isinstance(padding, str):  # "same" pads one pixel more on one side; here both sides get it, which drops no output
        padding = tuple(count // 2 for count in spread) if padding == "same" else 0
    return convolution(dense, layer.bias, shape, (layer.stride[0], layer.stride[1]), padding, tight=tight)


def _linear(layer: nn.Linear | NormalisedHead, shape: Shape, tight: bool = False) -> LayerBound:
    weight = (layer.rows() if isinstance(layer, NormalisedHead) else layer.weight).detach()
    positions = math.prod(shape[:-1])
    absolute = float(matrix_norm_upper(weight.abs()))
    return affine(float(matrix_norm_upper(weight)), absolute, length_upper(layer.bias, positions), weight.shape[1] + 2)


def _centroids(layer: CentroidHead, shape: Shape, tight: bool = False) -> LayerBound:
    """Distances, each of them 1-Lipschitz."""
    norm = math.sqrt(layer.out_features) * SLIGHTLY_MORE
    longest = max(length_upper(row) for row in layer.centroids.flatten(0, 1))
    return affine(norm, norm, norm * longest * SLIGHTLY_MORE, terms=layer.in_features + 8)


def _linear_residual(layer: LinearResidual, shape: Shape, tight: bool = False) -> LayerBound:
    return convolution(layer.kernel().detach(), layer.bias, shape, padding=1, tight=tight)


def _conventional_residual(block: ConventionalResidual, shape: Shape, tight: bool = False) -> LayerBound:
    multiplier = abs(float(block.multiplier.detach()))
    inner = _conv2d(block.first, shape, tight).then(_conv2d(block.second, shape, tight))
    return EXACT.plus(inner.then(affine(multiplier, multiplier, 0.0, terms=1)))


def _residual(block: ResidualBlock, shape: Shape, tight: bool = False) -> LayerBound:
    half = (block.first.out_channels, *output_size(block.first.weight, (shape[1], shape[2]), block.first.stride[0], 1))
    inner = _conv2d(block.first, shape, tight).then(_batch_norm(block.first_norm, half))
    inner = inner.then(_conv2d(block.second, half, tight)).then(_batch_norm(block.second_norm, half))
    short = EXACT
    if isinstance(block.short_cut, nn.Sequential):
        convolved, normalised = block.short_cut
        assert isinstance(convolved, nn.Conv2d)
        assert isinstance(normalised, nn.BatchNorm2d)
        short = _conv2d(convolved, shape, tight).then(_batch_norm(normalised, half))
    return inner.plus(short)


def _batch_norm(layer: nn.BatchNorm2d | nn.BatchNorm1d, shape: Shape, tight: bool = False) -> LayerBound:
    mean, variance = layer.running_mean, layer.running_var
    if layer.training or mean is None or variance is None:
        statistics = "with statistics of the batch, one image's logits depend on the others"
        got, hint = "training mode", f"call model.eval(): {statistics}"
        if not layer.training:
            got, hint = "no running statistics", f"train with track_running_stats=True: {statistics}"
        raise ArgumentError("model", "in eval mode with running statistics of BatchNorm", got, hint)
    ones = torch.ones_like(variance)
    factor = (ones if layer.weight is None else layer.weight.detach()) / (variance + layer.eps).sqrt()
    largest = float(factor.abs().max()) * (1 + gamma(8))
    constant = (factor * mean).abs() + (0 if layer.bias is None else layer.bias.detach().abs())
    return affine(largest, largest, length_upper(constant, math.prod(shape[1:])), terms=16)


def _average_pool(layer: nn.AvgPool2d, shape: Shape, tight: bool = False) -> LayerBound:
    """A convolution of every channel with the same kernel."""
    padded = layer.padding not in (0, (0, 0))
    if layer.ceil_mode or layer.divisor_override or (padded and not layer.count_include_pad):
        raise ArgumentError("AvgPool2d", "one that divides by its kernel's size everywhere", str(layer))
    return _averaging(layer.kernel_size, layer.stride, layer.padding, shape)


def _adaptive_average_pool(layer: nn.AdaptiveAvgPool2d, shape: Shape, tight: bool = False) -> LayerBound:
    wanted = layer.output_size if isinstance(layer.output_size, tuple) else (layer.output_size,) * 2
    outputs = [whole if count is None else count for count, whole in zip(wanted, shape[1:], strict=True)]
    if any(whole % count for count, whole in zip(outputs, shape[1:], strict=True)):
        raise ArgumentError("AdaptiveAvgPool2d", f"of an output that divides its input of {shape[1]}×{shape[2]}", str(layer))
    windows = (shape[1] // outputs[0], shape[2] // outputs[1])
    return _averaging(windows, windows, 0, shape)


def _averaging(taps: Any, stride: Any, padding: Any, shape: Shape, tight: bool = False) -> LayerBound:
    high, wide = (taps, taps) if isinstance(taps, int) else taps
    kernel = torch.full((1, 1, high, wide), 1 / (high * wide), dtype=torch.float64)
    exact = convolution(kernel, None, shape, stride, padding)
    # The kernel of ones over a whole number is itself rounded.
    return affine(exact.norm * SLIGHTLY_MORE, exact.norm * SLIGHTLY_MORE, 0.0, terms=high * wide + 4)


def _max_pool(layer: nn.MaxPool2d, shape: Shape, tight: bool = False) -> LayerBound:
    """√(the largest number of windows that a pixel is in): 1 where windows do not overlap."""
    overlaps = 1
    for axis in (0, 1):
        taps, stride, dilation = (
            value if isinstance(value, int) else value[axis] for value in (layer.kernel_size, layer.stride, layer.dilation)
        )
        overlaps *= math.ceil(((taps - 1) * dilation + 1) / stride)
    return LayerBound(norm=math.sqrt(overlaps) * (SLIGHTLY_MORE if overlaps > 1 else 1))


def _leaky_relu(layer: nn.LeakyReLU, shape: Shape, tight: bool = False) -> LayerBound:
    largest = max(1.0, abs(layer.negative_slope))
    return affine(largest, largest, 0.0, terms=1)


def _clamp(layer: nn.Hardtanh, shape: Shape, tight: bool = False) -> LayerBound:
    # Zero may be mapped to a limit, so that the output of a zero input has a length.
    least = max(layer.min_val, 0.0) + max(-layer.max_val, 0.0)
    return LayerBound(offset=least * math.sqrt(math.prod(shape)) * (1 + 1e-15))


def _flatten(layer: nn.Flatten, shape: Shape, tight: bool = False) -> LayerBound:
    if layer.start_dim < 1:
        raise ArgumentError("Flatten", "one that keeps images apart (start_dim=1)", str(layer))
    return EXACT


def _dropout(layer: nn.Module, shape: Shape, tight: bool = False) -> LayerBound:
    if layer.training:
        hint = "call model.eval(), or certify the votes of noisy copies by smoothing"
        raise ArgumentError("model", "in eval mode, in which dropout does nothing", "training mode", hint)
    return EXACT


def _exact(layer: nn.Module, shape: Shape, tight: bool = False) -> LayerBound:
    return EXACT


LAYER_BOUNDS: dict[type[nn.Module], LayerFunction] = {
    nn.Conv2d: _conv2d,
    LipschitzConv2d: _conv2d,
    LinearResidual: _linear_residual,
    ConventionalResidual: _conventional_residual,
    ResidualBlock: _residual,
    nn.Linear: _linear,
    LipschitzLinear: _linear,
    NormalisedHead: _linear,
    CentroidHead: _centroids,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_average_pool,
    nn.MaxPool2d: _max_pool,
    nn.LeakyReLU: _leaky_relu,
    nn.Hardtanh: _clamp,
    nn.ReLU6: _clamp,
    nn.ReLU: _exact,
    MinMax: _exact,
    nn.Identity: _exact,
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
}
