"""Lower bounds on Lipschitz constants: secants that can be checked, below the upper bound, equal to it if linear."""

import copy
import math

import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from torch import Tensor, nn

from locality import lipschitz_bound
from locality.certified import lipschitz_lower as module
from locality.certified.lipschitz_lower import LipschitzLower, global_lower, local_lower
from locality.types import ModelSpec
from locality.zoo.nets import NETS
from locality.zoo.nets.lipschitz import MinMax
from locality.zoo.pixel_model import PixelModel

METHODS = ("gradients", "pairs")


def drawn_images(count: int, side: int = 8) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def drawn_net(seed: int) -> nn.Module:
    """A small network with BatchNorm or MinMax and random weights of any scale."""
    torch.manual_seed(seed)
    if seed % 2:
        return small_network().eval()
    net = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), MinMax(), nn.Flatten(), nn.Linear(96, 12), nn.ReLU(), nn.Linear(12, 4))
    for weight in net.parameters():
        weight.data *= 3 * torch.rand(())
    return net


def check_secants(model: nn.Module, lower: LipschitzLower) -> None:
    """Every slope is the one between its two points, and below the constant of its margin."""
    exact = copy.deepcopy(model).double().eval()
    shape = lower.ends.shape[2:]
    constants = lipschitz_bound(model, (shape[1], shape[2])).margins[lower.first, lower.second]
    low, high = lower.ends.unbind(1)
    changes = (exact(low) - exact(high)).detach()
    rows = torch.arange(len(changes))
    change = (changes[rows, lower.first] - changes[rows, lower.second]).abs()
    assert lower.slopes.tolist() == pytest.approx((change / (low - high).flatten(1).norm(dim=1)).tolist(), rel=1e-9)
    assert (lower.slopes <= constants).all()
    assert (lower.slopes > 0).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_lower_bounds_are_secants_below_the_upper_bound(method: str, seed: int) -> None:
    model, images = drawn_net(seed), drawn_images(3)
    everywhere, near = global_lower(model, images, method, steps=4), local_lower(model, images, 0.3, method, steps=4)
    for lower in (everywhere, near):
        check_secants(model, lower)
        assert lower.largest == lower.slopes.max()
        assert lower.largest <= lipschitz_bound(model, (8, 8)).largest
    assert near.first.tolist() == model(images).argmax(1).tolist()
    assert ((near.ends - images[:, None].double()).flatten(2).norm(dim=2) <= 0.3 * (1 + 1e-6)).all()


@pytest.mark.parametrize("name", ["liresnet", "lip_resnet"])
def test_lipschitz_networks(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name](4, depth=2, width=4, dimension=6)
    model = PixelModel(net, ModelSpec(name, (64, 64), 64, mean=(0.5,) * 3, std=(0.5, 1.0, 1.0))).eval()
    check_secants(model, global_lower(model, drawn_images(2, 64), steps=2))
    check_secants(model, local_lower(model, drawn_images(2, 64), 0.5, "pairs", steps=2))


@pytest.mark.parametrize("method", METHODS)
def test_a_linear_network_is_as_steep_as_its_bound(method: str) -> None:
    """The gradient finds the constant at once; pairs of points move towards its direction."""
    model, images, labels, _ = linear_model([0.1, 0.2, 0.4])
    images = images.double()  # so that the search has no rounding to speak of
    bound = lipschitz_bound(model, (8, 8))
    lower = local_lower(model, images, 0.3, method, steps=1 if method == "gradients" else 1000)
    largest = bound.margins[labels].amax(1)
    assert lower.slopes.tolist() == pytest.approx(largest.tolist(), rel=1e-9 if method == "gradients" else 0.05)
    if method == "gradients":
        assert global_lower(model, images, steps=1).largest == pytest.approx(bound.largest, rel=1e-9)


def test_the_global_margin_may_be_that_of_other_classes() -> None:
    """The steepest margin is between two classes that no image is in."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 3))
    linear_layer(model).weight.data = torch.tensor([[0.0, 0, 0], [4, 0, 0], [0, 3, 0]])
    linear_layer(model).bias.data = torch.tensor([99.0, 0, 0])
    images = torch.rand(2, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    lower = global_lower(model, images)
    assert lower.largest == pytest.approx(5)
    assert sorted([int(lower.first[0]), int(lower.second[0])]) == [1, 2]
    near = local_lower(model, images, 0.1)
    assert near.first.tolist() == [0, 0]
    assert near.slopes.tolist() == pytest.approx([4, 4])


def test_the_local_mean_is_over_images_of_the_largest_over_classes() -> None:
    """Not over classes, too: the published code counts a zero for each image's own class (F14 of the specification)."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    linear_layer(model).weight.data = torch.tensor([[3.0, 0], [0, -4.0]])
    lower = local_lower(model, torch.rand(4, 1, 1, 2), 0.2)
    assert lower.mean == pytest.approx(5)  # with the zeros it would be 2.5


class Kink(nn.Module):
    """−|x − ½| against 0: f_0 − f_1 has slope 1 on either side, but x ↦ relu(−x) + x − relu(x) adds a false slope at ½."""

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1)[:, :1] - 0.5
        zero = torch.relu(-x) + x - torch.relu(x)  # 0 everywhere; its gradient at 0 is 1 by automatic differentiation
        return torch.cat([100 * zero + 0.5 * x, torch.zeros_like(x)], 1)


def test_a_gradient_that_no_secant_confirms_is_not_a_lower_bound() -> None:
    """Automatic differentiation gives 100.5 at the kink, where the function has slope 0.5."""
    image = torch.full((1, 1, 1, 2), 0.5)
    leaf = image.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Kink()(leaf)[:, 0].sum(), leaf)
    assert gradient.flatten()[0] == pytest.approx(100.5)
    assert local_lower(Kink(), image, 0.2).largest == pytest.approx(0.5, rel=1e-4)


def test_a_steep_place_away_from_the_image_is_found() -> None:
    """Slope 1 near the image and 10 beyond a distance of 0.04: the ends move there, unless they must stay within 0.02."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False))
    linear_layer(model, 1).weight.data = torch.tensor([[1.0, 0], [1.0, 0]])
    linear_layer(model, 1).bias.data = torch.tensor([0.0, -0.54])
    linear_layer(model).weight.data = torch.tensor([[1.0, 9.0], [0, 0]])
    image = torch.full((1, 1, 1, 2), 0.5)
    assert local_lower(model, image, 0.02).largest == pytest.approx(1)
    assert global_lower(model, image).largest == pytest.approx(10)


def test_images_do_not_depend_on_their_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = drawn_net(2), drawn_images(4)
    whole = local_lower(model, images, 0.3, steps=3)
    monkeypatch.setattr(module, "CHUNK", 3)
    assert local_lower(model, images, 0.3, steps=3).slopes.tolist() == pytest.approx(whole.slopes.tolist(), rel=1e-3)
    single = local_lower(model, images[1:2], 0.3, steps=3)
    assert single.slopes.item() == pytest.approx(whole.slopes[1].item(), rel=1e-3)
    assert whole.gradients == 4 * (4 + 2 * 3)  # a Jacobian of four classes, then two ends per step


def test_the_callers_model_stays_as_it_is() -> None:
    model = small_network().train()
    before = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    with torch.no_grad():
        lower = global_lower(model, drawn_images(2), "pairs", steps=2)
    assert lower.largest > 0
    assert model.training
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.equal(tensor, before[name])
        assert tensor.grad is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda net, images: local_lower(net, images, math.inf), "`radius` must be a distance above 0, got inf"),
        (lambda net, images: local_lower(net, images, 0.0), "`radius` must be a distance above 0"),
        (lambda net, images: global_lower(net, images, "pair"), "did you mean 'pairs'"),
        (lambda net, images: global_lower(net, images, steps=0), "`steps` must be a whole number of at least 1, got 0"),
        (lambda net, images: global_lower(net, images[:1], "pairs"), "`images` must be two images or more"),
    ],
)
def test_wrong_arguments_are_one_sentence(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=sentence):
        call(drawn_net(0), drawn_images(2))
