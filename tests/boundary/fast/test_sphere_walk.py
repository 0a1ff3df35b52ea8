"""The sphere walk with which `fast` looks for a nearer part of the boundary."""

from typing import Any

import pytest
import torch
from torch import Tensor

from locality import find_boundary, load_dataset
from locality.boundary import SearchContext
from locality.boundary.fast import search, sphere_walk, tangent_steps
from locality.boundary.fast.state import State
from locality.model_calls import Calls, open_model
from locality.types import Norm
from locality.zoo.load import load_model


def two_ways(images: Tensor) -> Tensor:
    """Class 1 lies 0.3 away along the first pixel, class 2 0.15 along the second."""
    first, second = images.flatten(1).T
    return 20 * torch.stack([torch.zeros_like(first), first - 0.8, 2 * second - 1.3], dim=1)


def known(calls: Calls, images: Tensor, offset: tuple[float, float], norm: Norm = "l2") -> State:
    """Images with the best point at `offset`: its gradient differs from the image's, and the first tangent was longer."""
    labels = torch.zeros(len(images), dtype=torch.long)
    state = State(SearchContext(calls, images, labels, norm, [0] * len(images)), None, 0.97)
    state.best_offset[:], state.best_distance[:] = torch.tensor(offset), max(offset)
    state.image_gradient[:], state.best_gradient[:] = torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 0.0])
    state.tangent_distance[:], state.cosine_to_tangent[:] = 1.0, 0.9
    return state


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_walk_finds_the_nearer_part(norm: Norm) -> None:
    images = torch.full((1, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.3, 0.0), norm)
        nearer = sphere_walk.sphere_walk(state, 100)
    assert nearer.tolist() == [0]
    assert 0.149 < state.best_distance.item() < 0.17
    assert state.best_class.item() == 2
    assert state.gradients.item() == calls.gradients == sphere_walk.WALK_STEPS
    assert state.cosine_to_tangent.item() == -1
    assert torch.equal(state.offset, state.best_offset)
    assert state.previous_distance.item() == state.best_distance.item()


def test_a_walk_ends_where_tangents_predict_nothing_nearer() -> None:
    images = torch.full((2, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.0, 0.149))
        state.best_offset[1], state.best_distance[1] = torch.tensor([0.3, 0.0]), 0.3
        nearer = sphere_walk.sphere_walk(state, 100)
    assert nearer.tolist() == [1]
    assert state.gradients.tolist() == [sphere_walk.LAST_CHECK + 1, sphere_walk.WALK_STEPS]
    assert calls.gradients == sum(state.gradients.tolist())
    assert state.best_distance[0].item() == pytest.approx(0.149)


def test_only_doubtful_images_are_walked_around() -> None:
    images = torch.full((7, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.3, 0.0))
        state.image_gradient[1] = torch.tensor([-0.7, 0.6])  # similar to the one at the best point
        state.tangent_distance[2] = 0.4  # close to the best distance
        state.best_distance[3] = torch.inf  # nothing found
        state.image_gradient[4] = 0.0  # no gradient at the image
        state.gradients[5] = 101 - sphere_walk.WALK_STEPS  # too few gradients left
        state.tangent_distance[6] = 0.4  # as the third, but the offset runs along the boundary
        state.best_gradient[6] = torch.tensor([0.0, 1.0])
        before = state.gradients.clone()
        assert sphere_walk.sphere_walk(state, 100).tolist() == [0, 6]
    assert (state.gradients - before).tolist() == [sphere_walk.WALK_STEPS, 0, 0, 0, 0, 0, sphere_walk.WALK_STEPS]


def test_the_sphere_and_the_step_are_of_the_norm() -> None:
    moved, radius = torch.tensor([[0.3, -0.4], [0.03, 0.04]]).view(2, 1, 1, 2), torch.tensor([0.25, 0.1])
    on = sphere_walk._on_sphere(moved, radius, "l2").flatten().tolist()
    assert on == pytest.approx([0.15, -0.2, 0.06, 0.08])
    assert sphere_walk._on_sphere(moved, radius, "linf").flatten().tolist() == pytest.approx([0.25, -0.25, 0.03, 0.04])
    assert sphere_walk._unit(moved, "l2").flatten().tolist() == pytest.approx([0.6, -0.8, 0.6, 0.8])
    assert sphere_walk._unit(moved, "linf").flatten().tolist() == [1, -1, 1, 1]
    # The plane 3a + 4b = 1.2 + 0.5, given by its value of 0.5 at an offset of (0.4, 0).
    tangent = torch.tensor([0.5]), -torch.tensor([3.0, 4.0]).view(1, 1, 1, 2), torch.tensor([0.4, 0.0]).view(1, 1, 1, 2)
    assert sphere_walk._tangent_distance(*tangent, "l2").item() == pytest.approx(1.7 / 5)
    assert sphere_walk._tangent_distance(*tangent, "linf").item() == pytest.approx(1.7 / 7)


def test_rounds_continue_from_what_a_walk_found(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.full((2, 1, 1, 2), 0.5)
    rounds_made: list[tuple[list[int], bool]] = []

    def counted(state: State, active: Tensor, *rest: Any, from_image: bool) -> None:
        rounds_made.append((active.tolist(), from_image))
        tangent_steps.tangent_round(state, active, *rest, from_image=from_image)

    monkeypatch.setattr(search, "tangent_round", counted)
    monkeypatch.setattr(search, "sphere_walk", lambda *_: torch.tensor([1]))
    find_boundary(two_ways, images)
    assert rounds_made[0] == ([0, 1], True)
    assert rounds_made[-1] == ([1], False)


def test_walks_shorten_distances_on_a_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model("shapes_vit_robust")
    images = load_dataset("shapes", limit=12, count=40, spec=model.spec).batch(range(12)).images
    distance = find_boundary(model, images).distance
    monkeypatch.setattr(search, "sphere_walk", lambda *_: torch.arange(0))
    without = find_boundary(model, images).distance
    assert (distance <= 1.001 * without).all()
    assert distance.sum() < 0.98 * without.sum()
