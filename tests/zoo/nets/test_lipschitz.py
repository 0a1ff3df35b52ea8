"""Lipschitz layers and networks: what they compute, estimates from below, directions that checkpoints leave out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from locality.operator_norms import conv_matrix
from locality.zoo.nets import NETS
from locality.zoo.nets.lipschitz import (
    ConventionalResidual,
    LinearResidual,
    LipschitzConv2d,
    LipschitzLinear,
    LipschitzNet,
    MinMax,
    NormalisedHead,
    WithNorm,
)

NAMES = ("liresnet", "lip_convnet", "lip_resnet")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def small_net(name: str = "liresnet", depth: int = 2) -> LipschitzNet:
    net = NETS[name](5, depth=depth, width=4, dimension=6)
    assert isinstance(net, LipschitzNet)
    return net


def estimate(layer: Any, steps: int) -> float:
    return float(layer.norm(steps).detach())


def top_singular_value(matrix: Tensor) -> float:
    return float(torch.linalg.svdvals(matrix.detach().double())[0])


def test_min_max_sorts_pairs_and_keeps_lengths() -> None:
    features = torch.randn(3, 8, 2, 2)
    sorted_pairs = MinMax()(features)
    pairs = torch.stack(features.chunk(2, dim=1)).sort(0, descending=True).values
    assert torch.equal(sorted_pairs, torch.cat(list(pairs), dim=1))
    assert torch.equal(sorted_pairs.flatten(1).sort().values, features.flatten(1).sort().values)
    with pytest.raises(ValueError, match="`features` must be of an even number of channels for MinMax, got 3"):
        MinMax()(torch.zeros(1, 3))


def test_min_max_has_the_gradients_of_max_and_min() -> None:
    features = torch.randn(3, 8, 2, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 8, 2, 2, dtype=torch.float64)
    first, second = features.chunk(2, dim=1)
    plain = torch.cat([torch.maximum(first, second), torch.minimum(first, second)], dim=1)
    expected = torch.autograd.grad((plain * weights).sum(), features)[0]
    assert torch.equal(torch.autograd.grad((MinMax()(features) * weights).sum(), features)[0], expected)
    assert torch.autograd.gradgradcheck(lambda x: MinMax()(x).square(), features)
    # Under torch.func, as bench/speed/curvature.py does.
    each = torch.func.vmap(torch.func.grad(lambda image: (MinMax()(image[None]) ** 2).sum()))(features.detach())
    assert torch.allclose(each, 2 * features)


def test_a_linear_residual_is_the_sum_that_its_name_says() -> None:
    layer, features = LinearResidual(4, size=6, depth=9), torch.randn(2, 4, 6, 6)
    layer.multiplier.data = torch.randn(4, 1, 1, 1)
    layer.bias.data = torch.randn(4)
    convolved = nn.functional.conv2d(features, layer.weight, padding=1)
    expected = features + convolved * layer.multiplier.view(4, 1, 1) / 3 + layer.bias.view(4, 1, 1)
    assert torch.allclose(layer(features), expected, atol=1e-5)


def test_a_conventional_block_begins_as_the_identity() -> None:
    block, features = ConventionalResidual(4, size=6), torch.randn(2, 4, 6, 6)
    assert torch.equal(block(features), features)
    assert block.norm(5) == 1
    block.multiplier.data.fill_(-0.5)
    inner = block.second(MinMax()(block.first(features)))
    assert torch.allclose(block(features), features - 0.5 * inner)
    norms = [top_singular_value(conv_matrix(part.weight, (6, 6), padding=1)) for part in (block.first, block.second)]
    assert block.norm(300).item() == pytest.approx(1 + 0.5 * norms[0] * norms[1], rel=1e-3)


def test_estimates_converge_to_the_norm_from_below() -> None:
    convolution, in_blocks, dense, residual = (
        LipschitzConv2d(3, 4, 5, 9, stride=2, padding=2),
        LipschitzConv2d(3, 20, 2, 9, stride=3),
        LipschitzLinear(7, 5),
        LinearResidual(4, 6, 1),
    )
    in_blocks.weight.data = torch.randn_like(in_blocks.weight)  # its first value has many equal singular values
    residual.weight.data *= 20
    matrices = {
        convolution: conv_matrix(convolution.weight, (9, 9), 2, 2),
        in_blocks: conv_matrix(in_blocks.weight, (9, 9), 3),
        dense: dense.weight,
        residual: conv_matrix(residual.kernel(), (6, 6), padding=1),
    }
    for layer, matrix in matrices.items():
        exact = top_singular_value(matrix)
        first = estimate(layer, 1)
        for _ in range(100):
            last = estimate(layer, 5)  # each call starts where the last one ended
        assert first < 0.999 * exact
        assert last == pytest.approx(exact, rel=1e-3)
        assert last <= exact * (1 + 1e-6)


def test_a_normalised_head_ignores_the_lengths_of_its_rows() -> None:
    head, features = NormalisedHead(6, 3), torch.randn(2, 6)
    before = head(features)
    assert torch.allclose(head.rows().norm(dim=1), torch.ones(3))
    head.weight.data *= torch.tensor([[2.0], [30.0], [0.1]])
    assert torch.allclose(head(features), before, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_networks_norm_is_the_product_of_its_layers(name: str) -> None:
    net = small_net(name)
    product = 1.0
    for layer in list(net)[:-1]:
        if hasattr(layer, "norm"):
            product *= estimate(layer, 4)
    assert sum(hasattr(layer, "norm") for layer in net) == 5  # stem, two blocks, two of the neck
    again = small_net(name)
    again.load_state_dict(net.state_dict())
    assert again.features_norm(4).item() == pytest.approx(product, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_estimates_all_its_layers_at_once_as_if_each_was_alone(name: str) -> None:
    together, alone = small_net(name, depth=3), small_net(name, depth=3)
    for weight in together.parameters():
        weight.data = torch.randn_like(weight)  # blocks differ, and none is the identity
    alone.load_state_dict(together.state_dict())
    for _ in range(2):  # the second time from where the first one ended
        layers = [layer for layer in alone if isinstance(layer, WithNorm)]
        product = together.features_norm(2)
        expected = torch.stack([layer.norm(2) for layer in layers]).prod()
        assert product.item() == pytest.approx(expected.item(), rel=1e-5)
        product.log().backward()
        expected.log().backward()
    found = dict(together.named_parameters())
    for key, weight in alone.named_parameters():
        gradient, expected_gradient = found[key].grad, weight.grad
        assert (gradient is None) == (expected_gradient is None), key
        if gradient is not None and expected_gradient is not None:
            assert torch.allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-6), key
    directions = dict(together.named_buffers())
    for key, direction in alone.named_buffers():
        assert torch.allclose(directions[key], direction, atol=1e-5), key
        assert directions[key].shape == direction.shape
    assert len({directions[key].untyped_storage().data_ptr() for key in directions}) == len(directions)


def test_margin_norms_are_differences_of_rows_and_have_gradients() -> None:
    net = small_net()
    head = net.head
    assert isinstance(head, NormalisedHead)
    margins = net.margin_norms(3)
    assert margins.diagonal().tolist() == [0] * 5
    assert torch.allclose(margins, margins.T)
    ratio = (margins / torch.cdist(head.rows(), head.rows()))[0, 1:]
    assert torch.allclose(ratio, ratio[0].expand(4), rtol=1e-4)
    margins.sum().backward()
    moved = {name for name, weight in net.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert {name for name, _ in net.named_parameters() if not name.endswith("bias")} == moved
    assert all(torch.isfinite(weight.grad).all() for weight in net.parameters() if weight.grad is not None)


def test_directions_are_remembered_but_not_saved() -> None:
    net = small_net()
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    weights = {name: value.clone() for name, value in net.state_dict().items()}
    assert before
    assert not set(before) & set(weights)
    net.features_norm(2)
    assert not any(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_options_of_the_networks(name: str) -> None:
    net = small_net(name)
    assert net.penultimate(torch.rand(2, 3, 64, 64)).shape == (2, 6)
    assert len(small_net(name, depth=7)) - len(small_net(name, depth=1)) == 12
    for options, sentence in (
        ({"depth": 0}, "`depth` must be a whole number from 1 to 256, got 0"),
        ({"width": 3}, "`width` must be even, because MinMax pairs channels, got 3"),
        ({"dimension": 99_999}, "`dimension` must be a whole number from 1 to 8,192, got 99999"),
        ({"stride": 3}, "`stride` must be 2 or 4, got 3"),
    ):
        with pytest.raises(ValueError, match=sentence):
            NETS[name](5, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_stem_of_stride_2_gives_the_blocks_larger_maps(name: str) -> None:
    """The sides that layers are told, for power iteration and bounds, are those of the maps they get."""
    net = NETS[name](5, depth=1, width=4, dimension=6, stride=2)
    assert isinstance(net, LipschitzNet)
    maps, sides = torch.rand(2, 3, 64, 64), []
    for layer in net:
        if isinstance(layer, LipschitzConv2d):
            assert layer.size == maps.shape[-1]
        if isinstance(layer, LinearResidual | ConventionalResidual) or (name == "lip_convnet" and layer is net[2]):
            sides.append(maps.shape[-1])
        maps = layer(maps)
    assert sides == [32]
    assert maps.shape == (2, 5)


def test_networks_can_be_built_without_memory() -> None:
    """Checks of recipes build networks on the meta device."""
    with torch.device("meta"):
        assert NETS["liresnet"](10).head.weight.is_meta  # type: ignore[union-attr]
    assert sum(parameter.numel() for parameter in NETS["liresnet"](10).parameters()) == pytest.approx(1.4e6, rel=0.05)
