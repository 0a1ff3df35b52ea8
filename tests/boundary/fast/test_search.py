"""The whole of `fast` where gradients mislead: budgets, rounds, and when images stop."""

import math

import pytest
import torch
from known_models import linear_model
from torch import Tensor

from locality.boundary import SearchContext, find_boundary
from locality.boundary.fast import fast_search
from locality.model_calls import open_model


def turning(images: Tensor) -> Tensor:
    """The first pixel predicts a boundary ten times too far; the second, without gradient at the image, has a near one."""
    first, second = images.flatten(1).T
    score = 0.1 * (first - 0.5) + 0.5 - 40 * (second - 0.5).square() - 80 * (first - 0.5).square()
    return torch.stack([score, torch.zeros_like(score)], dim=1)


@pytest.mark.parametrize(("steps", "max_gradients"), [(8, 15), (8, 16), (32, 39), (32, 40), (32, 59)])
def test_any_budget_of_at_least_one_round_is_enough(steps: int, max_gradients: int) -> None:
    """Gradients are reserved for a rival only if that leaves enough for a round."""
    edge = find_boundary(turning, torch.tensor([0.5, 0.505]).view(1, 1, 1, 2), steps=steps, max_gradients=max_gradients)
    assert edge.found.all()


@pytest.mark.parametrize("budget", [20, 60, 100])
def test_no_image_takes_more_gradients_than_its_budget(budget: int) -> None:
    """A boundary so curved that no image ever converges."""

    def model(images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        score = 0.3 + (9 * pixels).sin().mean(1) - 8 * (pixels - 0.5).pow(3).mean(1)
        return torch.stack([score, torch.zeros_like(score), score * 0.5 - 0.2], dim=1)

    for seed in range(8):
        image = torch.rand(1, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
        with open_model(model, image) as calls:
            label = calls.logits(image).argmax(1)
            context = SearchContext(calls, image, label, "l2", [0])
            fast_search(context, max_gradients=budget, min_improvement=-1.0, converged_cosine=2.0)
            assert calls.gradients <= budget


def test_an_image_that_stops_leaves_its_round_and_the_others_continue() -> None:
    """One image in front of a plane, one before a bent boundary, and a rival each."""

    def model(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        bent = first - 0.2 + 3 * (second - 0.5).square() + 0.5 * (second - 0.5)
        score = torch.where(first > 0.6, first - 0.65, bent)
        return torch.stack([score, torch.zeros_like(score), torch.full_like(score, -9.0)], dim=1)

    images = torch.tensor([[0.8, 0.5], [0.5, 0.35]]).view(2, 1, 1, 2)
    labels, rival = torch.tensor([0, 0]), torch.tensor([1, 1])

    def searched(chosen: list[int], stop_cosine: float) -> tuple[int, Tensor]:
        pixels = images[chosen]
        with open_model(model, pixels) as calls:
            context = SearchContext(calls, pixels, labels[chosen], "l2", [0, 0])
            points = fast_search(context, stop_cosine=stop_cosine, rival=rival[chosen], converged_cosine=0.9)
            return calls.gradients, (points - pixels).flatten(1).norm(dim=1)

    (one, first), (other, second), (together, both) = searched([0], 0.98), searched([1], 0.98), searched([0, 1], 0.98)
    assert one != other  # they leave at different steps
    assert together == one + other
    assert torch.equal(both, torch.cat([first, second]))
    assert together < searched([0, 1], 2.0)[0]  # 2 exceeds any cosine: no image stops


def test_the_search_continues_after_a_round_that_finds_nothing() -> None:
    """A margin that decreases ever more slowly: each tangent predicts a boundary far too near."""

    def model(images: Tensor) -> Tensor:
        score = torch.exp(40 * (images.flatten(1)[:, 0] - 0.1)) - 1
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    with pytest.warns(UserWarning, match="unusual scale"):  # a first margin of 8e13
        edge = find_boundary(model, torch.tensor([0.9, 0.5]).view(1, 1, 1, 2), steps=2, max_gradients=60)
    assert edge.found.all()
    assert edge.distance.item() == pytest.approx(0.8, rel=1e-3)


def test_two_equally_near_rivals_do_not_count_as_one() -> None:
    """The cosine of their mixture is 1 at once, between them, where the boundary is far."""

    def model(images: Tensor) -> Tensor:
        first, second = (images.flatten(1) - 0.5).T
        rivals = [-0.3 + first - 0.5 * first.square(), -0.33 + second - 0.5 * second.square()]
        return torch.stack([torch.zeros_like(first), *rivals], dim=1)

    edge = find_boundary(model, torch.full((1, 1, 1, 2), 0.5))
    nearest = 1 - math.sqrt(1 - 2 * 0.3)  # where the first rival reaches 0
    assert edge.distance.item() == pytest.approx(nearest, rel=0.05)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_ten_classes_with_almost_equal_logits(scale: float) -> None:
    """The smoothed gradient at the image is a mixture of nine, which changes on the way although the model is linear."""
    generator = torch.Generator().manual_seed(5)
    weights = scale * torch.linalg.qr(torch.randn(48, 10, generator=generator)).Q.T
    images = 0.5 + 0.05 * torch.randn(24, 3, 4, 4, generator=generator)
    logits = (images.flatten(1) - 0.5) @ weights.T
    label = logits.argmax(1)
    gaps = logits.gather(1, label[:, None]) - logits
    exact = (gaps / (scale * math.sqrt(2))).scatter(1, label[:, None], torch.inf).amin(1)
    edge = find_boundary(lambda images: (images.flatten(1) - 0.5) @ weights.T, images)
    assert torch.allclose(edge.distance, exact, rtol=2e-3)


def test_fast_spends_gradients_where_they_are_needed() -> None:
    """A linear model is solved in the first round: no image gets another."""
    model, images, _, _ = linear_model([0.1, 0.2, 0.4])
    assert find_boundary(model, images).gradients <= (8 + 4 + 8) * len(images)
