"""Bounds of single layers against their Jacobians, and rounding bounds against evaluations in lower precision."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from locality.certified.layer_bounds import EXACT, LAYER_BOUNDS, LayerBound, affine, normalisation
from locality.operator_norms import UNIT_ROUNDOFF
from locality.zoo.nets.lipschitz import (
    ConventionalResidual,
    LinearResidual,
    LipschitzConv2d,
    LipschitzLinear,
    MinMax,
    NormalisedHead,
)
from locality.zoo.nets.residual import ResidualBlock

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
SHAPE = (4, 6, 6)


def normalised(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
    channels = layer.num_features
    layer.running_mean, layer.running_var = torch.randn(channels), torch.rand(channels) + 0.1
    layer.weight.data, layer.bias.data = torch.randn(channels), torch.randn(channels)
    return layer


def residual_block(stride: int, outputs: int) -> ResidualBlock:
    block = ResidualBlock(4, outputs, stride)
    for part in block.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean, part.running_var = torch.randn(outputs), torch.rand(outputs) + 0.1
    return block


def conventional() -> ConventionalResidual:
    block = ConventionalResidual(4, 6)
    block.multiplier.data.fill_(-0.7)
    return block


def layers() -> dict[str, tuple[nn.Module, float]]:
    """Layers, and how loose the bound may be at the loosest of a few points; inf where only soundness is checked."""
    torch.manual_seed(0)
    return {
        "conv": (nn.Conv2d(4, 6, 3, padding=1), 1.001),
        "conv stride": (nn.Conv2d(4, 6, 5, 2, padding=2), 1.001),
        "conv even": (nn.Conv2d(4, 6, 4, 2, padding=1, bias=False), 1.001),
        "conv groups": (nn.Conv2d(4, 6, 3, padding=1, groups=2), 1.001),
        "conv depthwise": (nn.Conv2d(4, 4, 3, padding=1, groups=4), 1.001),
        "conv dilation": (nn.Conv2d(4, 6, 2, dilation=2), 1.001),
        "conv same": (nn.Conv2d(4, 6, (4, 3), padding="same"), 1.1),
        "conv valid": (nn.Conv2d(4, 6, 3, padding="valid"), 1.001),
        "conv rectangle": (nn.Conv2d(4, 6, (3, 1), (1, 2), padding=(1, 0)), 1.001),
        "lipschitz conv": (LipschitzConv2d(4, 6, 3, 6, padding=1), 1.001),
        "linear residual": (LinearResidual(4, 6, 4), 1.001),
        "conventional residual": (conventional(), math.inf),
        "batch norm": (normalised(nn.BatchNorm2d(4)), 1.001),
        "batch norm of features": (nn.Sequential(nn.Flatten(), normalised(nn.BatchNorm1d(144))), 1.001),
        "average pool": (nn.AvgPool2d(2), 1.001),
        "average pool overlapping": (nn.AvgPool2d(3, 2, padding=1), 1.001),
        "adaptive pool": (nn.AdaptiveAvgPool2d(3), 1.001),
        "global pool": (nn.AdaptiveAvgPool2d(1), 1.001),
        "max pool": (nn.MaxPool2d(2), 1.001),
        "max pool overlapping": (nn.MaxPool2d(3, 2, padding=1), math.inf),
        "residual block": (residual_block(1, 4), math.inf),
        "residual block stride": (residual_block(2, 6), math.inf),
        "relu": (nn.ReLU(), 1.001),
        "relu6": (nn.ReLU6(), 1.001),
        "hardtanh": (nn.Hardtanh(0.25, 2.0), 1.001),
        "leaky relu": (nn.LeakyReLU(3.0), 1.001),
        "min max": (MinMax(), 1.001),
        "flatten": (nn.Flatten(), 1.001),
        "identity": (nn.Identity(), 1.001),
        "dropout": (nn.Dropout(0.5), 1.001),
        "linear": (nn.Sequential(nn.Flatten(), nn.Linear(144, 7)), 1.001),
        "lipschitz linear": (nn.Sequential(nn.Flatten(), LipschitzLinear(144, 7)), 1.001),
        "normalised head": (nn.Sequential(nn.Flatten(), NormalisedHead(144, 7)), 1.001),
    }


def drawn(name: str) -> tuple[nn.Module, LayerBound, float]:
    layer, loose = layers()[name]
    layer = layer.double().eval()
    inner = layer[1] if isinstance(layer, nn.Sequential) else layer
    shape = (144,) if isinstance(layer, nn.Sequential) else SHAPE
    return layer, LAYER_BOUNDS[type(inner)](inner, shape), loose


def points(count: int) -> Tensor:
    return torch.randn(count, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", layers())
def test_no_jacobian_is_larger_than_the_norm(name: str) -> None:
    layer, bound, loose = drawn(name)
    norms = []
    for point in points(4):
        jacobian = torch.func.jacrev(lambda x: layer(x[None])[0])(point)
        norms.append(float(torch.linalg.svdvals(jacobian.reshape(-1, 144))[0].detach()))
    assert max(norms) <= bound.norm <= loose * max(norms)


@pytest.mark.parametrize("name", layers())
def test_lengths_of_outputs(name: str) -> None:
    layer, bound, _ = drawn(name)
    inputs = torch.cat([points(4), torch.zeros(1, *SHAPE).double(), 1e-3 * points(2)])
    with torch.no_grad():
        outputs = layer(inputs).flatten(1).norm(dim=1)
    assert (outputs <= bound.magnitude(inputs.flatten(1).norm(dim=1)) * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", layers())
def test_rounding_errors_are_within_the_bound(name: str) -> None:
    """The same layer in float32, whose unit roundoff is 2²⁹ times as large: the bound scales with it."""
    layer, _, _ = drawn(name)
    layer = layer.float().double()  # weights that both precisions have
    inner = layer[1] if isinstance(layer, nn.Sequential) else layer
    bound = LAYER_BOUNDS[type(inner)](inner, (144,) if isinstance(layer, nn.Sequential) else SHAPE)
    inputs = points(3).float().double()
    with torch.no_grad():
        error = (copy.deepcopy(layer).float()(inputs.float()).double() - layer(inputs)).flatten(1).norm(dim=1)
    allowed = bound.error(inputs.flatten(1).norm(dim=1)) * 2**29
    if name in {"linear residual", "normalised head"}:
        # Their weights are computed: float32 applies others. The bound is for the weights as float64 computes them.
        allowed = allowed + 4 * 2**29 * UNIT_ROUNDOFF * bound.norm * inputs.flatten(1).norm(dim=1)
    assert (error <= allowed).all()
    if name in {"conv", "linear", "batch norm"}:
        assert (error > 0).all()


def test_rows_and_sums_of_layers() -> None:
    first, second = affine(2.0, 3.0, 0.5, terms=10), affine(0.25, 0.5, 1.0, terms=20)
    row, total = first.then(second), first.plus(second)
    length, error = torch.tensor(7.0).double(), 1e-9
    assert row.norm == pytest.approx(0.5)
    assert row.magnitude(length).item() == pytest.approx(0.25 * (14 + 0.5) + 1)
    after_first = 2 * error + first.rate * (7 + error) + first.shift
    after_second = 0.25 * after_first + second.rate * (14.5 + after_first) + second.shift
    assert row.norm * error + row.rate * (7 + error) + row.shift == pytest.approx(after_second, rel=1e-9)
    assert (total.norm, total.offset) == pytest.approx((2.25, 1.5))
    assert total.rate >= first.rate + second.rate + 2.25 * UNIT_ROUNDOFF
    assert EXACT.then(first).norm == pytest.approx(2)


def test_shortcuts_are_added() -> None:
    """A block that begins as the identity has the norm 1, not 0; one with branches has the sum of theirs."""
    block = ConventionalResidual(4, 6).double()
    assert LAYER_BOUNDS[ConventionalResidual](block, SHAPE).norm == pytest.approx(1, abs=1e-12)
    block.multiplier.data.fill_(-0.7)
    inner = [LAYER_BOUNDS[LipschitzConv2d](part, SHAPE).norm for part in (block.first, block.second)]
    assert LAYER_BOUNDS[ConventionalResidual](block, SHAPE).norm == pytest.approx(1 + 0.7 * inner[0] * inner[1])
    plain = residual_block(1, 4).double().eval()
    plain.second.weight.data.zero_()
    assert LAYER_BOUNDS[ResidualBlock](plain, SHAPE).norm == pytest.approx(1, abs=1e-12)


def test_normalisation_divides_by_the_smallest_deviation() -> None:
    bound = normalisation(torch.tensor([0.5, 0.5, 0.5]).double(), torch.tensor([0.5, 0.25, 1.0]).double(), (3, 2, 2))
    assert 4 <= bound.norm < 4 + 1e-12
    assert bound.offset == pytest.approx(math.sqrt(4 * (1 + 4 + 0.25)))


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (nn.BatchNorm2d(4), r"`model` must be in eval mode .* got 'training mode': call model.eval\(\)"),
        (
            nn.BatchNorm2d(4, track_running_stats=False).eval(),
            r"got 'no running statistics': train with track_running_stats=True",
        ),
        (nn.Dropout(), "`model` must be in eval mode, in which dropout does nothing"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), "`padding_mode` must be zeros"),
        (nn.AvgPool2d(3, 2, ceil_mode=True), "`AvgPool2d` must be one that divides by its kernel's size"),
        (nn.AvgPool2d(3, 2, padding=1, count_include_pad=False), "`AvgPool2d` must be one"),
        (nn.AdaptiveAvgPool2d(4), "`AdaptiveAvgPool2d` must be of an output that divides its input of 6×6"),
        (nn.Flatten(0), "`Flatten` must be one that keeps images apart"),
    ],
)
def test_layers_without_a_bound(layer: nn.Module, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        LAYER_BOUNDS[type(layer)](layer, SHAPE)
