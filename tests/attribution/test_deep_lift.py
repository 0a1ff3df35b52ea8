"""DeepLIFT and Boundary DeepLIFT: closed forms, Captum's implementation, and the sum of the contributions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captum.attr import DeepLift  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from locality.attribution import BDeepLIFT, attribute_all, boundary_deep_lift, deep_lift, integrated_gradients
from locality.boundary import find_boundary
from locality.model_calls import open_model
from locality.types import Boundary

Edge = Callable[..., Boundary]


def test_a_linear_model_and_its_boundary_are_known(linear: nn.Module) -> None:
    images = 0.4 + 0.2 * torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    edge = find_boundary(linear, images)
    found = boundary_deep_lift(linear, images, edge)
    weights = linear.rows(edge.labels)  # type: ignore[operator]
    assert torch.allclose(found.integral, weights, atol=1e-4)
    assert torch.allclose(found.maps, (images - edge.points) * weights, atol=1e-5)
    assert found.gap.max() < 1e-4
    maps = BDeepLIFT(linear).attribute(images)
    assert isinstance(maps, Tensor)
    assert torch.allclose(maps, found.maps, atol=1e-6)


def two_logits(value: Tensor) -> Tensor:
    return torch.stack([value, value * 0 - 1], 1)


def test_one_relu_between_image_and_boundary() -> None:
    """f = ReLU(w·x − c): off at the point, on at the image; the multiplier is w·f(x)/(w·(x − x′))."""
    weights = torch.tensor([1.0, -2.0, 0.5, 1.5])
    image, point = torch.tensor([0.9, 0.1, 0.3, 0.8]).view(1, 1, 2, 2), torch.tensor([0.2, 0.6, 0.3, 0.1]).view(1, 1, 2, 2)

    def unit(images: Tensor) -> Tensor:
        return two_logits((images.flatten(1) @ weights - 0.5).relu())

    high, low = image.flatten() @ weights - 0.5, point.flatten() @ weights - 0.5
    assert high > 0 > low
    expected = (image - point) * (weights * high / (high - low)).view(1, 1, 2, 2)
    found = boundary_deep_lift(unit, image, point, 0)
    assert torch.allclose(found.maps, expected, atol=1e-6)
    assert float(found.maps.sum()) == pytest.approx(float(high), abs=1e-6)
    # The gradient at the image is w: DeepLIFT differs from it because the unit is off on a part of the way.
    assert float(found.integral.flatten()[0]) < 0.6


def test_a_product_is_shared_by_the_mean_of_the_other_factor() -> None:
    def product(images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        return two_logits(pixels[:, 0] * pixels[:, 1] + pixels[:, 2] / (1 + pixels[:, 3]))

    x, b = torch.tensor([0.8, 0.5, 0.6, 0.2]), torch.tensor([0.2, 0.1, 0.4, 0.7])
    inverse, inverse_before = 1 / (1 + x[3]), 1 / (1 + b[3])
    expected = [
        (x[0] - b[0]) * (x[1] + b[1]) / 2,
        (x[1] - b[1]) * (x[0] + b[0]) / 2,
        (x[2] - b[2]) * (inverse + inverse_before) / 2,
        (inverse - inverse_before) * (x[2] + b[2]) / 2,
    ]
    found = deep_lift(product, x.view(1, 1, 2, 2), 0, b.view(1, 1, 2, 2)).maps.flatten()
    assert torch.allclose(found, torch.stack(expected), atol=1e-6)


def test_max_pooling_gives_the_change_to_the_larger_maximum() -> None:
    def pooled(images: Tensor) -> Tensor:
        return two_logits(functional.max_pool2d(images, 3, stride=1).flatten(1).sum(1))

    x = torch.tensor([[0.1, 0.9, 0.2], [0.3, 0.0, 0.4]]).repeat(1, 1, 2, 1)[:, :, :3]
    b = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.0, 0.1]]).repeat(1, 1, 2, 1)[:, :, :3]
    rise = deep_lift(pooled, x, 0, b).maps.flatten()
    # Up from 0.5 at the first pixel to 0.9 at the second: all of it belongs to the second; down, the same with its sign.
    expected = torch.zeros(9)
    expected[1] = 0.4
    assert torch.allclose(rise.nonzero()[0], torch.tensor([1]))
    assert torch.allclose(rise, expected, atol=1e-6)
    assert torch.allclose(deep_lift(pooled, b, 0, x).maps.flatten(), -expected, atol=1e-6)


def leaf(images: Tensor) -> Tensor:
    return images.clone().requires_grad_()


class Modules(nn.Module):
    """What Captum's DeepLift can do: modules, each used once, not in place, and no two non-linear ones in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 8, 2)])
        self.norm, self.relu, self.tanh, self.elu = nn.BatchNorm2d(6), nn.ReLU(), nn.Tanh(), nn.ELU()
        self.pool, self.hidden, self.head = nn.MaxPool2d(2), nn.Linear(8 * 4, 9), nn.Linear(9, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.relu(self.norm(self.convolutions[0](images)))
        features = self.tanh(self.convolutions[2](self.pool(self.convolutions[1](features))))
        logits: Tensor = self.head(self.elu(self.hidden(features[:, :, ::2, ::2].flatten(1)))) * 3
        return logits


class Functions(Modules):
    """The same with functions, in place where possible, which Captum does not see."""

    def forward(self, images: Tensor) -> Tensor:
        features = self.norm(self.convolutions[0](images))
        functional.relu(features, inplace=True)
        features = torch.tanh_(self.convolutions[2](functional.max_pool2d(self.convolutions[1](features), 2)))
        logits: Tensor = self.head(functional.elu_(self.hidden(features[:, :, ::2, ::2].flatten(1)))).mul_(3)
        return logits


@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks")  # Captum's, about its normal operation
def test_the_maps_are_captums_where_captum_can(images: Tensor, make_edge: Edge) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        modules = Modules().eval()
    points = torch.rand(images.shape, generator=torch.Generator().manual_seed(5))
    theirs = DeepLift(modules).attribute(leaf(images), points, target=2).detach()
    ours = boundary_deep_lift(modules, images, make_edge(points), 2)
    assert float(theirs.abs().max()) > 0.001
    assert torch.allclose(ours.maps, theirs, atol=1e-6)
    assert float(ours.gap.max()) < 1e-4
    assert torch.equal(deep_lift(modules, images, 2, points).maps, ours.maps)
    functions = Functions().eval()
    functions.load_state_dict(modules.state_dict())
    assert torch.equal(functions(images), modules(images))
    assert torch.allclose(boundary_deep_lift(functions, images, points, 2).maps, ours.maps, atol=1e-6)
    captums = DeepLift(functions).attribute(leaf(images), points, target=2)
    assert not torch.allclose(captums, theirs, atol=1e-4), "Captum takes the gradient of functions silently"


def test_points_close_to_the_image_do_not_lose_their_digits(images: Tensor) -> None:
    """Boundary points are near: a quotient of differences would be rounding. IG along the same way is the oracle."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        smooth = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(600, 5), nn.Tanh(), nn.Linear(5, 3))
    near = images + 1e-5 * torch.rand(images.shape, generator=torch.Generator().manual_seed(5))
    ours = deep_lift(smooth, images, 1, near, bounds=None).integral
    oracle = integrated_gradients(smooth.double(), images.double(), 1, near.double(), 3, bounds=None).integral
    assert torch.allclose(ours.double(), oracle, rtol=1e-4, atol=1e-6)


def small_networks() -> dict[str, Callable[[], nn.Module]]:
    import timm
    from timm.models.vision_transformer import VisionTransformer
    from torchvision.models import VisionTransformer as TorchvisionViT

    sizes: Any = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 6}
    return {
        "squeeze and excitation, in place": lambda: timm.create_model("mobilenetv3_small_050", num_classes=6),
        "a repeated ReLU": lambda: timm.create_model("resnet10t", num_classes=6),
        "fused attention": lambda: VisionTransformer(**sizes),
        "nn.MultiheadAttention": lambda: TorchvisionViT(32, 8, 2, 2, 16, 24, num_classes=6),
        "ReLU6 in place, which `cpu_layers` replaces": lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), nn.Flatten(), nn.LazyLinear(6)
        ),
        "group normalisation": lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(inplace=True), nn.Flatten(), nn.LazyLinear(6)
        ),
    }


@pytest.mark.parametrize("name", small_networks())
def test_contributions_sum_to_the_change_of_the_logit(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = small_networks()[name]().eval()
        images, points = torch.rand(2, 3, 3, 32, 32)
        network(images)
        for part in network.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=0.5)
    found = boundary_deep_lift(network, images, points, 1)
    with torch.no_grad():
        change = (network(images) - network(points))[:, 1]
    assert float(change.abs().min()) > 1e-4
    assert torch.allclose(found.maps.sum((1, 2, 3)), change, rtol=2e-3)
    assert torch.allclose(boundary_deep_lift(network, images, points, 1, chunk=1).maps, found.maps, rtol=1e-3, atol=1e-5)


def test_undefined_maps_and_what_they_cost(network: nn.Module, images: Tensor, make_edge: Edge) -> None:
    found = torch.tensor([True, False, True, True, False, True, True])
    edge = make_edge(torch.rand(images.shape), found)
    with open_model(network, images) as calls:
        path = boundary_deep_lift(calls, images, edge)
        assert (calls.gradients, calls.forwards) == (5, 7 + 2 * 5)
    for part in (path.maps, path.integral, path.delta):
        assert part[~found].isnan().all()
        assert part[found].isfinite().all()
    last = boundary_deep_lift(network, images, edge, on_missing="last")
    assert torch.allclose(last.maps[found], path.maps[found], atol=1e-6)
    assert last.maps.isfinite().all()
    nowhere = boundary_deep_lift(network, images, make_edge(images, found & False))
    assert nowhere.maps.shape == images.shape
    assert nowhere.delta.isnan().all()
    assert attribute_all(network, images, ["BDeepLIFT"], boundary=edge)["BDeepLIFT"].maps[1].isnan().all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "got"),
    [
        (lambda images: functional.instance_norm(images).flatten(1)[:, :3], "instance_norm"),
        (lambda images: images.flatten(1)[:, :3] ** images.flatten(1)[:, 3:6], "pow. of several tensors"),
        (lambda images: images.flatten(2).sort(2).values[:, :, -1] * 9, "one whose map sums to"),
    ],
)
def test_networks_without_a_rule_are_refused(images: Tensor, model: Callable[[Tensor], Tensor], got: str) -> None:
    with pytest.raises(
        ValueError, match=rf"`model` must be a network of layers for which DeepLIFT has a rule.*{got}.*use BIG"
    ):
        deep_lift(model, images, 1, torch.rand(images.shape))


def test_a_network_that_calls_other_functions_for_the_reference_is_refused(images: Tensor) -> None:
    def branching(pixels: Tensor) -> Tensor:
        bright = pixels.mean() > 0.2
        return (pixels.flatten(1)[:, :3].relu() if bright else pixels.flatten(1)[:, :4].tanh()[:, :3]) + pixels.mean()

    with pytest.raises(ValueError, match="other functions for the image than for the reference"):
        deep_lift(branching, images, 1)
