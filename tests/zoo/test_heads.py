"""The head of any classifier is found by what it does, and replaced by one for other classes."""

import copy

import pytest
import torch
from known_models import small_network
from torch import Tensor, nn

from locality.errors import ModelError
from locality.types import ModelSpec
from locality.zoo.architectures import build
from locality.zoo.heads import find_head, replace_head
from locality.zoo.load import load_model
from locality.zoo.nets.centroid import CentroidHead, centroid_net
from locality.zoo.nets.lipschitz import NormalisedHead
from locality.zoo.nets.liresnet import liresnet
from locality.zoo.pixel_model import PixelModel

Layers = dict[str, nn.Module]


class Graph(nn.Module):
    """Layers in a dictionary that says nothing about their order, called in another order; the head is a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"7": nn.Conv2d(6, 5, 1), "1": nn.Conv2d(3, 6, 3), "0": nn.Linear(5, 5)})

    def forward(self, images: Tensor) -> Tensor:
        features = self.layers["1"](images).relu().mean((2, 3), keepdim=True)
        logits: Tensor = self.layers["7"](features).flatten(1)
        return logits


class TwoPaths(nn.Module):
    """The last layer makes only a part of the logits; the rest goes past it."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.last = nn.Linear(12, 5), nn.Linear(12, 5)

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        logits: Tensor = self.short(flat) + self.last(flat)
        return logits


class AfterTheHead(nn.Module):
    """Layers with as many outputs as there are classes before and after the one that decides; logits are halved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.unused = nn.Linear(12, 5), nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.first(images.flatten(1)).relu()) / 2
        self.unused(torch.zeros(len(images), 5))
        return logits


def pixels(net: nn.Module, size: int = 8) -> PixelModel:
    return PixelModel(net, ModelSpec("stranger", (size, size), size))


@pytest.mark.parametrize(
    ("net", "size", "head"),
    [
        (Graph(), 8, "net.layers.7"),
        (AfterTheHead(), 2, "net.head"),
        (small_network(), 8, "net.4"),
        (nn.Linear(12, 5), 2, None),
        (liresnet(5, depth=1, width=4, dimension=8), 64, "net.9"),
        (centroid_net(5, depth=1, width=4, dimension=8, features=4), 64, "net.10"),
        (build("torchvision:squeezenet1_1", 5), 64, "net.classifier.1"),
        (build("torchvision:resnet18", 5), 32, "net.fc"),
        (build("timm:mobilenetv3_small_050", 5), 32, "net.classifier"),
        (build("timm:test_vit", 5), 160, "net.head"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_the_head_is_found_and_replaced(net: nn.Module, size: int, head: str | None) -> None:
    model = pixels(net if head else nn.Sequential(nn.Flatten(), net), size).train()
    before = copy.deepcopy(model.state_dict())
    name = find_head(model)
    assert name == (head or "net.1")
    assert all(part.training for part in model.modules())
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())
    assert not any(part._forward_hooks for part in model.modules())
    old = model.get_submodule(name)
    replace_head(model, name, 3, seed=1)
    assert all(part.training for part in model.modules())
    images = torch.rand(2, 3, size, size)
    model.eval()
    assert model(images).shape == (2, 3)
    assert type(model.get_submodule(name)) is (nn.Linear if isinstance(old, nn.Linear) else type(old))
    kept = [key for key in before if not key.startswith(f"{name}.")]
    assert all(torch.equal(before[key], model.state_dict()[key]) for key in kept)
    # The head is where the features end: with the pass of the model itself, they give the logits.
    model.head_name = name
    seen = model.forward_pass(images)
    assert torch.equal(seen.logits, model(images))
    if isinstance(model.head, nn.Linear | NormalisedHead | CentroidHead):
        scale = 0.5 if isinstance(net, AfterTheHead) else 1.0
        torch.testing.assert_close(scale * model.head(seen.features), seen.logits)


def test_the_seed_decides_the_new_weights() -> None:
    made = []
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for seed in (0, 0, 1):
        model = pixels(copy.deepcopy(small_network()))
        torch.set_rng_state(before)
        replace_head(model, "net.4", 3, seed)
        assert torch.equal(before, torch.get_rng_state())
        made.append(model.state_dict()["net.4.weight"])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_a_binary_network_with_one_logit_gets_a_logit_per_class() -> None:
    model = pixels(nn.Sequential(nn.Flatten(), nn.Linear(12, 1)), 2)
    assert find_head(model) == "net.1"
    replace_head(model, "net.1", 2)
    assert model(torch.rand(4, 3, 2, 2)).shape == (4, 2)


@pytest.mark.parametrize("net", [TwoPaths(), nn.Sequential(nn.Flatten(), nn.Unflatten(1, (12, 1)), nn.Flatten())])
def test_a_network_without_a_head_is_named(net: nn.Module) -> None:
    with pytest.raises(ModelError, match=r"the head of `stranger` cannot be found: .* so it cannot be given other classes"):
        find_head(pixels(net, 2))


def test_a_network_whose_end_depends_on_its_classes_is_named() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))
    model = pixels(net, 2)
    with pytest.raises(ModelError, match=r"`stranger` cannot be given 3 classes, because layers after its head `net.1`"):
        replace_head(model, find_head(model), 3)


def test_a_network_that_does_not_take_its_images_is_an_error() -> None:
    with pytest.raises(ModelError, match="`stranger` cannot take an image of 3×8×8"):
        find_head(pixels(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), 8))


def test_heads_of_shipped_models() -> None:
    assert find_head(load_model("shapes_cnn")) == "net.6"
    assert find_head(load_model("shapes_vit")) == "net.head"
