"""Layers of transformers: Captum's map of tokens against one computed by hand."""

from typing import Any

import pytest
import torch
from small_transformers import hugging_face_vit, timm_swin, timm_vit
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import method
from locality.attribution.token_grid import Grid, channels_last, token_grid
from locality.zoo.nets import NETS

# Network, layer, image size, tokens before those of the patches.
NETWORKS: dict[str, tuple[Any, str, tuple[int, int], int]] = {
    "timm": (timm_vit, "blocks.0", (32, 24), 1),
    "timm with registers": (lambda: timm_vit(reg_tokens=3), "blocks.0", (32, 24), 4),
    "tiny_vit": (lambda: NETS["tiny_vit"](4, width=16, depth=2, heads=2), "blocks.1", (64, 64), 0),
    "Hugging Face": (hugging_face_vit, "vit.layers.0", (32, 24), 1),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradcam_of_tokens_is_as_computed_by_hand(name: str) -> None:
    make, layer, size, prefix = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().eval()
        images = torch.rand(3, 3, *size)
    kept: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        tokens = output[0] if isinstance(output, tuple) else output
        tokens.retain_grad()
        kept.append(tokens)

    hook = dict(net.named_modules())[layer].register_forward_hook(keep)
    output = net(images.clone().requires_grad_())
    hook.remove()
    logits = output if isinstance(output, Tensor) else output.logits
    logits[:, 2].sum().backward()
    tokens, gradient = kept[0].detach()[:, prefix:], kept[0].grad
    assert gradient is not None
    weights = gradient[:, prefix:].mean(1, keepdim=True)  # of each channel, over the patches
    plane = (weights * tokens).sum(2).view(3, 1, size[0] // 8, size[1] // 8)
    expected = functional.interpolate(plane, size, mode="bilinear")
    maps = method(f"captum:LayerGradCam@{layer}")(net).attribute(images, target=2)
    assert maps.shape == images.shape
    assert float(expected.abs().max()) > 1e-4
    assert torch.allclose(maps.sum(1, keepdim=True), expected, rtol=1e-4, atol=1e-6)
    product = method(f"captum:LayerGradientXActivation@{layer}")(net).attribute(images, target=2)
    plane = (gradient[:, prefix:] * tokens).sum(2).view_as(plane)
    by_hand = functional.interpolate(plane, size, mode="bilinear")
    assert torch.allclose(product.sum(1, keepdim=True), by_hand, rtol=1e-4, atol=1e-6)


def test_layers_of_swin_have_their_channels_last() -> None:
    """The map of N×H×W×C is that of the same values as N×C×H×W."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = timm_swin().eval()
        images = torch.rand(2, 3, 64, 64)
    kept: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Tensor) -> None:
        output.retain_grad()
        kept.append(output)

    hook = net.layers[0].register_forward_hook(keep)  # type: ignore[index, union-attr]
    net(images.clone().requires_grad_())[:, 2].sum().backward()
    hook.remove()
    values, gradient = kept[0].detach(), kept[0].grad
    assert gradient is not None
    assert values.shape == (2, 16, 16, 8)  # rows, columns, channels
    plane = (gradient.mean((1, 2), keepdim=True) * values).sum(3)[:, None]
    expected = functional.interpolate(plane, (64, 64), mode="bilinear")
    maps = method("captum:LayerGradCam@layers.0")(net).attribute(images, target=2)
    assert float(expected.abs().max()) > 1e-4
    assert torch.allclose(maps.sum(1, keepdim=True), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "size", "stated", "last"),
    [
        ((1, 7, 7, 768), (224, 224), False, True),
        ((1, 768, 7, 7), (224, 224), False, False),
        ((1, 768, 7, 7), (224, 224), True, False),
        ((1, 8, 6, 32), (256, 192), False, True),
        ((1, 8, 6, 32), (192, 256), False, False),  # of an image lying down
        ((1, 16, 16, 16), (64, 64), False, False),  # both fit: as usual, unless the network states otherwise
        ((1, 16, 16, 16), (64, 64), True, True),
        ((1, 512, 1, 1), (224, 224), False, False),
    ],
)
def test_where_the_channels_are(shape: tuple[int, ...], size: tuple[int, int], stated: bool, last: bool) -> None:
    assert channels_last(shape, size, stated) is last


def test_integrated_gradients_of_a_layer_see_the_patches() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = timm_vit(global_pool="avg").eval()
        images = torch.rand(2, 3, 32, 24)
    maps = method("captum:LayerIntegratedGradients@blocks.0")(net).attribute(images, target=1, n_steps=8)
    assert maps.shape == images.shape
    assert float(maps.abs().max()) > 0


def test_tokens_that_are_no_grid_are_refused() -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Identity(), nn.Linear(3, 4)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(self.tokens(images.flatten(2)[:, :, :2].transpose(1, 2)).mean(1))
            return logits

    with pytest.raises(ValueError, match=r"`layer` must be a layer with spatial output, .* got '2 tokens of tokens'"):
        method("captum:LayerGradCam@tokens")(Sequence()).attribute(torch.rand(1, 3, 28, 4))


@pytest.mark.parametrize(
    ("tokens", "size", "prefix", "grid"),
    [
        (64, (64, 64), None, Grid(0, 8, 8)),
        (65, (64, 64), None, Grid(1, 8, 8)),
        (198, (224, 224), None, Grid(2, 14, 14)),
        (50, (224, 224), 1, Grid(1, 7, 7)),
        (9, (32, 32), 5, Grid(5, 2, 2)),  # without the number it would be 3 × 3
        (7, (224, 32), None, Grid(0, 7, 1)),
        (2, (224, 32), None, None),
    ],
)
def test_the_grid_of_a_number_of_tokens(tokens: int, size: tuple[int, int], prefix: int | None, grid: Grid | None) -> None:
    assert token_grid(tokens, size, prefix) == grid
