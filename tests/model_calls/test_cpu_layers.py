from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from locality.model_calls.cpu_layers import CheaperLayers, has_cheaper_layers


def norm(**options: bool) -> nn.BatchNorm2d:
    """A layer in eval mode whose statistics and weights are not the ones it is born with."""
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(4, **options).eval()
    for tensor in (*layer.parameters(), *layer.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2.0)
    return layer


def value_and_gradient(layer: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What a layer makes of some numbers, and the gradient of a weighted sum of that."""
    draw = torch.Generator().manual_seed(1)
    leaf = (4 * torch.randn(3, 4, 5, 6, generator=draw)).to(dtype).requires_grad_()
    weights = torch.randn(3, 4, 5, 6, generator=draw).to(dtype)
    found = layer(leaf.clone().contiguous(memory_format=torch.channels_last))
    return found.detach(), torch.autograd.grad((found * weights).sum(), leaf)[0]


LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "norm": norm(),
    "norm without weights": norm(affine=False),
    "norm of the batch": norm(track_running_stats=False),
    "norm in training": norm(track_running_stats=False).train(),
    "relu6 in place": nn.ReLU6(inplace=True),
    "relu6": nn.ReLU6(),
    "relu6, the function": lambda pixels: functional.relu6(pixels, inplace=True),
    "hardtanh in place": nn.Hardtanh(-0.5, 2.5, inplace=True),
    "the input again": lambda pixels: nn.ReLU6(inplace=True)(pixels) + pixels,
    "a view": lambda pixels: torch.cat([nn.ReLU6(inplace=True)(pixels[:, :2]), pixels[:, 2:]], dim=1),
    "what a norm returns": nn.Sequential(norm(), nn.ReLU6(inplace=True), norm(), nn.ReLU(inplace=True)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_and_gradients_are_torchs(name: str, dtype: torch.dtype) -> None:
    layer = LAYERS[name]
    if isinstance(layer, nn.Module):
        layer = layer.to(dtype)
    expected = value_and_gradient(layer, dtype)
    with CheaperLayers():
        found = value_and_gradient(layer, dtype)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.03}[dtype]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_the_gradient_at_a_limit_is_torchs() -> None:
    def gradient() -> Tensor:
        leaf = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0]).requires_grad_()
        return torch.autograd.grad(nn.ReLU6(inplace=True)(1 * leaf).sum(), leaf)[0]

    expected = gradient()
    with CheaperLayers():
        assert torch.equal(gradient(), expected)


def test_the_layers_are_replaced_and_only_inside_the_block() -> None:
    layers = nn.Sequential(norm(), nn.ReLU6(inplace=True))
    leaf = torch.rand(1, 4, 2, 2).requires_grad_()

    def graph() -> list[str]:
        found = layers(leaf).grad_fn
        return [found.name(), found.next_functions[0][0].name()]

    with CheaperLayers():
        assert graph() == ["_ClampInPlaceBackward", "_ScaleAndShiftBackward"]
    assert graph() == ["HardtanhBackward0", "NativeBatchNormBackward0"]


def test_second_derivatives() -> None:
    def second() -> Tensor:
        leaf = torch.linspace(-1, 7, 16).reshape(1, 4, 2, 2).double().requires_grad_()
        found = nn.Sequential(norm().double(), nn.ReLU6(inplace=True))(leaf)
        (first,) = torch.autograd.grad((found**3).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.sum(), leaf)[0]

    expected = second()
    assert expected.abs().max() > 0
    with CheaperLayers():
        assert torch.allclose(second(), expected)


def test_which_models_have_them() -> None:
    assert has_cheaper_layers(list(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).modules()))
    assert has_cheaper_layers([nn.ReLU6()])
    assert not has_cheaper_layers(list(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)).modules()))
