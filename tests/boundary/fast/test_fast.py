"""The parts of `fast` that matter where gradients mislead, each by itself: together they cover for one another."""

import math
from typing import Any

import pytest
import torch
from known_models import linear_model
from torch import Tensor

from locality.boundary import fast, find_boundary
from locality.boundary.fast import rivals, tangent_steps
from locality.model_calls import open_model


def steep(images: Tensor) -> Tensor:
    """Two classes, the boundary at a first pixel of 0.3, and next to no gradient away from it."""
    score = torch.tanh(20 * (images.flatten(1)[:, 0] - 0.3))
    return torch.stack([score, -score], dim=1)


def one_image() -> Tensor:
    return torch.tensor([0.5, 0.5]).view(1, 1, 1, 2)


def test_a_tangent_behind_the_image_is_no_agreement() -> None:
    """The first leap goes to the edge of the range, far across, where the tangent puts the image itself across."""
    images, labels = one_image(), torch.tensor([0])
    with open_model(steep, images) as calls:
        state = tangent_steps.State(images, labels, [0], None, calls.limits, settled=0.98)
        tangent_steps.one_round(calls, state, torch.tensor([0]), None, "l2", 2, from_image=True)
    assert state.best.item() == pytest.approx(0.5)  # the leap, cut at 0
    assert state.agreement.item() == -1


def test_a_leap_too_far_comes_back_along_its_line() -> None:
    images = one_image()
    with open_model(steep, images) as calls:
        back = tangent_steps.back_along_the_line(
            calls, images, torch.tensor([-0.5, 0.0]).view(1, 1, 1, 2), torch.tensor([0])
        )
    assert back.flatten().tolist() == pytest.approx([-0.3, 0.0])  # 0.6 × 0.5; 0.6 × 0.3 would not be across


def turning(images: Tensor) -> Tensor:
    """The first pixel promises a boundary ten times too far; the second, unseen at the image, has a near one."""
    first, second = images.flatten(1).T
    score = 0.1 * (first - 0.5) + 0.5 - 40 * (second - 0.5).square() - 80 * (first - 0.5).square()
    return torch.stack([score, torch.zeros_like(score)], dim=1)


def test_rivals_are_ranked_and_tried_from_midway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 1 is the strongest rival at the image and not worth a round midway; nothing was found for the second image."""
    at_image, midway = torch.tensor([0.5, 2.0, 1.5, 1.0, 6.0]), torch.tensor([2.5, 1.0, 1.5, 0.4, 6.0])
    tried: list[Any] = []

    def spy(calls: Any, state: Any, active: Tensor, rival: Tensor, *rest: Any, **more: Any) -> None:
        tried.append((active.tolist(), rival.tolist(), state.offset[active].flatten().tolist(), more["hope"]))

    def model(images: Tensor) -> Tensor:
        share = (0.5 - images.flatten(1)[:, :1]) / 0.12  # of the way to midway
        return torch.cat([torch.zeros_like(share), -at_image - share * (midway - at_image)], dim=1)

    monkeypatch.setattr(rivals, "one_round", spy)
    images = torch.full((2, 1, 1, 2), 0.5)
    with open_model(model, images) as calls:
        state = tangent_steps.State(images, torch.tensor([0, 0]), [0, 0], None, calls.limits, settled=0.98)
        state.best_offset[:] = torch.tensor([-0.2, 0.0])
        state.best[0], state.reached[0] = 0.2, 4
        rivals.try_rivals(calls, state, "l2", 4, 100)
    there = pytest.approx([-0.12, 0.0])
    assert tried == [([0], [2], there, rivals.HOPE), ([0], [3], there, rivals.HOPE)]


def test_sharpening_takes_the_nearest_point_of_a_tangent_where_that_is_across() -> None:
    """A linear model needs no more; where the boundary bends away, the point is not across and the old one stays."""
    model, images, _, _ = linear_model([0.1, 0.4])
    with open_model(model, images) as calls:
        logits = calls.logits(images)
        labels = logits.argmax(1)
        edge = find_boundary(model, images)
        aside = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
        state = tangent_steps.State(images, labels, [0, 0], None, calls.limits, settled=0.98)
        offset = 1.3 * (edge.points - images) + 0.002 * aside
        unknown = torch.zeros_like(images), torch.full((2,), 0.5)  # so that it asks for the gradient
        state.keep_shorter(torch.tensor([0, 1]), offset, calls.logits(images + offset), "l2", *unknown)
        assert torch.isfinite(state.best).all()
        tangent_steps.sharpen(calls, state, "l2", 100)
    assert state.spent.tolist() == [1, 1]
    assert torch.allclose(state.best, edge.distance, rtol=2e-3)

    def bends_away(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        score = 0.3 - first + 4 * (second - 0.5).square()
        return torch.stack([score, torch.zeros_like(score)], dim=1)

    image = torch.tensor([0.0, 0.3]).view(1, 1, 1, 2)
    with open_model(bends_away, image) as calls:
        state = tangent_steps.State(image, torch.tensor([0]), [0], None, calls.limits, settled=0.98)
        offset = torch.tensor([0.302, 0.2]).view(1, 1, 1, 2)
        logits, gradient = calls.gradient(image + offset, tangent_steps.rival_margin, torch.tensor([0]), torch.tensor([1]))
        state.keep_shorter(torch.tensor([0]), offset, logits, "l2", gradient, torch.ones(1))
        tangent_steps.sharpen(calls, state, "l2", 100)
    assert state.spent.item() == 0  # the gradient was known
    assert state.best_offset.flatten().tolist() == pytest.approx([0.302, 0.2])


def test_offsets_are_compared_by_where_their_lines_meet_the_boundary() -> None:
    """0.46 beyond a boundary at 0.4 is nearer than 0.45 beyond one at 0.43; a tangent that says too much is not believed."""
    value, offset = torch.tensor([-0.06, -0.02, -0.4, -0.1]), torch.tensor([0.46, 0.45, 0.5, 0.5]).view(4, 1, 1, 1)
    gradient = torch.tensor([-1.0, -1.0, -1.0, 1.0]).view(4, 1, 1, 1)
    share = tangent_steps.share_to_boundary(value, gradient, offset)
    assert (share * offset.flatten()).tolist() == pytest.approx([0.4, 0.43, 0.5, 0.5])


def test_a_longer_offset_wins_where_its_line_meets_the_boundary_sooner() -> None:
    images, labels = torch.zeros(1, 1, 1, 2), torch.tensor([0])
    state = tangent_steps.State(images, labels, [0], None, (0.0, 1.0), settled=0.98)
    everyone, towards = torch.tensor([0]), torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2)

    def kept(length: float, value: float, alone: float = 1.0) -> bool:
        offset = torch.tensor([length, 0.0]).view(1, 1, 1, 2)
        logits = torch.tensor([[value, 0.0]])
        return bool(state.keep_shorter(everyone, offset, logits, "l2", towards, torch.tensor([alone])))

    assert kept(0.45, -0.02)
    assert kept(0.46, -0.06)
    assert not kept(0.44, -0.01)
    assert not kept(0.45, -0.3)  # too much to be true
    assert not kept(0.45, -0.06, alone=0.5)
    assert state.best.item() == pytest.approx(0.4)
    # The offset itself, across for certain; `find_boundary` bisects it.
    assert state.best_offset.flatten().tolist() == pytest.approx([0.46, 0.0])


@pytest.mark.parametrize(("steps", "max_gradients"), [(8, 15), (8, 16), (32, 39), (32, 40), (32, 59)])
def test_any_allowance_of_at_least_a_round_will_do(steps: int, max_gradients: int) -> None:
    """Gradients are kept for looking elsewhere only where that leaves enough for a round."""
    edge = find_boundary(turning, torch.tensor([0.5, 0.505]).view(1, 1, 1, 2), steps=steps, max_gradients=max_gradients)
    assert edge.found.all()


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
        with open_model(model, pixels) as calls:
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


def test_two_rivals_as_near_as_each_other_do_not_pass_for_one() -> None:
    """Their mixture agrees with itself at once, on the way between them, where the boundary is far."""

    def model(images: Tensor) -> Tensor:
        first, second = (images.flatten(1) - 0.5).T
        rivals = [-0.3 + first - 0.5 * first.square(), -0.33 + second - 0.5 * second.square()]
        return torch.stack([torch.zeros_like(first), *rivals], dim=1)

    edge = find_boundary(model, torch.full((1, 1, 1, 2), 0.5))
    nearest = 1 - math.sqrt(1 - 2 * 0.3)  # where the first rival reaches 0
    assert edge.distance.item() == pytest.approx(nearest, rel=0.05)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_ten_classes_with_almost_equal_logits(scale: float) -> None:
    """The smoothed gradient at the image is a mixture of nine, which turns on the way although the model is linear."""
    generator = torch.Generator().manual_seed(5)
    weights = scale * torch.linalg.qr(torch.randn(48, 10, generator=generator)).Q.T
    images = 0.5 + 0.05 * torch.randn(24, 3, 4, 4, generator=generator)
    logits = (images.flatten(1) - 0.5) @ weights.T
    label = logits.argmax(1)
    gaps = logits.gather(1, label[:, None]) - logits
    exact = (gaps / (scale * math.sqrt(2))).scatter(1, label[:, None], torch.inf).amin(1)
    edge = find_boundary(lambda images: (images.flatten(1) - 0.5) @ weights.T, images)
    assert torch.allclose(edge.distance, exact, rtol=2e-3)


def two_ways(images: Tensor) -> Tensor:
    """Class 1 lies 0.3 away along the first pixel; class 2 0.15 along the second, and class 3 nowhere in the square."""
    first, second = images.flatten(1).T
    return torch.stack([torch.zeros_like(first), first - 0.8, 2 * second - 1.3, second - 3], dim=1)


@pytest.mark.parametrize(("max_gradients", "known"), [(100, 0.3), (7, 0.3), (100, 0.01)])
def test_a_rival_is_left_where_it_promises_nothing(max_gradients: int, known: float) -> None:
    images = torch.full((1, 1, 1, 2), 0.5)
    with open_model(two_ways, images) as calls:
        state = tangent_steps.State(images, torch.tensor([0]), [0], None, calls.limits, settled=0.98)
        state.reached[0], state.best[0] = 1, known
        state.best_offset[0] = torch.tensor([known, 0.0])
        state.first_margin[0] = 0.3
        rivals.try_rivals(calls, state, "l2", 3, max_gradients)
    assert state.spent.item() == calls.gradients
    if max_gradients < 8:  # a round may take more than is allowed
        assert calls.gradients == 0
    elif known < 0.15:  # the tangent says at once that the second class is further away than what is known
        assert calls.gradients == 1
        assert state.best.item() == pytest.approx(known)
    else:
        assert state.reached.item() == 2
        aside, towards = state.best_offset.flatten().tolist()
        assert aside == pytest.approx(0, abs=1e-3)
        assert 0.15 < towards < 0.2  # a little beyond, for `find_boundary` to bisect


def test_sharpening_aims_beyond_rounding() -> None:
    """Large logits and a small margin: the nearest point of the tangent itself is across by rounding at best."""
    images = torch.full((1, 1, 1, 2), 0.5)

    def model(images: Tensor) -> Tensor:
        first, second = images.flatten(1).T
        return torch.stack([40 + 0.1 * (first + second), torch.full_like(first, 40.08)], dim=1)

    with open_model(model, images) as calls:
        state = tangent_steps.State(images, torch.tensor([0]), [0], None, calls.limits, settled=0.98)
        offset = torch.tensor([-0.15, -0.1]).view(1, 1, 1, 2)
        gradient = torch.full_like(images, 0.1)
        state.keep_shorter(torch.tensor([0]), offset, calls.logits(images + offset), "l2", gradient, torch.ones(1))
        tangent_steps.sharpen(calls, state, "l2", 100)
    assert state.best_offset.flatten().tolist() == pytest.approx([-0.1, -0.1], rel=0.03)
    edge = find_boundary(model, images)
    assert edge.distance.item() == pytest.approx(0.02 / 0.1 / math.sqrt(2), rel=0.01)
    assert edge.optimality.item() > 0.9999


def test_a_point_that_is_across_by_rounding_alone_is_not_kept() -> None:
    images, labels = torch.zeros(1, 1, 1, 2), torch.tensor([0])
    state = tangent_steps.State(images, labels, [0], None, (0.0, 1.0), settled=0.98)
    offset, towards = torch.tensor([0.4, 0.0]).view(1, 1, 1, 2), torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2)
    for across, kept in ((1e-6, False), (1e-4, True)):
        logits = torch.tensor([[1.0, 1.0 + across]])
        assert state.keep_shorter(torch.tensor([0]), offset, logits, "l2", towards, torch.ones(1)).item() is kept


@pytest.mark.parametrize("allowed", [20, 60, 100])
def test_no_image_takes_more_gradients_than_allowed(allowed: int) -> None:
    """A boundary that bends so much that nobody is ever content."""

    def model(images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        score = 0.3 + (9 * pixels).sin().mean(1) - 8 * (pixels - 0.5).pow(3).mean(1)
        return torch.stack([score, torch.zeros_like(score), score * 0.5 - 0.2], dim=1)

    for seed in range(8):
        image = torch.rand(1, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
        with open_model(model, image) as calls:
            label = calls.logits(image).argmax(1)
            search: Any = fast.fast_search
            search(calls, image, label, "l2", [0], lambda done, total: None, max_gradients=allowed, gain=-1.0, aligned=2.0)
            assert calls.gradients <= allowed
