"""The parts of `fast` that matter where gradients mislead, each by itself: together they cover for one another."""

from typing import Any

import pytest
import torch
from known_models import linear_model
from torch import Tensor

from locality.boundary import fast, find_boundary
from locality.model_calls import calling


def steep(images: Tensor) -> Tensor:
    """Two classes, the boundary at a first pixel of 0.3, and next to no gradient away from it."""
    score = torch.tanh(20 * (images.flatten(1)[:, 0] - 0.3))
    return torch.stack([score, -score], dim=1)


def one_image() -> Tensor:
    return torch.tensor([0.5, 0.5]).view(1, 1, 1, 2)


def test_a_tangent_behind_the_image_is_no_agreement() -> None:
    """The first leap goes to the edge of the range, far across, where the tangent puts the image itself across."""
    images, labels = one_image(), torch.tensor([0])
    with calling(steep, images) as calls:
        state = fast._State(images, labels, [0], None, calls.limits, settled=0.98)
        fast._round(calls, state, torch.tensor([0]), None, "l2", 2, from_image=True)
    assert state.best.item() == pytest.approx(0.5)  # the leap, cut at 0
    assert state.agreement.item() == -1


def test_a_leap_too_far_comes_back_along_its_line() -> None:
    images = one_image()
    with calling(steep, images) as calls:
        back = fast._back_along_the_line(calls, images, torch.tensor([-0.5, 0.0]).view(1, 1, 1, 2), torch.tensor([0]))
    assert back.flatten().tolist() == pytest.approx([-0.3, 0.0])  # 0.6 × 0.5; 0.6 × 0.3 would not be across


def test_once_more_begins_along_the_first_gradient_at_the_known_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.full((2, 1, 1, 2), 0.5)
    seen: list[Any] = []
    monkeypatch.setattr(fast, "_round", lambda calls, state, *rest, **more: seen.append((state.offset.clone(), rest, more)))
    with calling(steep, images) as calls:
        state = fast._State(images, torch.tensor([0, 0]), [0, 0], None, calls.limits, settled=0.98)
        state.first_gradient[1] = torch.tensor([3.0, 4.0])
        state.best[1] = 0.1
        fast._try_again(calls, state, torch.tensor([1]), "l2")
        fast._try_again(calls, state, torch.tensor([], dtype=torch.long), "l2")
    ((offset, rest, more),) = seen
    assert offset.flatten().tolist() == pytest.approx([0, 0, -0.06, -0.08])
    assert rest[0].tolist() == [1]
    assert rest[-1] == fast.STEPS_AGAIN
    assert more == {"from_image": False}


def test_only_images_that_were_misled_are_searched_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    real = fast._try_again

    def spied(calls: Any, state: Any, active: Tensor, norm: str) -> None:
        again.append(len(active))
        real(calls, state, active, norm)

    monkeypatch.setattr(fast, "_try_again", spied)
    model, images, _, _ = linear_model([0.1, 0.4])
    find_boundary(model, images)
    assert again == [0]

    def turning(images: Tensor) -> Tensor:
        """The first pixel promises a boundary ten times too far; the second, unseen at the image, has a near one."""
        first, second = images.flatten(1).T
        score = 0.1 * (first - 0.5) + 0.5 - 20 * (second - 0.5).square() - 40 * (first - 0.5).square()
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    edge = find_boundary(turning, torch.tensor([0.5, 0.52]).view(1, 1, 1, 2))
    assert edge.found.all()
    assert again == [0, 1]


def test_a_settled_image_leaves_its_round_and_the_others_go_on() -> None:
    """One image in front of a plane, one before a bent boundary, and a rival each."""

    def model(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        bent = first - 0.2 + 3 * (second - 0.5).square() + 0.5 * (second - 0.5)
        score = torch.where(first > 0.6, first - 0.65, bent)
        return torch.stack([score, torch.zeros_like(score), torch.full_like(score, -9.0)], dim=1)

    images = torch.tensor([[0.8, 0.5], [0.5, 0.35]]).view(2, 1, 1, 2)
    labels, rivals = torch.tensor([0, 0]), torch.tensor([1, 1])
    search: Any = fast.fast_search

    def searched(these: list[int], settled: float) -> tuple[int, Tensor]:
        pixels = images[these]
        with calling(model, pixels) as calls:
            options = {"settled": settled, "rivals": rivals[these], "aligned": 0.9}
            points = search(calls, pixels, labels[these], "l2", [0, 0], lambda done, total: None, **options)
            return calls.gradients, (points - pixels).flatten(1).norm(dim=1)

    (one, first), (other, second), (together, both) = searched([0], 0.98), searched([1], 0.98), searched([0, 1], 0.98)
    assert one != other  # they leave at different steps
    assert together == one + other
    assert torch.equal(both, torch.cat([first, second]))
    assert together < searched([0, 1], 2.0)[0]  # 2 is more than any cosine: nobody leaves


def test_a_round_that_finds_nothing_is_gone_on_from() -> None:
    """A margin that falls ever more slowly: each tangent promises a boundary far too near."""

    def model(images: Tensor) -> Tensor:
        score = torch.exp(40 * (images.flatten(1)[:, 0] - 0.1)) - 1
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    edge = find_boundary(model, torch.tensor([0.9, 0.5]).view(1, 1, 1, 2), steps=2, max_gradients=60)
    assert edge.found.all()
    assert edge.distance.item() == pytest.approx(0.8, rel=1e-3)
