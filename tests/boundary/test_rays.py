"""RayS: the closed form of linear models, its queries, and that it needs nothing but predicted classes."""

from typing import Any

import pytest
import torch
from known_models import small_network
from search_checks import run_search
from torch import Tensor, nn

from locality.boundary import find_boundary
from locality.boundary.rays import TOLERANCE, rays_search
from locality.errors import ArgumentError


def two_classes(pixels: int = 16) -> tuple[nn.Module, Tensor]:
    """A linear model of two classes, and images around grey: away from 0 and 1 no sign is cut."""
    generator = torch.Generator().manual_seed(2)
    linear = nn.Linear(pixels, 2)
    images = 0.5 + 0.1 * torch.randn(6, 1, 4, pixels // 4, generator=generator)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(2, pixels, generator=generator))
        linear.bias.copy_(-(linear.weight.sum(1) / 2))
    return nn.Sequential(nn.Flatten(), linear), images


def closed_form(model: nn.Module, images: Tensor) -> Tensor:
    """N: margin / ‖w_0 − w_1‖₁."""
    weight = next(model.parameters()).detach()
    with torch.no_grad():
        logits = model(images)
    distance: Tensor = (logits[:, 0] - logits[:, 1]).abs() / (weight[0] - weight[1]).abs().sum()
    return distance


def hard_labels(model: nn.Module) -> Any:
    """Numbers of which only the largest one's place says anything, and which carry no gradient."""

    def classes(images: Tensor) -> Tensor:
        with torch.no_grad():
            return 2.0 * nn.functional.one_hot(model(images).argmax(1), 2).float()

    return classes


def test_a_linear_model_has_the_closed_form() -> None:
    model, images = two_classes()
    edge = find_boundary(model, images, search="rays", norm="linf")
    expected = closed_form(model, images)
    assert edge.found.all()
    assert (edge.distance >= expected - 1e-6).all()
    assert (edge.distance <= expected + 3 * TOLERANCE).all()
    assert edge.optimality.isnan().all()
    assert edge.gradients == 0
    with torch.no_grad():
        assert torch.equal(model(edge.points).argmax(1), edge.crossed_to)
    assert (edge.crossed_to != edge.labels).all()
    assert edge.forwards < 6 * 1000  # it ends by itself


def test_predicted_classes_are_enough() -> None:
    model, images = two_classes()
    whole = find_boundary(model, images, search="rays", norm="linf")
    hard = find_boundary(hard_labels(model), images, search="rays", norm="linf")
    assert torch.equal(hard.points, whole.points)
    assert torch.equal(hard.distance, whole.distance)
    assert (hard.forwards, hard.gradients) == (whole.forwards, 0)


@pytest.mark.parametrize("queries", [3, 4, 17, 40, 120])
def test_an_image_costs_no_more_than_its_queries(queries: int) -> None:
    model, images = two_classes()
    seen: list[int] = []

    def counted(pixels: Tensor) -> Tensor:
        seen.append(len(pixels))
        logits: Tensor = model(pixels)
        return logits

    edge = find_boundary(counted, images, search="rays", norm="linf", queries=queries)
    assert sum(seen) == edge.forwards <= 6 * queries
    assert (edge.distance >= closed_form(model, images) - 1e-6).all()
    if queries <= 40:
        assert edge.forwards == 6 * queries


def test_more_queries_are_never_farther() -> None:
    model, images = small_network().eval(), 0.3 + 0.4 * torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    distances = [
        find_boundary(model, images, search="rays", norm="linf", queries=queries).distance for queries in (20, 100, 500)
    ]
    assert (distances[0] >= distances[1] - TOLERANCE).all()
    assert (distances[1] >= distances[2] - TOLERANCE).all()
    assert distances[2].mean() < 0.7 * distances[0].mean()


def test_an_image_is_searched_by_itself() -> None:
    model, images = two_classes()
    together = find_boundary(model, images, search="rays", norm="linf", queries=60)
    for row in range(len(images)):
        alone = find_boundary(model, images[row : row + 1], search="rays", norm="linf", queries=60)
        assert torch.equal(alone.points, together.points[row : row + 1])


def test_blocks_are_halved_level_by_level() -> None:
    """Class 1 wherever the last of four pixels is below 0.25: −1 is found at once, and no further flip helps."""
    asked: list[list[float]] = []

    def last_pixel(images: Tensor) -> Tensor:
        asked.extend(images.flatten(1).tolist())
        last = images.flatten(1)[:, 3]
        return torch.stack([last - 0.25, 0.25 - last], dim=1)

    image = torch.full((1, 1, 2, 2), 0.5)
    points, _ = run_search(rays_search, last_pixel, image, torch.tensor([0]), norm="linf", queries=1000)
    assert asked[:2] == [[1.0] * 4, [0.0] * 4]  # the signs as they are; level 0: all of them flipped
    after = [[round(value, 2) for value in point] for point in asked[2 + 16 :]]  # 16 halvings of [0, 1] reach 2e-5
    low, high = 0.25, 0.75
    halves = [[high, high, low, low], [low, low, high, high]]
    singles = [[high if other == place else low for other in range(4)] for place in range(4)]
    assert after == halves + singles
    assert float((points - image).abs().max()) == pytest.approx(0.25, abs=TOLERANCE)


def test_single_pixels_are_flipped_until_none_helps() -> None:
    """The first pixel's flip helps only after that of the last one, which comes later in a pass."""
    nearer = {(1, 1, 1, -1): 0.4, (-1, 1, 1, -1): 0.3}  # distance by signs; 0.45 for all others

    def by_signs(images: Tensor) -> Tensor:
        offsets = images.flatten(1) - 0.5
        needed = [nearer.get(tuple(signs), 0.45) for signs in offsets.sign().int().tolist()]
        beyond = offsets.abs().amax(1) - torch.tensor(needed)
        return torch.stack([-beyond, beyond], dim=1)

    edge = find_boundary(by_signs, torch.full((1, 1, 2, 2), 0.5), search="rays", norm="linf")
    assert edge.distance.item() == pytest.approx(0.3, abs=TOLERANCE)
    assert edge.points.flatten().tolist() == pytest.approx([0.2, 0.8, 0.8, 0.2], abs=TOLERANCE)


def test_where_no_corner_is_across_nothing_is_found() -> None:
    def constant(images: Tensor) -> Tensor:
        return torch.stack([images.mean((1, 2, 3)) + 2, images.mean((1, 2, 3))], dim=1)

    edge = find_boundary(constant, torch.full((2, 1, 2, 2), 0.5), search="rays", norm="linf", queries=500)
    assert not edge.found.any()
    assert edge.distance.isinf().all()
    assert edge.crossed_to.tolist() == [-1, -1]
    assert edge.forwards < 50  # all flips of single pixels failed


def test_pixels_stay_within_their_range() -> None:
    """The sum rises from 1.48 to 1.6: the first pixel has room for 0.02 only, so the second moves by 0.1."""

    def bright(images: Tensor) -> Tensor:
        total = images.flatten(1).sum(1)
        return torch.stack([1.6 - total, total - 1.6], dim=1)

    edge = find_boundary(bright, torch.tensor([0.98, 0.5]).view(1, 1, 1, 2), search="rays", norm="linf")
    assert edge.points.flatten().tolist() == pytest.approx([1.0, 0.6], abs=TOLERANCE)
    assert edge.distance.item() == pytest.approx(0.1, abs=TOLERANCE)


def test_an_image_that_is_across_already_costs_no_search() -> None:
    model, images = two_classes()
    with torch.no_grad():
        labels = 1 - model(images).argmax(1)
    edge = find_boundary(model, images, labels, search="rays", norm="linf")
    assert edge.found.all()
    assert edge.distance.tolist() == [0.0] * 6
    assert edge.forwards == 12


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"norm": "l2"}, "`norm` must be 'linf' for search='rays', got 'l2': supported by fast"),
        ({"norm": "linf", "queries": 2}, "`queries` must be a whole number of at least 3, got 2"),
        ({"norm": "linf", "queries": 10.0}, "`queries` must be a whole number"),
        ({"norm": "linf", "bounds": None}, "`bounds` must be"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    model, images = two_classes()
    with pytest.raises(ArgumentError) as caught:
        find_boundary(model, images, search="rays", **given)
    assert str(caught.value).startswith(sentence)
