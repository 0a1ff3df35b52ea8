"""Attention rollout: a network whose attention is known, published networks against their own weights, promises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_state import same, state
from small_transformers import hugging_face_vit, timm_swin, timm_vit
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import METHODS, GradientRollout, Rollout, attention_rollout, attribute_all
from locality.attribution.attention_weights import AttentionWeights
from locality.attribution.rollout import fused, read_rows, rolled_out
from locality.zoo.load import load_model
from locality.zoo.nets import NETS


class Known(nn.Module):
    """Two layers of attention with fixed weights over a class token and 2×2 patches of 4×4 pixels."""

    def __init__(self, weights: Tensor, fused_attention: bool) -> None:
        super().__init__()
        self.scores, self.fused_attention = weights.log(), fused_attention
        self.num_prefix_tokens = 1

    def forward(self, images: Tensor) -> Tensor:
        patches = functional.avg_pool2d(images, 4).flatten(2).transpose(1, 2)
        tokens = torch.cat([patches.mean(1, keepdim=True), patches], 1)
        for scores in self.scores:
            if self.fused_attention:
                values = tokens[:, None].expand(-1, 2, -1, -1)
                nothing = torch.zeros_like(values)
                heads = functional.scaled_dot_product_attention(nothing, nothing, values, attn_mask=scores)
            else:
                heads = scores.expand(len(images), -1, -1, -1).softmax(-1) @ tokens[:, None]
            tokens = tokens + heads.mean(1)
        return tokens[:, 0]


def known(fused_attention: bool = True) -> tuple[Known, Tensor]:
    weights = torch.rand(2, 2, 5, 5, generator=torch.Generator().manual_seed(1)) ** 3
    weights = weights / weights.sum(-1, keepdim=True)  # layers × heads × queries × keys
    return Known(weights, fused_attention), weights


def test_the_map_is_the_matrix_product_done_by_hand() -> None:
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for fused_attention in (True, False):
        model, weights = known(fused_attention)
        first, second = (weights.mean(1) + torch.eye(5)) / 2
        row = (second @ first)[0, 1:].view(1, 1, 2, 2)
        expected = functional.interpolate(row, (8, 8), mode="bilinear").expand(3, 3, 8, 8) / 3
        assert torch.allclose(attention_rollout(model, images, 1), expected, atol=1e-6)
        assert not torch.allclose((first @ second)[0, 1:].view(1, 1, 2, 2), row, atol=1e-3), "the order matters"


def test_the_map_weighted_by_gradients_done_by_hand() -> None:
    model, weights = known(False)
    images = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    leaves = [layer.clone().requires_grad_() for layer in weights]
    patches = functional.avg_pool2d(images, 4).flatten(2).transpose(1, 2)
    tokens = torch.cat([patches.mean(1, keepdim=True), patches], 1) - 0.5  # so that some gradients are negative
    for layer in leaves:
        tokens = tokens + (layer @ tokens[:, None]).mean(1)
    slopes = torch.autograd.grad(tokens[0, 0, 2], leaves)
    assert any((slope < 0).any() and (slope > 0).any() for slope in slopes)
    first, second = ((slope * layer.detach()).clamp_min(0).mean(0) for slope, layer in zip(slopes, leaves, strict=True))
    relevance = torch.eye(5) + first
    relevance = relevance + second @ relevance
    row = (relevance - torch.eye(5))[0, 1:].view(1, 1, 2, 2)
    shifted = lambda pixels: model(pixels - 0.5)  # noqa: E731
    found = attention_rollout(shifted, images, 2, gradients=True)
    assert torch.allclose(found, functional.interpolate(row, (8, 8), mode="bilinear").expand(1, 3, 8, 8) / 3, atol=1e-6)
    assert not torch.allclose(attention_rollout(shifted, images, 1, gradients=True), found, atol=1e-4)


def test_mass_lies_where_the_attended_patch_is() -> None:
    for patch in range(4):
        weights = torch.full((2, 2, 5, 5), 1e-6)
        weights[..., 1 + patch] = 1.0
        maps = attention_rollout(Known(weights / weights.sum(-1, keepdim=True), True), torch.rand(1, 3, 8, 8)).sum(1)[0]
        quarters = functional.avg_pool2d(maps[None], 4).flatten()
        assert int(quarters.argmax()) == patch
        assert float(maps.flatten()[[0, 7, 56, 63][patch]]) == pytest.approx(float(maps.max()))


def test_heads_and_discarded_entries() -> None:
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.6, 0.4, 0.0]]).repeat(1, 2, 1, 1)
    weights[:, 1] = torch.tensor([0.2, 0.2, 0.6])
    assert torch.equal(fused(weights, None, "max"), weights.amax(1))
    assert torch.equal(fused(weights, None, "min"), weights.amin(1))
    kept = fused(weights, None, "min", 0.4)  # 3 of 9 entries
    assert torch.equal(kept == 0, weights.amin(1) <= weights.amin(1).flatten().sort().values[2])
    rows = read_rows(torch.tensor([[[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]]))
    assert torch.equal(rows, torch.tensor([[1.0, 0.0]]))
    assert torch.equal(read_rows(torch.ones(1, 2, 4, 4)), torch.full((1, 4), 0.25))
    pooled = torch.tensor([[[0.2, 0.3, 0.5]]])  # attention pooling: one query, no residual connection
    mixed = (weights.mean(1) + torch.eye(3)) / (weights.mean(1) + torch.eye(3)).sum(2, keepdim=True)
    assert torch.allclose(rolled_out([weights.mean(1), pooled], torch.ones(1, 1)), (pooled @ mixed)[:, 0])


def torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    net: nn.Module = VisionTransformer(32, 8, 2, 2, 16, 24, num_classes=4)
    return net


def distilled() -> nn.Module:
    from timm.models.deit import VisionTransformerDistilled

    sizes: Any = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 4}
    net: nn.Module = VisionTransformerDistilled(**sizes)
    return net


# Network, its image size, the tokens before the patches and the rows that its head reads.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int], int, list[int]]] = {
    "timm": (timm_vit, (32, 24), 1, [0]),
    "timm with registers": (lambda: timm_vit(reg_tokens=3), (32, 24), 4, [0]),
    "timm, mean of the patches": (
        lambda: timm_vit(reg_tokens=2, class_token=False, global_pool="avg"),
        (32, 24),
        2,
        list(range(2, 14)),
    ),
    "a distillation token": (distilled, (32, 32), 2, [0, 1]),
    "shapes_vit": (lambda: NETS["shapes_vit"](4, width=16, depth=2, heads=2), (64, 64), 0, list(range(64))),
    "torchvision": (torchvision_vit, (32, 32), 1, [0]),
    "Hugging Face": (hugging_face_vit, (32, 24), 1, [0]),
}


def made(name: str) -> tuple[nn.Module, Tensor, int, list[int]]:
    make, size, prefix, rows = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().eval()
        for weights in net.parameters():
            nn.init.normal_(weights, std=0.3)
        return net, torch.rand(3, 3, *size), prefix, rows


@pytest.mark.parametrize("name", NETWORKS)
def test_published_networks_by_hand(name: str) -> None:
    """The weights computed from queries and keys by hooks, and the rows that the head reads as stated above."""
    net, images, prefix, rows = made(name)
    with torch.no_grad(), AttentionWeights() as attention:
        net(images)
    assert len(attention.weights) == 2
    expected = weights_by_hooks(net, images)
    for ours, theirs in zip(attention.weights, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    first, second = ((layer.mean(1) + torch.eye(layer.shape[-1])) / 2 for layer in expected)
    row = (second @ first)[:, rows].mean(1)[:, prefix:]
    plane = row.view(3, 1, images.shape[2] // 8, images.shape[3] // 8)
    by_hand = functional.interpolate(plane, images.shape[2:], mode="bilinear")
    assert torch.allclose(attention_rollout(net, images).sum(1, keepdim=True), by_hand, atol=1e-5)
    relevance = attention_rollout(net, images, 1, gradients=True)
    assert float(relevance.min()) >= 0
    other = attention_rollout(net, images, 2, gradients=True)
    assert float((relevance - other).norm()) > 0.01 * float(other.norm()), "it depends on the class"


def weights_by_hooks(net: nn.Module, images: Tensor) -> list[Tensor]:
    """Softmax of the scaled products of queries and keys, computed from the inputs of each attention module."""
    found: list[Tensor] = []

    def qkv(module: Any, arguments: Any, options: Any) -> tuple[Tensor, Tensor, int]:
        tokens = arguments[0] if arguments else options["hidden_states"]
        if isinstance(module, nn.MultiheadAttention):
            joined = functional.linear(tokens, module.in_proj_weight, module.in_proj_bias)
            return *joined.chunk(3, -1)[:2], module.num_heads
        if hasattr(module, "qkv"):
            return *module.qkv(tokens).chunk(3, -1)[:2], module.num_heads
        return module.q_proj(tokens), module.k_proj(tokens), 2

    def note(module: Any, arguments: Any, options: Any) -> None:
        query, key, heads = qkv(module, arguments, options)
        query, key = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in (query, key))
        found.append((query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).softmax(-1).detach())

    kinds = ("Attention", "MultiheadAttention", "ViTAttention")
    hooks = [
        part.register_forward_pre_hook(note, with_kwargs=True) for part in net.modules() if type(part).__name__ in kinds
    ]
    with torch.no_grad():
        net(images)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("name", ["timm", "torchvision", "Hugging Face"])
@pytest.mark.parametrize("gradients", [False, True])
def test_nothing_of_the_callers_changes_and_batches_do_not_matter(name: str, gradients: bool) -> None:
    net, images, _, _ = made(name)
    net.train()
    images.requires_grad_()
    before = state(net, images)
    whole = attention_rollout(net, images, gradients=gradients)
    assert same(before, state(net, images))
    assert not whole.requires_grad
    for chunk in (1, 2):
        assert torch.allclose(attention_rollout(net, images, gradients=gradients, chunk=chunk), whole, atol=1e-6)
    with torch.inference_mode():
        assert torch.allclose(attention_rollout(net, images[1:2], gradients=gradients), whole[1:2], atol=1e-6)
    method = METHODS["GradientRollout" if gradients else "Rollout"](net)
    assert torch.allclose(method.attribute(images.detach()), whole, atol=1e-6)
    assert method.attribute((images.detach(),))[0].shape == images.shape


def test_in_a_list_with_other_methods() -> None:
    net, images, _, _ = made("timm")
    noisy = images * 2 - 0.5
    maps = attribute_all(net, noisy, ["SM", "Rollout", "GradientRollout"], 1, bounds=None)
    assert torch.equal(maps["Rollout"], attention_rollout(net, noisy, bounds=None))  # type: ignore[arg-type]
    relevance = attention_rollout(net, noisy, 1, gradients=True, bounds=None)
    assert torch.equal(maps["GradientRollout"], relevance)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`inputs` must be in"):
        Rollout(net).attribute(noisy)
    assert isinstance(GradientRollout(net, heads="max"), Rollout)


def test_a_shipped_transformer_looks_at_the_object() -> None:
    from locality.data.dataset import load_dataset

    model, data = load_model("shapes_vit_robust"), load_dataset("shapes", limit=12)
    batch = data.batch(range(12))
    maps = attention_rollout(model, batch.images, gradients=True).sum(1)
    inside = (maps * batch.masks[:, 0]).sum((1, 2)) / maps.sum((1, 2))
    area = batch.masks[:, 0].float().mean((1, 2))
    assert float((inside / area).mean()) > 1.15


@pytest.mark.parametrize(
    ("make", "size", "got"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), 8, "got 'no attention in Sequential': choose SM, BIG, or"),
        (
            timm_swin,
            64,
            r"got 'attention of shape \(32, 1, 16, 16\) for 2 images, as within windows': choose captum:LayerGradCam",
        ),
    ],
)
def test_other_networks_are_refused_in_one_sentence(make: Callable[[], nn.Module], size: int, got: str) -> None:
    net = make()
    images = torch.rand(2, 3, size, size)
    net(images)
    with pytest.raises(ValueError, match=f"`model` must be a transformer whose layers all attend over the same .*{got}"):
        attention_rollout(net, images)


def test_wrong_settings_are_named() -> None:
    net, images, _, _ = made("timm")
    with pytest.raises(ValueError, match="`heads` must be one of mean, max, min, got 'sum'"):
        attention_rollout(net, images, heads="sum")
    with pytest.raises(ValueError, match="`discard_ratio` must be a share"):
        attention_rollout(net, images, discard_ratio=1.0)
