"""Rounds towards other classes than the one reached."""

from typing import Any

import pytest
import torch
from search_checks import state_of
from torch import Tensor

from locality.boundary.fast import rivals
from locality.boundary.fast.state import State
from locality.model_calls import open_model


def two_ways(images: Tensor) -> Tensor:
    """Class 1 lies 0.3 away along the first pixel; class 2 0.15 along the second, and class 3 nowhere in the square."""
    first, second = images.flatten(1).T
    return torch.stack([torch.zeros_like(first), first - 0.8, 2 * second - 1.3, second - 3], dim=1)


def test_rivals_are_ranked_and_tried_on_the_way_to_the_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 1 is the strongest rival at the image and not tried on the way; nothing was found for the second image."""
    at_image, on_the_way = torch.tensor([0.5, 2.0, 1.5, 1.0, 6.0]), torch.tensor([2.5, 1.0, 1.5, 0.4, 6.0])
    tried: list[Any] = []

    def spy(state: State, active: Tensor, rival: Tensor, *rest: Any, **more: Any) -> None:
        tried.append((active.tolist(), rival.tolist(), state.offset[active].flatten().tolist(), more["length_limits"]))

    def model(images: Tensor) -> Tensor:
        share = (0.5 - images.flatten(1)[:, :1]) / 0.12  # of the way to where rivals are tried
        return torch.cat([torch.zeros_like(share), -at_image - share * (on_the_way - at_image)], dim=1)

    monkeypatch.setattr(rivals, "tangent_round", spy)
    images = torch.full((2, 1, 1, 2), 0.5)
    with open_model(model, images) as calls:
        state = state_of(calls, images)
        state.best_offset[:] = torch.tensor([-0.2, 0.0])
        state.best_distance[0], state.best_class[0] = 0.2, 4
        rivals.try_rivals(state, 4, 100)
    start, limits = pytest.approx([-0.12, 0.0]), rivals.LENGTH_LIMITS
    assert tried == [([0], [2], start, limits), ([0], [3], start, limits)]


@pytest.mark.parametrize(("max_gradients", "known"), [(100, 0.3), (7, 0.3), (100, 0.01)])
def test_a_rival_with_a_long_tangent_is_abandoned(max_gradients: int, known: float) -> None:
    images = torch.full((1, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = state_of(calls, images)
        state.best_class[0], state.best_distance[0] = 1, known
        state.best_offset[0] = torch.tensor([known, 0.0])
        state.first_margin[0] = 0.3
        rivals.try_rivals(state, 3, max_gradients)
    assert state.gradients.item() == calls.gradients
    if max_gradients < 8:  # a round may take more than is allowed
        assert calls.gradients == 0
    elif known < 0.15:  # by its first tangent the second class is farther away than the known point
        assert calls.gradients == 1
        assert state.best_distance.item() == pytest.approx(known)
    else:
        assert state.best_class.item() == 2
        first, second = state.best_offset.flatten().tolist()
        assert first == pytest.approx(0, abs=1e-3)
        assert 0.15 < second < 0.2  # a little beyond, for `find_boundary` to bisect
