"""AutoPGD at growing epsilons: the paper's appendix B.2."""

import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from search_checks import caller_state, crosses, l2_length, run_search
from torch import Tensor, nn

from locality.boundary import find_boundary
from locality.boundary.autopgd import ZERO_GRADIENTS, _apgd, autopgd_search
from locality.boundary.bisect import bisect
from locality.boundary.pgd_cw import EPSILONS
from locality.boundary.search import SearchContext
from locality.model_calls import Calls, open_model
from locality.perturbation import margin


@pytest.fixture(scope="module")
def near() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    return linear_model([0.12, 0.2, 0.4, 0.6, 0.85])


def first_epsilons(exact: Tensor) -> Tensor:
    return torch.tensor([next(n for n, epsilon in enumerate(EPSILONS) if epsilon > d) for d in exact.tolist()])


def test_it_finds_the_boundary_of_a_linear_model(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, exact = near
    points, _ = run_search(autopgd_search, model, images, labels)
    assert crosses(model, points, labels).all()
    assert (l2_length(points - images) <= torch.tensor(EPSILONS)[first_epsilons(exact)] * 1.0001).all()
    with open_model(model, images) as calls:
        points = bisect(calls, images, points, labels)
    assert torch.allclose(l2_length(points - images), exact, rtol=0.05)
    assert (l2_length(points - images) >= exact * 0.9999).all()


@pytest.mark.parametrize(("classes", "losses"), [(4, 2), (3, 2), (2, 1)])
def test_each_image_stops_at_its_first_successful_epsilon(classes: int, losses: int) -> None:
    model, images, labels, exact = linear_model([0.12, 0.2, 0.6], classes)
    points, calls = run_search(autopgd_search, model, images, labels)
    rounds = losses * int((first_epsilons(exact) + 1).sum())
    assert crosses(model, points, labels).all()
    assert calls.gradients == 101 * rounds, "100 iterations and the start"
    assert calls.forwards == rounds + 1


def test_the_closer_of_the_two_losses_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels, _ = linear_model([0.2, 0.2, 0.2])
    weights = linear_layer(model).weight.detach()
    normals = weights[(labels + 1) % 4] - weights[labels]
    normals = torch.nn.functional.normalize(normals).view_as(images)
    reach = {"ce": [0.25, 0.3, 0.1], "dlr": [0.3, 0.1, 0.15]}

    def fake(calls: Calls, images: Tensor, labels: Tensor, directions: Tensor, epsilon: float, loss: str) -> Tensor:
        assert len(images) in (1, 3)
        lengths = torch.tensor(reach[loss][-len(images) :]).view(-1, 1, 1, 1)
        return images + lengths * normals[-len(images) :]

    monkeypatch.setattr("locality.boundary.autopgd._apgd", fake)
    points, _ = run_search(autopgd_search, model, images, labels)
    lengths = torch.tensor([0.25, 0.3, 0.15])  # the third never crosses: the last point
    assert torch.allclose(l2_length(points - images), lengths)


def test_a_failure_is_no_success() -> None:
    model, images, labels, _ = linear_model([0.4, 1.25])
    points, calls = run_search(autopgd_search, model, images, labels)
    assert crosses(model, points, labels).tolist() == [True, False]
    assert calls.gradients == 101 * 2 * (4 + 7)
    with torch.no_grad():
        before, after = margin(model(images), labels)[1], margin(model(points), labels)[1]
    assert after < 0.15 * before, "not the random start: 1.1 of 1.25 on the way"


def test_the_point_across_is_taken_not_the_one_of_the_largest_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels, _ = linear_model([0.1, 0.1])

    def fake(self: object, x: Tensor, y: Tensor, x_init: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x * 0 + 0.25, torch.tensor([False, True]), torch.zeros(2), x * 0 + 0.75

    monkeypatch.setattr("pyautoattack.autopgd_base.APGDAttack.attack_single_run", fake)
    with open_model(model, images) as calls:
        points = _apgd(calls, images, labels, images, 0.3, "ce")
    assert points[:, 0, 0, 0].tolist() == [0.75, 0.25]


def test_company_order_and_chunks_do_not_matter_and_the_seed_does() -> None:
    model = small_network()
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = model.eval()(images).argmax(1)
    order = torch.tensor([3, 0, 2, 1])
    epsilons = [0.15, 0.5]
    together, _ = run_search(autopgd_search, model, images, labels, epsilons=epsilons)
    assert crosses(model, together, labels).all()
    shuffled, _ = run_search(autopgd_search, model, images[order], labels[order], chunk=3, epsilons=epsilons)
    assert torch.allclose(shuffled, together[order], atol=1e-4)
    alone, _ = run_search(autopgd_search, model, images[1:2], labels[1:2], epsilons=epsilons)
    assert torch.allclose(alone, together[1:2], atol=1e-4)
    other, _ = run_search(autopgd_search, model, images[1:2], labels[1:2], epsilons=epsilons, seed=1)
    assert not torch.allclose(other, together[1:2], atol=1e-4)


def test_the_start_lies_on_the_sphere_of_epsilon() -> None:
    model, images, labels, _ = linear_model([0.1, 0.1])
    seen: list[Tensor] = []

    def spy(pixels: Tensor) -> Tensor:
        if pixels.requires_grad:
            seen.append(pixels.detach().clone())
        logits: Tensor = model(pixels)
        return logits

    run_search(autopgd_search, spy, images, labels, epsilons=[0.2])
    assert torch.allclose(l2_length(seen[0] - images), torch.tensor(0.2), rtol=1e-3)
    directions = (seen[0] - images).flatten(1)
    assert torch.cosine_similarity(directions[0], directions[1], dim=0).abs() < 0.5, "each image has its own"


def test_constant_logits_warn_and_do_not_crash() -> None:
    images = torch.full((2, 3, 8, 8), 0.5)
    labels = torch.zeros(2, dtype=torch.int64)

    def constant(pixels: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.5, 0.2]]).repeat(len(pixels), 1)

    with pytest.warns(UserWarning, match=ZERO_GRADIENTS) as seen:
        points, _ = run_search(autopgd_search, constant, images, labels, epsilons=[0.1, 0.2])
    assert len(seen) == 1
    assert not crosses(constant, points, labels).any()


@pytest.mark.parametrize("fails", [False, True])
def test_the_caller_s_state_is_kept_also_after_an_exception(fails: bool) -> None:
    model, images, labels, _ = linear_model([0.1, 0.2])
    model.train()
    calls_made = 0

    def stop(*_: object) -> None:
        nonlocal calls_made
        calls_made += 1
        if fails and calls_made == 150:
            raise RuntimeError("inside AutoPGD")

    model.register_forward_hook(stop)
    before, pixels = caller_state(model), images.clone()
    with open_model(model, images) as calls:  # Entered by hand: the search itself restores, not only `open_model`.
        inside = torch.get_rng_state()
        context = SearchContext(calls, images, labels, "l2", [1, 2])
        if fails:
            with pytest.raises(RuntimeError, match="inside AutoPGD"):
                autopgd_search(context)
        else:
            autopgd_search(context)
        assert torch.equal(torch.get_rng_state(), inside)
    assert caller_state(model) == before
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(images, pixels)


def test_progress_grows_to_its_total() -> None:
    model, images, labels, _ = linear_model([0.1, 0.23])
    seen: list[tuple[int, int | None]] = []
    run_search(autopgd_search, model, images, labels, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_only_l2_and_only_known_options() -> None:
    model, images, _, _ = linear_model([0.1])
    with pytest.raises(ValueError, match="`norm` must be 'l2' for search='autopgd', got 'linf': supported by fast"):
        find_boundary(model, images, search="autopgd", norm="linf")
    with pytest.raises(TypeError, match="`restarts` is no option of search='autopgd', which takes epsilons"):
        find_boundary(model, images, search="autopgd", restarts=3)
