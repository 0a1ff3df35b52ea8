"""Features and heads: the logits are those of the plain network, bit for bit, and are the head's of the features."""

import pytest
import torch
from torch import Tensor, nn

from locality.zoo.architectures import build
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential, ForwardPass, forward_pass, head_of
from locality.zoo.nets.lipschitz import NormalisedHead

WIDTHS = {
    "lip_convnet": 512,
    "lip_resnet": 512,
    "liresnet": 512,
    "shapes_cnn": 384,
    "shapes_vit": 96,
    "tiny_resnet": 176,
    "tiny_vgg": 192,
    "tiny_vit": 144,
}


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", [name for name in NETS if name != "centroid_net"])  # whose head has no matrix
def test_a_pass_has_the_plain_networks_logits(name: str, mode: str) -> None:
    net = build(f"net:{name}", 7).train(mode == "train")
    images = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    seen = forward_pass(net, images)
    assert seen.features.shape == (3, WIDTHS[name])
    assert torch.equal(seen.logits, net(images))
    head = head_of(net)
    assert isinstance(head, nn.Linear | NormalisedHead)
    assert (head.in_features, head.out_features) == (WIDTHS[name], 7)
    assert torch.equal(seen.logits, head(seen.features))


def test_timms_classifiers_have_features() -> None:
    net = build("timm:resnet10t", 5).eval()
    images = torch.rand(2, 3, 64, 64)
    seen = forward_pass(net, images)
    assert torch.equal(seen.logits, net(images))
    assert seen.features.shape == (2, 512)


def test_a_network_without_features_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"`net` must have a method `penultimate` and a layer `head`.* got Sequential"):
        forward_pass(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), torch.zeros(1, 3, 2, 2))
    with pytest.raises(TypeError, match="got Linear"):
        head_of(nn.Linear(2, 2))


def test_a_networks_own_features_count() -> None:
    class Shifted(FeatureSequential):
        def penultimate(self, inputs: Tensor) -> Tensor:
            return super().penultimate(inputs) + 1

    net = Shifted(nn.Flatten(), nn.Linear(12, 2))
    seen = forward_pass(net, torch.zeros(1, 3, 2, 2))
    assert torch.equal(seen.features, torch.ones(1, 12))
    assert torch.allclose(seen.logits, net.head(torch.ones(1, 12)))


def test_chunks_keep_features_and_logits_together() -> None:
    whole = ForwardPass(torch.arange(8.0).view(4, 2), torch.arange(4.0).view(4, 1))
    first, second = whole.chunk(2)
    assert (first.features.tolist(), first.logits.tolist()) == ([[0, 1], [2, 3]], [[0], [1]])
    assert (second.features.tolist(), second.logits.tolist()) == ([[4, 5], [6, 7]], [[2], [3]])


@pytest.mark.parametrize("name", ["shapes_vit", "tiny_vit"])
def test_options_of_a_transformer(name: str) -> None:
    net = NETS[name](4, width=24, depth=2, heads=2)
    head = head_of(net)
    assert isinstance(head, nn.Linear)
    assert head.in_features == 24
    assert len(list(net.blocks)) == 2  # type: ignore[arg-type]
    for options, message in (
        ({"width": 25, "heads": 2}, r"`width` must be a multiple of `heads` \(2\), got 25"),
        ({"depth": 0}, "`depth` must be a whole number from 1 to 4,096, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            NETS[name](4, **options)
