"""Known boundaries: linear models in closed form, a small ReLU net by brute force; and what a search promises."""

import warnings
from collections.abc import Iterator

import pytest
import torch
from known_models import linear_layer, linear_model
from torch import Tensor, nn

from locality.boundary import SearchContext, find_boundary
from locality.model_calls import open_model
from locality.types import Norm

SHAPE = (3, 6, 6)


@pytest.fixture
def linear() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 5))


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 4)
    ).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(12, *SHAPE, generator=torch.Generator().manual_seed(2)) * 0.4 + 0.3


def closed_form(model: nn.Sequential, images: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """Distance to the nearest hyperplane of a linear model, and its class; pixel limits are far."""
    weights, bias = linear_layer(model).weight.detach(), linear_layer(model).bias.detach()
    logits = images.flatten(1) @ weights.T + bias
    label = logits.argmax(1)
    gap = logits.gather(1, label[:, None]) - logits
    normal = weights[label][:, None] - weights[None]
    length = normal.norm(dim=2) if norm == "l2" else normal.abs().sum(2)
    distance = (gap / length).scatter(1, label[:, None], torch.inf)
    return distance.min(1).values, distance.argmin(1)


@pytest.mark.parametrize(("search", "norm"), [("fast", "l2"), ("thorough", "l2"), ("fast", "linf"), ("thorough", "linf")])
def test_a_linear_model_in_closed_form(linear: nn.Sequential, images: Tensor, search: str, norm: Norm) -> None:
    distance, nearest = closed_form(linear, images, norm)
    edge = find_boundary(linear, images, search=search, norm=norm)
    assert edge.found.all()
    assert torch.allclose(edge.distance, distance, rtol=1e-3)
    assert torch.equal(edge.crossed_to, nearest)
    with torch.no_grad():
        logits = linear(edge.points)
    rows = torch.arange(len(images))
    # On the hyperplane between the two classes, a hair beyond it.
    assert torch.allclose(logits[rows, edge.labels], logits[rows, nearest], atol=1e-3)
    assert (logits.argmax(1) != edge.labels).all()
    assert (edge.optimality > 0.999).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("classes", [3, 10, 30])
def test_linear_models_of_many_classes(classes: int, norm: Norm) -> None:
    """Drawn models, many rivals nearly as near: exact, but for rounding where the boundary is at the image itself."""
    for scale in (0.1, 1.0, 3.0):
        generator = torch.Generator().manual_seed(classes)
        model = nn.Sequential(nn.Flatten(), nn.Linear(108, classes))
        with torch.no_grad():
            layer = linear_layer(model)
            layer.weight.copy_(scale * torch.randn(classes, 108, generator=generator))
            layer.bias.copy_(-0.5 * layer.weight.sum(1))  # at mid-grey all classes are the same
        drawn = (0.5 + 0.08 * torch.randn(64, *SHAPE, generator=generator)).clamp(0.2, 0.8)
        distance, nearest = closed_form(model, drawn, norm)
        clear = distance > (1e-2 if norm == "l2" else 1e-3)
        edge = find_boundary(model, drawn, norm=norm)
        assert torch.allclose(edge.distance[clear], distance[clear], rtol=3e-4)
        assert torch.equal(edge.crossed_to[clear], nearest[clear])


def test_a_relu_net_in_two_dimensions_by_brute_force() -> None:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 3))
    with torch.no_grad():
        first, last = linear_layer(net, 1), linear_layer(net)
        first.weight.mul_(3)
        first.bias.copy_(-(first.weight @ torch.tensor([0.5, 0.5])) + 0.3 * torch.randn(24))
        last.bias.zero_()
        side = torch.linspace(0, 1, 801)
        grid = torch.cartesian_prod(side, side)
        classes = net(grid.view(-1, 1, 1, 2)).argmax(1)
        chosen = torch.rand(40, 2, generator=torch.Generator().manual_seed(4))
        own = net(chosen.view(-1, 1, 1, 2)).argmax(1)
    distances = torch.cdist(chosen, grid)
    distances[own[:, None] == classes[None]] = torch.inf
    nearest = distances.min(1).values
    kept = torch.isfinite(nearest) & (nearest > 0.02)  # closer than this, the grid itself is not exact to 1 %
    assert kept.sum() > 15
    edge = find_boundary(net, chosen[kept].view(-1, 1, 1, 2), search="thorough")
    assert edge.found.all()
    ratio = edge.distance / nearest[kept]
    assert ratio.max() <= 1.01  # also where the nearest point is a corner between two facets
    assert (edge.distance >= nearest[kept] * 0.98 - 0.0013).all()  # a grid's diagonal is 0.00177
    fast = find_boundary(net, chosen[kept].view(-1, 1, 1, 2))
    assert (fast.distance / nearest[kept]).median() < 1.01


def test_points_are_across_inside_and_on_the_line(network: nn.Sequential, images: Tensor) -> None:
    edge = find_boundary(network, images)
    with torch.no_grad():
        label, reached = network(images).argmax(1), network(edge.points).argmax(1)
        before = network(images + (edge.points - images) * (1 - 1e-3)).argmax(1)
    assert torch.equal(edge.labels, label)
    assert torch.equal(edge.crossed_to, reached)
    assert (reached != label).all()
    assert torch.equal(before, label)  # a thousandth back is the old class again
    assert 0 <= edge.points.min() <= edge.points.max() <= 1
    assert torch.allclose(edge.distance, (edge.points - images).flatten(1).norm(dim=1))


def test_pixel_limits_are_part_of_the_problem() -> None:
    """The way along the normal leaves [0, 1]; the nearest point inside is known: the other pixel takes over."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    with torch.no_grad():
        linear_layer(model).weight.copy_(torch.tensor([[2.0, 1.0], [0.0, 0.0]]))
        linear_layer(model).bias.copy_(torch.tensor([0.0, 0.6]))
    # 2a + b = 0.6 with a >= 0: from (0.1, 0.9) the free projection is (−0.1, 0.8); the best inside is (0, 0.6).
    edge = find_boundary(model, torch.tensor([0.1, 0.9]).view(1, 1, 1, 2))
    assert edge.points.flatten().tolist() == pytest.approx([0.0, 0.6], abs=5e-3)


def test_batch_and_order_do_not_matter(network: nn.Sequential, images: Tensor) -> None:
    together = find_boundary(network, images)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    shuffled = find_boundary(network, images[order], chunk=5)
    alone = [find_boundary(network, images[i : i + 1], chunk=1) for i in range(len(images))]
    assert torch.allclose(together.distance[order], shuffled.distance, rtol=1e-4)
    assert torch.allclose(together.distance, torch.cat([edge.distance for edge in alone]), rtol=1e-4)
    assert torch.allclose(together.points, torch.cat([edge.points for edge in alone]), atol=1e-3)


def test_an_image_of_another_class_is_across_already(network: nn.Sequential, images: Tensor) -> None:
    with torch.no_grad():
        predicted = network(images).argmax(1)
    labels = predicted.clone()
    labels[0] = (predicted[0] + 1) % 4
    edge = find_boundary(network, images, labels=labels)
    assert edge.distance[0] == 0
    assert edge.found.all()
    assert torch.equal(edge.points[0], images[0])
    assert edge.crossed_to[0] == predicted[0]
    assert (edge.distance[1:] > 0).all()


class Constant(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.tensor([1.0, 0.0, -1.0]).expand(len(images), 3) + 0 * images.mean((1, 2, 3))[:, None]


@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_a_model_that_always_predicts_one_class(images: Tensor, search: str) -> None:
    with pytest.warns(UserWarning, match="gradients of exactly 0"):
        edge = find_boundary(Constant(), images[:3], search=search)
    assert not edge.found.any()
    assert torch.isinf(edge.distance).all()
    assert (edge.crossed_to == -1).all()
    one_sided = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    with torch.no_grad():
        linear_layer(one_sided).bias.copy_(torch.tensor([1000.0, 0.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edge = find_boundary(one_sided, images[:3], search=search)
    assert not edge.found.any()
    assert torch.isinf(edge.distance).all()
    assert 0 <= edge.points.min() <= edge.points.max() <= 1


def test_a_model_without_parameters(images: Tensor) -> None:
    def brighter_half(pixels: Tensor) -> Tensor:
        return torch.stack([pixels[..., :3].mean((1, 2, 3)), pixels[..., 3:].mean((1, 2, 3))], dim=1)

    edge = find_boundary(brighter_half, images)
    with torch.no_grad():
        left, right = brighter_half(images).T
    # Each half has 54 pixels: moving all by ε changes the difference by 2ε, so ε = |l − r|/2 in 108 pixels.
    assert torch.allclose(edge.distance, (left - right).abs() / 2 * 108**0.5, rtol=2e-3)


@pytest.fixture
def guarded(network: nn.Sequential) -> Iterator[nn.Sequential]:
    """A model whose whole state is compared afterwards."""
    network.train()
    network[1].eval()
    network[0].weight.requires_grad_(False)
    linear_layer(network).weight.grad = torch.ones_like(linear_layer(network).weight)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    yield network
    assert [part.training for part in network] == [True, False, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network[0].weight.requires_grad
    assert network[4].bias.requires_grad
    assert network[4].bias.grad is None
    gradient = linear_layer(network).weight.grad
    assert gradient is not None
    assert bool((gradient == 1).all())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_nothing_of_the_callers_changes(guarded: nn.Sequential, images: Tensor, search: str) -> None:
    given = images[:4].clone().requires_grad_()
    find_boundary(guarded, given, search=search)
    assert torch.equal(given, images[:4])
    assert given.grad is None


def test_nothing_changes_after_an_exception_either(guarded: nn.Sequential, images: Tensor) -> None:
    def failing(*_: object, **__: object) -> Tensor:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        find_boundary(guarded, images, search=failing)


def test_half_precision_models(network: nn.Sequential, images: Tensor) -> None:
    exact = find_boundary(network, images)
    rough = find_boundary(network.to(torch.bfloat16), images)
    assert rough.points.dtype == torch.float32
    assert rough.found.all()
    assert (rough.distance / exact.distance - 1).abs().median() < 0.3  # bfloat16 has three digits


def test_points_found_without_gradients_give_a_warning(images: Tensor) -> None:
    def steps(pixels: Tensor) -> Tensor:  # two classes by brightness, in steps: the gradient is 0 everywhere
        bright = (pixels.mean((1, 2, 3)) > 0.6).float() + 0 * pixels.mean((1, 2, 3))
        return torch.stack([1 - bright, bright], dim=1) * 3

    def mostly(pixels: Tensor) -> Tensor:  # as above, and the margin leans a little on a pixel that decides nothing
        return steps(pixels) + torch.stack([1e-3 * pixels[:, 0, 0, 0], 0 * pixels[:, 0, 0, 0]], dim=1)

    def white(context: SearchContext) -> Tensor:
        bright = context.images[:, :1, :1, :1] > 0.5
        return torch.where(bright, context.images, 1.0)  # bright images are not found, and not counted

    missed = int((images[:, 0, 0, 0] > 0.5).sum())
    assert 0 < missed < 12
    with pytest.warns(UserWarning, match="gradients of exactly 0") as seen:
        edge = find_boundary(steps, images, search=white)
    assert int(edge.found.sum()) == 12 - missed
    assert edge.crossed_to.tolist() == torch.where(edge.found, 1, -1).tolist()
    expected = f"gradients of exactly 0 at the boundary points of {12 - missed} of 12 images"
    assert sum(expected in str(warning.message) for warning in seen) == 1
    with pytest.warns(UserWarning, match=f"points of {12 - missed} of 12 images are probably not the nearest"):
        find_boundary(mostly, images, search=white)


def test_the_boundary_of_a_model_that_rounds_differently_each_time_is_found() -> None:
    """The order of sums depends on the batch and on whether gradients are computed; here the logits differ visibly."""
    model, images, _, distances = linear_model([0.1, 0.2, 0.3, 0.15, 0.25, 0.05])

    class Rounding(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            logits: Tensor = model(pixels)
            return logits + 1e-3 * torch.is_grad_enabled() * torch.tensor([1.0, 0, 0, 0])

    edge = find_boundary(Rounding(), images)
    assert edge.found.all()
    assert torch.allclose(edge.distance, distances, rtol=0.01)


@pytest.mark.parametrize("search", ["fast", "thorough"])
def test_an_open_model_is_searched_and_the_cost_is_said(network: nn.Sequential, images: Tensor, search: str) -> None:
    alone = find_boundary(network, images, search=search)
    with open_model(network, images) as calls:
        calls.logits(images)
        edge = find_boundary(calls, images, search=search)
        assert (edge.gradients, edge.forwards) == (calls.gradients, calls.forwards - len(images))
    assert (edge.gradients, edge.forwards) == (alone.gradients, alone.forwards)
    assert edge.gradients >= 2 * len(images)
    assert torch.equal(edge.points, alone.points)


def test_the_bounds_of_the_call_hold_for_an_open_model_too(images: Tensor) -> None:
    def bright(pixels: Tensor) -> Tensor:  # pixels count more from left to right, so that some end at the limit
        brightness = (pixels * torch.linspace(0, 1, 6)).mean((1, 2, 3))
        return torch.stack([brightness, torch.full_like(brightness, 0.36)], dim=1)

    with open_model(bright, images) as calls:
        inside, outside = find_boundary(calls, images, bounds=(0.0, 0.75)), find_boundary(calls, images)
    assert inside.found.all()
    assert inside.points.max() <= 0.75
    assert 0.75 < outside.points.max() <= 1.0
