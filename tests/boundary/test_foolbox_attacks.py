"""Foolbox's minimum-norm attacks as searches."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_layer, linear_model, small_network
from search_checks import caller_state, crosses, l2_length, run_search
from torch import Tensor, nn

from locality.boundary.bisect import bisect
from locality.boundary.foolbox_attacks import BATCHED, foolbox_search, minimum_norm_attacks
from locality.boundary.search import SearchContext
from locality.model_calls import Calls, open_model
from locality.model_calls.randomness import own_randomness
from locality.types import Norm


def found(name: str, *arguments: Any, **options: Any) -> tuple[Tensor, Calls]:
    return run_search(foolbox_search(name), *arguments, **options)


@pytest.fixture(scope="module")
def near() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    return linear_model([0.12, 0.2, 0.4, 0.6, 0.85])


@pytest.mark.parametrize(
    ("name", "norm", "tolerance"),
    [
        ("foolbox:DDNAttack", "l2", 0.01),
        ("DDNAttack", "l2", 0.01),
        ("foolbox:L2DeepFoolAttack", "l2", 0.01),
        ("foolbox:LInfFMNAttack", "linf", 0.05),
        ("foolbox:LinfDeepFoolAttack", "linf", 0.01),
    ],
)
def test_it_finds_the_boundary_of_a_linear_model(
    near: tuple[nn.Module, Tensor, Tensor, Tensor], name: str, norm: str, tolerance: float
) -> None:
    model, images, labels, exact = near
    points, _ = found(name, model, images, labels, norm=norm)
    assert crosses(model, points, labels).all()
    with open_model(model, images) as calls:
        points = bisect(calls, images, points, labels)
    distance = l2_length(points - images)
    if norm == "linf":
        # The dual norm of the normal: gap/‖w_y − w_k‖₁, least over the classes k.
        with torch.no_grad():
            gaps = model(images).gather(1, labels[:, None]) - model(images)
        weights = linear_layer(model).weight.detach()
        normals = (weights[labels][:, None] - weights).abs().sum(2)
        exact = torch.where(normals > 0, gaps / normals, torch.inf).min(dim=1).values
        distance = (points - images).flatten(1).abs().amax(1)
    assert torch.allclose(distance, exact, rtol=tolerance)


def test_evaluations_are_counted(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    _, calls = found("DDNAttack", model, images, labels, steps=30)
    assert (calls.gradients, calls.forwards) == (30 * len(images), 0)
    _, calls = found("BinarySearchContrastReductionAttack", model, images, labels, binary_search_steps=7)
    assert (calls.gradients, calls.forwards) == (0, 7 * len(images))


def test_points_are_not_clipped_and_failures_stay_failures() -> None:
    model, images, labels, exact = linear_model([1.25])
    points, _ = found("L2CarliniWagnerAttack", model, images, labels, steps=100, binary_search_steps=5)
    assert crosses(model, points, labels).all()
    assert torch.allclose(l2_length(points - images), exact, rtol=0.05)

    def bright(pixels: Tensor) -> Tensor:
        mean = pixels.flatten(1).mean(dim=1)
        return torch.stack([20 * mean, torch.full_like(mean, 0.5)], dim=1)

    grey, first = torch.full((2, 3, 8, 8), 0.5), torch.zeros(2, dtype=torch.int64)
    assert crosses(bright, torch.zeros_like(grey), first).all()
    points, _ = found("L2CarliniWagnerAttack", bright, grey, first, steps=10, binary_search_steps=2)
    assert torch.equal(points, grey), "Foolbox's black image would pass for a success"
    points, _ = found("DDNAttack", bright, grey, first, steps=3, init_epsilon=0.01)
    assert not crosses(bright, points, first).any()


def attack_options(name: str) -> dict[str, Any]:
    small = {"L2CarliniWagnerAttack": {"steps": 20, "binary_search_steps": 3}, "HopSkipJumpAttack": {"steps": 1}}
    long = {
        "GaussianBlurAttack",
        "LinearSearchContrastReductionAttack",
        "SaltAndPepperNoiseAttack",
        "BoundaryAttack",
        ALONE[2],
    }
    return small.get(name, {"steps": 20} if name in long else {})


def needs(name: str) -> Norm:
    return "linf" if name.lower().startswith("linf") else "l2"


ALONE = ["BoundaryAttack", "HopSkipJumpAttack", "LinearSearchBlendedUniformNoiseAttack", "SaltAndPepperNoiseAttack"]


@pytest.mark.filterwarnings("ignore:foolbox.L2FMNAttack")
@pytest.mark.parametrize("name", [*sorted(BATCHED), *ALONE])
def test_company_and_order_do_not_matter(name: str) -> None:
    model = small_network()
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    labels = model.eval()(images).argmax(1)
    order = torch.tensor([3, 0, 2, 1])
    options = {"norm": needs(name), **attack_options(name)}
    together, _ = found(name, model, images, labels, **options)
    shuffled, _ = found(name, model, images[order], labels[order], chunk=3, **options)
    alone, _ = found(name, model, images[1:2], labels[1:2], **options)
    assert torch.allclose(shuffled, together[order], atol=1e-4)
    assert torch.allclose(alone, together[1:2], atol=1e-4)
    if name in ALONE:
        assert crosses(model, together, labels).all()
        other, _ = found(name, model, images, labels, seed=1, **options)
        assert not torch.allclose(other, together, atol=1e-4)


def test_an_early_abort_that_sees_the_batch_runs_image_by_image(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    sizes: list[int] = []

    def spy(pixels: Tensor) -> Tensor:
        sizes.append(len(pixels))
        logits: Tensor = model(pixels)
        return logits

    found("L2CarliniWagnerAttack", spy, images, labels, steps=10, binary_search_steps=1)
    assert set(sizes) == {len(images)}
    sizes.clear()
    found("L2CarliniWagnerAttack", spy, images, labels, steps=10, binary_search_steps=1, abort_early=True)
    assert set(sizes) == {1}


def test_ddn_s_random_directions_at_zero_gradients_are_each_image_s_own() -> None:
    def flat(pixels: Tensor) -> Tensor:
        """No gradient near grey, another class where the first pixel changes much."""
        moved = (pixels[:, 0, 0, 0] - 0.5).abs() - 0.03
        return torch.stack([torch.zeros_like(moved), torch.relu(moved) - 0.01], dim=1)

    images = 0.5 + 0.01 * torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(2))
    labels = torch.zeros(3, dtype=torch.int64)
    together, _ = found("DDNAttack", flat, images, labels, steps=20)
    assert not torch.equal(together, images)
    assert torch.allclose(found("DDNAttack", flat, images.flip(0), labels, steps=20)[0], together.flip(0), atol=1e-5)
    assert torch.allclose(found("DDNAttack", flat, images[2:], labels[2:], steps=20)[0], together[2:], atol=1e-5)


def test_without_a_starting_point_an_image_is_not_found() -> None:
    images = torch.full((2, 3, 4, 4), 0.5)
    labels = torch.zeros(2, dtype=torch.int64)

    def constant(pixels: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.5, 0.2]]).repeat(len(pixels), 1)

    for name in ("BoundaryAttack", "PointwiseAttack"):
        with pytest.warns(UserWarning, match=f"foolbox:{name} found no starting point for some images"):
            points, _ = found(name, constant, images, labels)
        assert torch.equal(points, images)
    for name in ("DDNAttack", "L2DeepFoolAttack", "NewtonFoolAttack", "L2CarliniWagnerAttack"):
        points, _ = found(name, constant, images, labels, steps=5)
        assert points.isfinite().all()


@pytest.mark.parametrize("kind", [ValueError, AssertionError])
def test_errors_of_the_model_are_not_taken_for_a_missing_start(kind: type[Exception]) -> None:
    images = torch.full((1, 3, 4, 4), 0.5)

    def broken(pixels: Tensor) -> Tensor:
        raise kind("the model's own")

    with pytest.raises(kind, match="the model's own"):
        found("BoundaryAttack", broken, images, torch.zeros(1, dtype=torch.int64))


def test_the_three_generators_follow_the_seed_and_come_back() -> None:
    def numpy_state() -> list[int]:
        state: Any = np.random.get_state()
        return list(state[1])

    def draws() -> tuple[float, float, float]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    drawn = []
    for seed in (2**62 + 1, 2**62 + 1, 7):
        with own_randomness(seed, torch.device("cpu")):
            drawn.append(draws())
    assert drawn[0] == drawn[1]
    assert all(one != other for one, other in zip(drawn[1], drawn[2], strict=True))
    states = torch.get_rng_state(), numpy_state(), random.getstate()
    with own_randomness(1, torch.device("cpu")):
        draws()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (numpy_state(), random.getstate()) == states[1:]


@pytest.mark.parametrize(
    ("name", "options", "kind", "words"),
    [
        ("DDNAtack", {}, ValueError, "a minimum-norm attack, got 'foolbox:DDNAtack': did you mean 'DDNAttack'"),
        ("zebra", {}, ValueError, "a minimum-norm attack, got 'foolbox:zebra': try foolbox:DDNAttack"),
        ("foolbox:LinfPGD", {}, ValueError, "got 'foolbox:LinfPGD': it has a fixed epsilon; try foolbox:DDNAttack"),
        ("DatasetAttack", {}, ValueError, "got 'foolbox:DatasetAttack': it needs a data set"),
        ("DDNAttack", {"norm": "linf"}, ValueError, "`norm` must be 'l2', which foolbox:DDNAttack minimises, got 'linf'"),
        ("LInfFMNAttack", {}, ValueError, "`norm` must be 'linf', which foolbox:LInfFMNAttack minimises, got 'l2'"),
        ("EADAttack", {}, ValueError, "`norm` must be 'l1', which foolbox:EADAttack minimises, got 'l2'"),
        (
            "DDNAttack",
            {"stpes": 3},
            TypeError,
            "`stpes` is no option of foolbox:DDNAttack, which takes init_epsilon, steps, gamma",
        ),
    ],
)
def test_wrong_names_norms_and_options_are_named(
    near: tuple[nn.Module, Tensor, Tensor, Tensor], name: str, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    model, images, labels, _ = near
    with pytest.raises(kind, match=words):
        found(name, model, images, labels, **options)


def test_the_tables_name_attacks_that_exist() -> None:
    assert set(minimum_norm_attacks()) >= BATCHED | set(ALONE)
    assert "L2ProjectedGradientDescentAttack" not in minimum_norm_attacks()


def test_foolbox_s_l2_fmn_is_known_to_be_wrong(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, exact = near
    with pytest.warns(UserWarning, match="foolbox:L2FMNAttack of Foolbox 3.3.4"):
        points, _ = found("L2FMNAttack", model, images, labels)
    assert l2_length(points - images)[0] > 2 * exact[0], "no longer true? then the warning can go"


@pytest.mark.parametrize("name", ["DDNAttack", "PointwiseAttack"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_caller_s_state_is_kept_also_after_an_exception(name: str, fails: bool) -> None:
    model, images, labels, _ = linear_model([0.1, 0.2])
    model.train()
    calls_made = 0

    def stop(*_: object) -> None:
        nonlocal calls_made
        calls_made += 1
        if fails and calls_made == 50:
            raise RuntimeError("inside Foolbox")

    model.register_forward_hook(stop)
    before, pixels = caller_state(model), images.clone()
    with open_model(model, images) as calls:  # Entered by hand: the search itself restores, not only `open_model`.
        inside = torch.get_rng_state()
        context = SearchContext(calls, images, labels, "l2", [1, 2])
        if fails:
            with pytest.raises(RuntimeError, match="inside Foolbox"):
                foolbox_search(name)(context)
        else:
            foolbox_search(name)(context)
        assert torch.equal(torch.get_rng_state(), inside)
    assert caller_state(model) == before
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(images, pixels)


def test_progress_grows_to_its_total(near: tuple[nn.Module, Tensor, Tensor, Tensor]) -> None:
    model, images, labels, _ = near
    seen: list[tuple[int, int | None]] = []
    found("DDNAttack", model, images, labels, chunk=2, steps=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]
