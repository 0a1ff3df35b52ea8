"""The Lipschitz constant of a network: the product of its layers' bounds, times the differences of its head's rows.

K_ji = K·‖w_j − w_i‖ bounds how fast the margin f_j − f_i can change, in pixels of [0, 1]; K is that of the penultimate
features, with the normalisation of the pixels. It holds on all of ℝ^d, for the network with its weights in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from locality.certified.layer_bounds import EXACT, LAYER_BOUNDS, LayerBound, affine, normalisation
from locality.errors import ArgumentError, ArgumentTypeError
from locality.operator_norms import SLIGHTLY_MORE, gamma
from locality.zoo.nets.centroid import CentroidHead
from locality.zoo.nets.lipschitz import NormalisedHead
from locality.zoo.pixel_model import PixelModel

INSTEAD = (
    "a sequence of convolutions, dense layers, BatchNorm, pools, ReLU and MinMax has a bound; randomised smoothing "
    "(`--by smoothing`, `by=Smoothing()`) certifies the votes of any model"
)


@dataclass(frozen=True, eq=False)
class LipschitzBound:
    """Upper bounds on Lipschitz constants for images of one size."""

    features: float  # of the penultimate features
    layers: tuple[tuple[str, float], ...]  # name and constant of each layer up to the features, in order
    shape: tuple[int, ...]  # C×H×W of the images
    differences: Tensor  # K×K float64, ‖w_j − w_i‖ of the head's rows, or 2 for centroids
    rounding: LayerBound  # of all layers up to the features
    head: LayerBound  # of the head; its `rate` and `shift` are those of a single logit

    @property
    def margins(self) -> Tensor:
        """K×K float64 constants of f_j − f_i; 0 on the diagonal."""
        return self.differences * self.features * SLIGHTLY_MORE

    @property
    def largest(self) -> float:
        """The largest constant of a margin."""
        return float(self.margins.max())

    def margin_errors(self, prediction: Tensor, length: Tensor) -> Tensor:
        """N×K bounds on the rounding error of f_j − f_i in float64, j the prediction, at inputs of these lengths."""
        error = self.rounding.error(length)
        of_logit = self.head.error(self.rounding.magnitude(length) + error)
        return (self.differences[prediction] * error[:, None] + 2 * of_logit[:, None]) * (1 + 1e-12)


def lipschitz_bound(
    model: nn.Module, input_size: tuple[int, int], channels: int = 3, *, tight: bool = False
) -> LipschitzBound:
    """Upper bounds for a network whose layers are in `LAYER_BOUNDS`; any other layer is an error that names it.

    `tight` proves large convolutions exactly to 1e-5, which takes up to two minutes for each.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.eye(2, 12))
    >>> round(lipschitz_bound(model, (2, 2)).margins[0, 1].item(), 6)  # √2, the length of w_0 − w_1
    1.414214
    """
    sides = input_size if isinstance(input_size, Sequence) else ()
    if len(sides) != 2 or any(not isinstance(side, int) or side < 1 for side in sides):
        raise ArgumentTypeError("input_size", "height and width in pixels, such as (64, 64)", input_size)
    exact = float64_copy(model)
    shape: tuple[int, ...] = (channels, *input_size)
    layers: list[tuple[str, float]] = []
    whole, net = EXACT, exact
    if isinstance(exact, PixelModel):
        _check_plain("model", exact, PixelModel)
        net, whole = exact.net, normalisation(exact.mean, exact.std, shape)
        layers.append(("normalisation", whole.norm))
    named = list(_sequence("", net))
    name, head = named.pop() if named else ("", net)
    if not isinstance(head, nn.Linear | NormalisedHead | CentroidHead):
        raise ArgumentError("model", "a network that ends in a linear layer", type(head).__name__, INSTEAD)
    values = torch.zeros(1, *shape, dtype=torch.float64)
    for place, layer in named:
        before = tuple(values.shape[1:])
        values = _evaluated(place, layer, values, input_size)
        bound = LAYER_BOUNDS[type(layer)](layer, before, tight)
        whole = whole.then(bound)
        layers.append((f"{place} {type(layer).__name__}", bound.norm))
    if _evaluated(name, head, values, input_size).shape[1:] != (head.out_features,) or head.out_features == 1:
        raise ArgumentError("model", "one that returns N×K logits of two classes or more", str(head))
    differences, of_logit = _head_bounds(head)
    return LipschitzBound(whole.norm, tuple(layers), shape, differences, rounding=whole, head=of_logit)


def _head_bounds(head: nn.Linear | NormalisedHead | CentroidHead) -> tuple[Tensor, LayerBound]:
    """K×K constants of the differences of two logits in the features, and the bound of a single logit."""
    upwards, terms = 1 + gamma(head.in_features + 8), head.in_features + 4
    if isinstance(head, CentroidHead):  # distances are 1-Lipschitz, so their differences are 2-Lipschitz
        longest = float(head.centroids.detach().norm(dim=2).max()) * upwards
        classes = head.out_features
        return 2 * (1 - torch.eye(classes, dtype=torch.float64)), affine(1.0, 1.0, longest, terms + 4)
    rows = (head.rows() if isinstance(head, NormalisedHead) else head.weight).detach()
    row, bias = float(rows.norm(dim=1).max()) * upwards, 0.0 if head.bias is None else float(head.bias.detach().abs().max())
    return (rows[:, None] - rows[None]).norm(dim=2) * upwards, affine(row, row, bias, terms)


def _evaluated(name: str, layer: nn.Module, values: Tensor, size: tuple[int, int]) -> Tensor:
    try:
        with torch.no_grad():
            output: Tensor = layer(values)
    except RuntimeError as error:
        hint = (
            f"layer {name} ({type(layer).__name__}) does not fit; resize the images to the size that the network is made for"
        )
        raise ArgumentError("input_size", "a size that the network takes", size, hint) from error
    if not isinstance(output, Tensor):  # a max pool with return_indices
        several = f"{type(output).__name__} of {type(layer).__name__} ({name})"
        raise ArgumentError("model", "made of layers that return one tensor", several)
    return output


def float64_copy(model: nn.Module) -> nn.Module:
    """A copy of the model in float64 on the CPU, which is what is certified; raises where a copy means something else."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError("model", "a torch module, whose layers can be bounded", type(model).__name__, INSTEAD)
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise ArgumentError("model", "made of layers with a Lipschitz bound", "a TorchScript program", INSTEAD)
    low = {tensor.dtype for tensor in model.parameters() if tensor.is_floating_point() and tensor.dtype.itemsize < 4}
    if low:
        hint = "certify model.float(), which has the same weights; logits of half precision have no useful bound"
        raise ArgumentError("model", "in float32 or float64", str(low.pop()), hint)
    return copy.deepcopy(model).to("cpu", torch.float64)


def _sequence(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers that the module applies one after the other, nested sequences included."""
    if type(module).forward is nn.Sequential.forward:
        _check_plain(name or "model", module, nn.Sequential)
        for key, child in module.named_children():
            yield from _sequence(f"{name}.{key}" if name else key, child)
        return
    kind = type(module)
    if kind not in LAYER_BOUNDS:
        raise ArgumentError(
            "model", "made of layers with a Lipschitz bound", f"{kind.__name__} ({name or 'model'})", INSTEAD
        )
    _check_plain(name, module, kind)
    yield name, module


def _check_plain(name: str, module: nn.Module, kind: type[nn.Module]) -> None:
    """Raise if the module computes something else than its type says."""
    hooks = any(part._forward_hooks or part._forward_pre_hooks for part in _own_parts(module))
    if hooks or any("forward" in vars(part) for part in _own_parts(module)) or type(module).forward is not kind.forward:
        got = f"{type(module).__name__} ({name}) with one"
        raise ArgumentError(
            "model", "without hooks and replaced methods", got, f"remove them if there is no need; {INSTEAD}"
        )


def _own_parts(module: nn.Module) -> Iterator[nn.Module]:
    return iter([module]) if isinstance(module, nn.Sequential | PixelModel) else module.modules()


def image_lengths(images: Tensor) -> Tensor:
    """N float64 upper bounds on the lengths of the images."""
    lengths: Tensor = images.flatten(1).norm(dim=1)
    return lengths * (1 + gamma(math.prod(images.shape[1:]) + 8))
