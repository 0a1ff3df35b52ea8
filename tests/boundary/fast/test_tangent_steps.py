"""Tangent steps one by one: in a whole search they cover for each other."""

import math

import pytest
import torch
from known_models import linear_model
from search_checks import state_of
from torch import Tensor

from locality.boundary import find_boundary
from locality.boundary.fast import tangent_steps
from locality.model_calls import open_model


def steep(images: Tensor) -> Tensor:
    """Two classes, the boundary at a first pixel of 0.3, and next to no gradient away from it."""
    score = torch.tanh(20 * (images.flatten(1)[:, 0] - 0.3))
    return torch.stack([score, -score], dim=1)


def one_image() -> Tensor:
    return torch.tensor([0.5, 0.5]).view(1, 1, 1, 2)


def test_a_tangent_behind_the_image_has_no_cosine() -> None:
    """The first step goes to the limit of the range, far across, where the tangent puts the image itself across."""
    images = one_image()
    with open_model(steep, images) as calls:
        state = state_of(calls, images)
        tangent_steps.tangent_round(state, torch.tensor([0]), None, 2, from_image=True)
    assert state.best_distance.item() == pytest.approx(0.5)  # the step, clipped at 0
    assert state.cosine_to_tangent.item() == -1


def test_a_step_too_far_is_shortened_along_its_line() -> None:
    images = one_image()
    with open_model(steep, images) as calls:
        shortened = tangent_steps.backtrack(calls, images, torch.tensor([-0.5, 0.0]).view(1, 1, 1, 2), torch.tensor([0]))
    assert shortened.flatten().tolist() == pytest.approx([-0.3, 0.0])  # 0.6 × 0.5; 0.6 × 0.3 would not be across


def test_the_final_step_takes_the_nearest_point_of_a_tangent_where_that_is_across() -> None:
    """A linear model needs no more; where the boundary bends away, the point is not across and the old one stays."""
    model, images, _, _ = linear_model([0.1, 0.4])
    with open_model(model, images) as calls:
        logits = calls.logits(images)
        labels = logits.argmax(1)
        edge = find_boundary(model, images)
        aside = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
        state = state_of(calls, images, labels)
        offset = 1.3 * (edge.points - images) + 0.002 * aside
        unknown = torch.zeros_like(images), torch.full((2,), 0.5)  # so that the gradient is computed
        state.keep_shorter(torch.tensor([0, 1]), offset, calls.logits(images + offset), *unknown)
        assert torch.isfinite(state.best_distance).all()
        tangent_steps.final_tangent_step(state, 100)
    assert state.gradients.tolist() == [1, 1]
    assert torch.allclose(state.best_distance, edge.distance, rtol=2e-3)

    def bends_away(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        score = 0.3 - first + 4 * (second - 0.5).square()
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    image = torch.tensor([0.0, 0.3]).view(1, 1, 1, 2)
    with open_model(bends_away, image) as calls:
        state = state_of(calls, image)
        offset = torch.tensor([0.302, 0.2]).view(1, 1, 1, 2)
        logits, gradient = calls.gradient(image + offset, tangent_steps.rival_margin, torch.tensor([0]), torch.tensor([1]))
        state.keep_shorter(torch.tensor([0]), offset, logits, gradient, torch.ones(1))
        tangent_steps.final_tangent_step(state, 100)
    assert state.gradients.item() == 0  # the gradient was known
    assert state.best_offset.flatten().tolist() == pytest.approx([0.302, 0.2])


def test_the_final_step_aims_beyond_rounding() -> None:
    """Large logits and a small margin: the nearest point of the tangent itself is across by rounding at best."""
    images = torch.full((1, 1, 1, 2), 0.5)

    def model(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        return torch.stack([40 + 0.1 * (first + second), torch.full_like(first, 40.08)], dim=1)

    with open_model(model, images) as calls:
        state = state_of(calls, images)
        offset = torch.tensor([-0.15, -0.1]).view(1, 1, 1, 2)
        gradient = torch.full_like(images, 0.1)
        state.keep_shorter(torch.tensor([0]), offset, calls.logits(images + offset), gradient, torch.ones(1))
        tangent_steps.final_tangent_step(state, 100)
    assert state.best_offset.flatten().tolist() == pytest.approx([-0.1, -0.1], rel=0.03)
    edge = find_boundary(model, images)
    assert edge.distance.item() == pytest.approx(0.02 / 0.1 / math.sqrt(2), rel=0.01)
    assert edge.optimality.item() > 0.9999
