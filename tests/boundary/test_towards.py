"""The boundary towards a given class, against closed forms of linear models and an exact quadratic program."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from locality.attribution import BIG, BSM, attribute_all, boundary_integrated_gradients
from locality.boundary import find_boundary

CLASSES = 6


@pytest.fixture(scope="module")
def linear() -> nn.Sequential:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def images() -> Tensor:
    return 0.5 + 0.1 * torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def to(linear: nn.Sequential, images: Tensor) -> Tensor:
    wanted: Tensor = (linear(images).argmax(1) + 1 + torch.arange(10) % 5) % CLASSES
    return wanted


@pytest.fixture(scope="module")
def exact(linear: nn.Sequential, images: Tensor, to: Tensor) -> Tensor:
    """The distance to {f_to ≥ f_k for all k} within [0, 1], by a quadratic program."""
    layer = linear[1]
    assert isinstance(layer, nn.Linear)
    weights, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    distances = []
    for image, wanted in zip(images.flatten(1).double().numpy(), to.tolist(), strict=True):
        normals, offsets = weights[wanted] - weights, bias[wanted] - bias
        solution = minimize(
            lambda point, image=image: ((point - image) ** 2).sum(),
            image,
            jac=lambda point, image=image: 2 * (point - image),
            constraints={"type": "ineq", "fun": lambda z, a=normals, b=offsets: a @ z + b, "jac": lambda z, a=normals: a},
            bounds=[(0, 1)] * 48,
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        distances.append(np.sqrt(solution.fun))
    return torch.tensor(distances)


def test_points_have_the_wanted_class_and_the_exact_distance(
    linear: nn.Sequential, images: Tensor, to: Tensor, exact: Tensor
) -> None:
    edge = find_boundary(linear, images, to=to)
    logits = linear(edge.points)
    assert torch.equal(logits.argmax(1), to)
    assert torch.equal(edge.crossed_to, to)
    assert torch.equal(edge.labels, linear(images).argmax(1))
    ratio = edge.distance / exact
    assert ((ratio > 1 - 1e-5) & (ratio < 1.05)).all()  # `fast` knows one facet at a time, and some points are corners
    # Where the plane f_A = f_B is reached inside the region of B, its closed form is the answer.
    own, weights = edge.labels, linear.get_parameter("1.weight")
    at_image = linear(images)
    margin = (at_image.gather(1, own[:, None]) - at_image.gather(1, to[:, None]))[:, 0]
    plane = margin / (weights[own] - weights[to]).norm(dim=1)
    reached = (plane / exact - 1).abs() < 1e-4
    assert 3 <= int(reached.sum()) < 10  # both kinds are tested
    assert torch.allclose(edge.distance[reached], plane[reached], rtol=1e-4)
    nearest = find_boundary(linear, images)
    assert (edge.distance >= nearest.distance * 0.999).all()


@pytest.mark.parametrize("search", ["thorough", "foolbox:DDNAttack", "autopgd"])
def test_every_search_takes_the_class(linear: nn.Sequential, images: Tensor, to: Tensor, exact: Tensor, search: str) -> None:
    edge = find_boundary(linear, images[:3], search=search, to=to[:3])
    assert torch.equal(linear(edge.points).argmax(1), to[:3])
    assert ((edge.distance / exact[:3] - 1).abs() < 0.1).all()


def test_rays_refuses_a_class(linear: nn.Sequential, images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"`to` must be left out for search='rays', .* supported by fast, thorough, paper"):
        find_boundary(linear, images, search="rays", norm="linf", to=1)


def test_an_image_of_that_class_is_there_already(linear: nn.Sequential, images: Tensor) -> None:
    predicted = linear(images).argmax(1)
    edge = find_boundary(linear, images, to=int(predicted[0]))
    there = predicted == predicted[0]
    assert torch.equal(edge.distance == 0, there)
    assert torch.equal(edge.points[there], images[there])
    assert edge.found.all()


def test_one_class_for_all_is_that_class_for_each(linear: nn.Sequential, images: Tensor) -> None:
    together = find_boundary(linear, images, to=3)
    alone = find_boundary(linear, images[4:5], to=[3])
    assert torch.allclose(together.distance[4:5], alone.distance, rtol=1e-5)


def test_a_class_that_is_never_predicted_is_not_found() -> None:
    def never(pixels: Tensor) -> Tensor:
        flat = pixels.flatten(1)
        return 3 * torch.stack([flat[:, 0], flat[:, 1], flat[:, 0] / 2 - 1], dim=1)

    edge = find_boundary(never, torch.rand(2, 1, 2, 2, generator=torch.Generator().manual_seed(0)), to=2)
    assert not edge.found.any()
    assert edge.crossed_to.tolist() == [-1, -1]


def test_big_and_bsm_start_there(linear: nn.Sequential, images: Tensor, to: Tensor) -> None:
    edge = find_boundary(linear, images, to=to)
    expected = boundary_integrated_gradients(linear, images, edge).maps
    assert torch.allclose(BIG(linear, to=to).attribute(images), expected, atol=1e-5)  # type: ignore[arg-type]
    assert torch.allclose(BIG(linear).attribute(images, boundary=edge), expected, atol=1e-5)  # type: ignore[arg-type]
    together = attribute_all(linear, images, ["BSM"], to=to)["BSM"]
    assert torch.allclose(together, BSM(linear, to=to).attribute(images), atol=1e-5)  # type: ignore[arg-type]
    # The path of BIG ends where f_A = f_B, so that its sum is f_A(x) − f_A(x′).
    own = edge.labels[:, None]
    change = (linear(images).gather(1, own) - linear(edge.points).gather(1, own))[:, 0]
    assert torch.allclose(expected.flatten(1).sum(1), change, atol=1e-4)


def test_wrong_classes_are_named(linear: nn.Sequential, images: Tensor) -> None:
    with pytest.raises(ValueError, match="`to` must be a class from 0 to 5, got 6"):
        find_boundary(linear, images, to=6)
    with pytest.raises(TypeError, match="`to` must be whole class numbers, got 'dog'"):
        find_boundary(linear, images, to="dog")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`labels` must be left out with `to`"):
        find_boundary(linear, images, torch.zeros(10, dtype=torch.int64), to=1)
