"""The thesis' search against a linear model whose boundary is known in closed form."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from known_models import linear_model, small_network
from search_checks import caller_state, crosses, l2_length, run_search
from torch import Tensor, nn

from locality.boundary import find_boundary
from locality.boundary.bisect import bisect
from locality.boundary.pgd_cw import EPSILONS, PaperPieces, paper_pieces, paper_search
from locality.model_calls import open_model


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer steps, for what does not depend on their number."""
    monkeypatch.setattr("locality.boundary.pgd_cw.STEPS", 20)


def pieces(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, **options: Any) -> PaperPieces:
    with open_model(model, images) as calls:
        return paper_pieces(calls, images, labels, **options)


@pytest.fixture(scope="module")
def near() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    return linear_model([0.12, 0.2, 0.4, 0.6, 0.85])


def test_it_finds_the_boundary_of_a_linear_model(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, exact = near
    points, _ = run_search(paper_search, model, images, labels)
    assert crosses(model, points, labels).all()
    with open_model(model, images) as calls:
        points = bisect(calls, images, points, labels)
    assert torch.allclose(l2_length(points - images), exact, rtol=0.02)
    assert (l2_length(points - images) >= exact * 0.9999).all()


def test_each_image_stops_at_its_first_successful_epsilon(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, exact = near
    first = torch.tensor([next(n for n, epsilon in enumerate(EPSILONS) if epsilon > d) for d in exact.tolist()])
    assert len(first.unique()) >= 4
    with open_model(model, images) as calls:
        result = paper_pieces(calls, images, labels)
    assert calls.gradients == 100 * int((first + 1).sum()) + 900 * len(images)
    assert calls.forwards == int((first + 1).sum()) + len(images)
    assert torch.allclose(result.pgd_epsilon, torch.tensor(EPSILONS)[first])
    assert (l2_length(result.pgd_points - images) <= result.pgd_epsilon * 1.0001).all()


def test_a_step_of_pgd_is_two_hundredths_of_epsilon(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    seen: list[Tensor] = []

    def spy(pixels: Tensor) -> Tensor:
        seen.append(pixels.detach().clone())
        logits: Tensor = model(pixels)
        return logits

    run_search(paper_search, spy, images, labels, epsilons=[0.05])
    assert torch.equal(seen[0], images), "no random start"
    assert torch.allclose(l2_length(seen[1] - seen[0]), torch.tensor(0.02 * 0.05), rtol=1e-3)
    assert torch.allclose(l2_length(seen[2] - seen[0]), torch.tensor(0.04 * 0.05), rtol=1e-3)
    assert torch.allclose(l2_length(seen[99] - images), torch.tensor(0.05), rtol=1e-3)
    # CW's first step of Adam moves every pixel by 1e-2 in the space of arctanh, where the derivative is at most 1/2.
    start = next(n for n in range(101, len(seen)) if torch.allclose(seen[n], images, atol=1e-5))
    moved = torch.atanh(2 * seen[start + 1] - 1) - torch.atanh(2 * images - 1)
    assert torch.allclose(moved.abs(), torch.tensor(0.01), rtol=0.02)


def test_cw_is_not_clipped_and_what_lies_beyond_is_flagged() -> None:
    model, images, labels, exact = linear_model([0.4, 1.25])
    result = pieces(model, images, labels)
    assert result.pgd_success.tolist() == [True, False]
    assert result.pgd_epsilon.isnan().tolist() == [False, True]
    assert result.pgd_distance.isinf().tolist() == [False, True]
    assert result.cw_success.all()
    assert result.beyond.tolist() == [False, True]
    assert crosses(model, result.cw_points, labels).all()
    assert torch.allclose(l2_length(result.cw_points - images), exact, rtol=0.05)
    assert torch.equal(result.points[1], result.cw_points[1])


def test_points_beyond_the_papers_epsilon_give_a_warning(
    near: tuple[nn.Module, Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images, labels, _ = linear_model([0.4, 1.25, 1.2])
    with pytest.warns(UserWarning, match=r"the points of 2 of 3 images are CW's and farther away than .* ε = 1\.0"):
        run_search(paper_search, model, images, labels)
    run_search(paper_search, *near[:3])
    result = pieces(model, images, labels)
    closer = dataclasses.replace(result, pgd_distance=result.cw_distance - 0.01)
    assert closer.beyond.any()
    monkeypatch.setattr("locality.boundary.pgd_cw.paper_pieces", lambda *_: closer)
    run_search(paper_search, model, images, labels)  # PGD's points win, so that CW's do not matter


def test_the_closer_success_wins() -> None:
    images = torch.zeros(4, 1, 1, 1)
    near, far = images + 0.1, images + 0.2
    yes, inf = torch.tensor([True, True, False, False]), torch.inf
    result = PaperPieces(
        pgd_points=near,
        pgd_success=yes,
        pgd_epsilon=torch.zeros(4),
        pgd_distance=torch.tensor([0.1, 0.3, inf, inf]),
        cw_points=far,
        cw_success=torch.tensor([True, True, True, False]),
        cw_distance=torch.tensor([0.2, 0.2, 0.2, inf]),
        beyond=yes,
    )
    assert torch.allclose(result.points.flatten(), torch.tensor([0.1, 0.2, 0.2, 0.1]))


def test_a_failure_is_no_success_even_where_black_is_another_class() -> None:
    labels = torch.zeros(2, dtype=torch.int64)
    images = torch.full((2, 3, 8, 8), 0.5)

    def model(pixels: Tensor) -> Tensor:
        mean = pixels.flatten(1).mean(dim=1)
        return torch.stack([20 * mean, torch.full_like(mean, 0.5)], dim=1)

    assert crosses(model, torch.zeros_like(images), labels).all()
    with open_model(model, images) as calls:
        result = paper_pieces(calls, images, labels)
    assert not result.pgd_success.any()
    assert not result.cw_success.any()
    assert not result.beyond.any()
    assert torch.equal(result.cw_points, images)
    assert not crosses(model, result.points, labels).any()
    assert torch.allclose(l2_length(result.points - images), torch.tensor(1.1), rtol=1e-3), "the last iterate of PGD"
    assert calls.gradients == 2 * (700 + 900)


@pytest.mark.usefixtures("short")
def test_constant_logits_do_not_crash() -> None:
    images = torch.full((2, 3, 8, 8), 0.5)
    labels = torch.zeros(2, dtype=torch.int64)

    def constant(pixels: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.5, 0.2]]).repeat(len(pixels), 1)

    points, _ = run_search(paper_search, constant, images, labels)
    assert torch.equal(points, images)


@pytest.mark.usefixtures("short")
def test_company_order_and_chunks_do_not_matter() -> None:
    model = small_network()
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = model.eval()(images).argmax(1)
    order = torch.tensor([3, 0, 4, 2, 1])
    together = pieces(model, images, labels)
    shuffled = pieces(model, images[order], labels[order])
    alone = [pieces(model, images[n : n + 1], labels[n : n + 1]) for n in range(2)]
    assert 0 < together.pgd_success.sum() < 5, "both kinds are here"
    assert together.cw_success.all()
    for field in ("pgd_points", "cw_points", "points", "pgd_epsilon"):
        expected = getattr(together, field)
        assert torch.allclose(getattr(shuffled, field), expected[order], atol=1e-5, equal_nan=True), field
        single = torch.cat([getattr(one, field) for one in alone])
        assert torch.allclose(single, expected[:2], atol=1e-5, equal_nan=True), field
    assert torch.allclose(run_search(paper_search, model, images, labels, chunk=2)[0], together.points, atol=1e-5)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("fails", [False, True])
def test_the_caller_s_state_is_kept_also_after_an_exception(
    near: tuple[nn.Module, Tensor, Tensor, Tensor], fails: bool
) -> None:
    model, images, labels, _ = near
    model.train()
    calls_made = 0

    def stop(*_: object) -> None:
        nonlocal calls_made
        calls_made += 1
        if fails and calls_made == 150:
            raise RuntimeError("inside Foolbox")

    hook = model.register_forward_hook(stop)
    before, pixels = caller_state(model), images.clone()
    try:
        if fails:
            with pytest.raises(RuntimeError, match="inside Foolbox"):
                run_search(paper_search, model, images, labels)
        else:
            run_search(paper_search, model, images, labels)
    finally:
        hook.remove()
    assert caller_state(model) == before
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(images, pixels)
    assert not images.requires_grad


@pytest.mark.usefixtures("short")
def test_progress_grows_to_its_total(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    seen: list[tuple[int, int | None]] = []
    pieces(model, images, labels, progress=lambda done, total: seen.append((done, total)))
    assert {total for _, total in seen} == {5}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [done for done, _ in seen].count(5) == 1
    assert seen[-1] == (5, 5)


@pytest.mark.usefixtures("short")
def test_pixels_a_rounding_outside_the_bounds_are_taken(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    images = images[:1].clone()
    images[0, 0, 0, 0], images[0, 0, 0, 1] = 1 + 5e-7, -5e-7
    points, _ = run_search(paper_search, model, images, labels[:1], epsilons=[0.3])
    assert points.min() >= 0
    assert points.max() <= 1


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"epsilons": []}, ValueError, "`epsilons` must be positive and increasing"),
        ({"epsilons": [0.3, 0.2]}, ValueError, "`epsilons` must be positive and increasing"),
        ({"epsilons": [0, 0.2]}, ValueError, "`epsilons` must be positive and increasing"),
        ({"step": 5}, TypeError, "`step` is no option of search='paper'"),
        ({"norm": "linf"}, ValueError, "`norm` must be 'l2' for search='paper', got 'linf'"),
    ],
)
def test_wrong_settings_are_named(
    near: tuple[nn.Module, Tensor, Tensor, Tensor], options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    model, images, _, _ = near
    with pytest.raises(kind, match=words):
        find_boundary(model, images, search="paper", **options)
