"""The walk by which `fast` looks for a nearer part of the boundary."""

from typing import Any

import pytest
import torch
from torch import Tensor

from locality import find_boundary, load_dataset
from locality.boundary import fast
from locality.boundary.fast import sphere_walk, tangent_steps
from locality.model_calls import Calls, open_model
from locality.zoo.load import load_model


def two_ways(images: Tensor) -> Tensor:
    """Class 1 lies 0.3 away along the first pixel, class 2 0.15 along the second."""
    first, second = images.flatten(1).T
    return 20 * torch.stack([torch.zeros_like(first), first - 0.8, 2 * second - 1.3], dim=1)


def known(calls: Calls, images: Tensor, offset: tuple[float, float]) -> tangent_steps.State:
    """Images of whose boundary `offset` is known; the gradient has turned, and a tangent promised less."""
    state = tangent_steps.State(
        images, torch.zeros(len(images), dtype=torch.long), [0] * len(images), None, calls.limits, 0.97
    )
    state.best_offset[:], state.best[:] = torch.tensor(offset), max(offset)
    state.first_gradient[:], state.best_gradient[:] = torch.tensor([0.0, 1.0]), torch.tensor([-1.0, 0.0])
    state.promised[:], state.agreement[:] = 1.0, 0.9
    return state


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_walk_finds_the_nearer_part(norm: str) -> None:
    images = torch.full((1, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.3, 0.0))
        nearer = sphere_walk.walk(calls, state, norm, 100)
    assert nearer.tolist() == [0]
    assert 0.149 < state.best.item() < 0.17
    assert state.reached.item() == 2
    assert state.spent.item() == calls.gradients == sphere_walk.WALK_STEPS
    assert state.agreement.item() == -1
    assert torch.equal(state.offset, state.best_offset)
    assert state.before.item() == state.best.item()


def test_a_walk_ends_where_tangents_promise_nothing_nearer() -> None:
    images = torch.full((2, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.0, 0.149))
        state.best_offset[1], state.best[1] = torch.tensor([0.3, 0.0]), 0.3
        nearer = sphere_walk.walk(calls, state, "l2", 100)
    assert nearer.tolist() == [1]
    assert state.spent.tolist() == [sphere_walk.LOOK_UNTIL + 1, sphere_walk.WALK_STEPS]
    assert calls.gradients == sum(state.spent.tolist())
    assert state.best[0].item() == pytest.approx(0.149)


def test_only_doubtful_images_are_walked_around() -> None:
    images = torch.full((7, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = known(calls, images, (0.3, 0.0))
        state.first_gradient[1] = torch.tensor([-0.7, 0.6])  # has not turned
        state.promised[2] = 0.4  # about what there is
        state.best[3] = torch.inf  # nothing found
        state.first_gradient[4] = 0.0  # no direction to set out in
        state.spent[5] = 101 - sphere_walk.WALK_STEPS  # too few gradients left
        state.promised[6] = 0.4  # as the third, but the way to the point runs along the boundary
        state.best_gradient[6] = torch.tensor([0.0, 1.0])
        before = state.spent.clone()
        assert sphere_walk.walk(calls, state, "l2", 100).tolist() == [0, 6]
    assert (state.spent - before).tolist() == [sphere_walk.WALK_STEPS, 0, 0, 0, 0, 0, sphere_walk.WALK_STEPS]


def test_the_sphere_and_the_step_are_of_the_norm() -> None:
    moved, radius = torch.tensor([[0.3, -0.4], [0.03, 0.04]]).view(2, 1, 1, 2), torch.tensor([0.25, 0.1])
    on = sphere_walk._on_sphere(moved, radius, "l2").flatten().tolist()
    assert on == pytest.approx([0.15, -0.2, 0.06, 0.08])
    assert sphere_walk._on_sphere(moved, radius, "linf").flatten().tolist() == pytest.approx([0.25, -0.25, 0.03, 0.04])
    assert sphere_walk._unit(moved, "l2").flatten().tolist() == pytest.approx([0.6, -0.8, 0.6, 0.8])
    assert sphere_walk._unit(moved, "linf").flatten().tolist() == [1, -1, 1, 1]
    # The plane 3a + 4b = 1.2 + 0.5, known by its value 0.5 above 0 at an offset of (0.4, 0).
    tangent = torch.tensor([0.5]), -torch.tensor([3.0, 4.0]).view(1, 1, 1, 2), torch.tensor([0.4, 0.0]).view(1, 1, 1, 2)
    assert sphere_walk._tangent_distance(*tangent, "l2").item() == pytest.approx(1.7 / 5)
    assert sphere_walk._tangent_distance(*tangent, "linf").item() == pytest.approx(1.7 / 7)


def test_what_a_walk_found_is_gone_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.full((2, 1, 1, 2), 0.5)
    rounds_made: list[tuple[list[int], bool]] = []

    def counted(calls: Any, state: Any, active: Tensor, *rest: Any) -> None:
        rounds_made.append((active.tolist(), rest[-1]))
        tangent_steps.one_round(calls, state, active, *rest)

    monkeypatch.setattr(fast, "one_round", counted)
    monkeypatch.setattr(fast, "walk", lambda *_: torch.tensor([1]))
    find_boundary(two_ways, images)
    assert rounds_made[0] == ([0, 1], True)
    assert rounds_made[-1] == ([1], False)


def test_walks_shorten_distances_on_a_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model("shapes_vit_robust")
    images = load_dataset("shapes", limit=12, count=40, spec=model.spec).batch(range(12)).images
    found = find_boundary(model, images).distance

    def nobody(*_: Any) -> Tensor:
        return torch.arange(0)

    monkeypatch.setattr(fast, "walk", nobody)
    without = find_boundary(model, images).distance
    assert (found <= 1.001 * without).all()
    assert found.sum() < 0.98 * without.sum()
