"""What every method promises: the batch does not matter, nothing of the caller's changes, wrong input is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_state import same, state
from torch import Tensor, nn

from locality.attribution import (
    METHODS,
    adversarial_gradient_integration,
    attribute_all,
    boundary_deep_lift,
    boundary_integrated_gradients,
    boundary_saliency,
    boundary_smooth_gradient,
    input_x_gradient,
    integrated_gradients,
    saliency_map,
    smooth_gradient,
)
from locality.types import Boundary

# Every pure function as (model, images, target) → maps; the boundary is made up: half way to grey.


def edge_of(images: Tensor) -> Boundary:
    count = len(images)
    zeros = torch.zeros(count, dtype=torch.int64)
    points = images.detach() * 0.5 + 0.25
    return Boundary(points, torch.ones(count), torch.ones(count, dtype=torch.bool), zeros, zeros, torch.ones(count))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "SM": saliency_map,
    "InputXGradient": input_x_gradient,
    "IG": lambda model, images, target=None, **options: (
        integrated_gradients(model, images, target, points=6, **options).maps
    ),
    "BSM": lambda model, images, target=None, **options: boundary_saliency(
        model, images, edge_of(images), target, **options
    ),
    "BIG": lambda model, images, target=None, **options: (
        boundary_integrated_gradients(model, images, edge_of(images), target, 6, **options).maps
    ),
    "BSG": lambda model, images, target=None, **options: boundary_smooth_gradient(
        model, images, edge_of(images), target, 5, **options
    ),
    "BDeepLIFT": lambda model, images, target=None, **options: (
        boundary_deep_lift(model, images, edge_of(images), target, **options).maps
    ),
    "SmoothGrad": lambda model, images, target=None, **options: smooth_gradient(model, images, target, 5, **options),
    "AGI": lambda model, images, target=None, **options: adversarial_gradient_integration(
        model, images, target, 3, 4, **options
    ),
    "together": lambda model, images, target=None, **options: (
        attribute_all(model, images, ["BSM", "IG", "BIG"], target, edge_of(images), points=6, **options)["BIG"].maps  # type: ignore[union-attr]
    ),
}
every_method = pytest.mark.parametrize("name", FUNCTIONS)


def test_every_method_is_covered() -> None:
    need_attention = {"Rollout", "GradientRollout"}  # test_rollout.py has networks for them
    assert set(METHODS) == set(FUNCTIONS) - {"together"} | need_attention


@every_method
@pytest.mark.parametrize("target", [None, [0, 1, 2, 3, 4, 0, 1]])
def test_neither_batch_nor_order_nor_chunk_changes_a_map(
    network: nn.Module, images: Tensor, name: str, target: list[int] | None
) -> None:
    function = FUNCTIONS[name]
    whole = function(network, images, target)
    assert whole.shape == images.shape
    assert whole.abs().amax((1, 2, 3)).min() > 1e-4
    order = [4, 2, 6, 0, 1, 5, 3]
    shuffled = function(network, images[order], None if target is None else [target[n] for n in order])
    assert torch.allclose(shuffled, whole[order], atol=1e-5)
    for number in (0, 5):
        single = function(network, images[number : number + 1], None if target is None else target[number])
        assert torch.allclose(single[0], whole[number], atol=1e-5)
    for chunk in (3, 1000):
        assert torch.allclose(function(network, images, target, chunk=chunk), whole, atol=1e-5)


class StoppedError(Exception):
    pass


@every_method
@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_of_the_callers_changes(network: nn.Module, images: Tensor, name: str, interrupted: bool) -> None:
    network.train()
    network.body[1].eval()  # type: ignore[index, union-attr]  # one part in another mode than the rest
    network.head.weight.requires_grad_(False)  # type: ignore[union-attr]
    network.stem[0].weight.grad = torch.ones_like(network.stem[0].weight)  # type: ignore[index, union-attr]
    images.requires_grad_()
    torch.manual_seed(9)
    before = state(network, images)
    calls = 0

    def stop(module: nn.Module, arguments: Any, output: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StoppedError

    if interrupted:
        handle = network.head.register_forward_hook(stop)  # type: ignore[union-attr]
        before = state(network, images)
        # In chunks of 2, so that the second pass is in the middle of the work for each method.
        with pytest.raises(StoppedError):
            FUNCTIONS[name](network, images, chunk=2)
        assert calls == 2
    else:
        maps = FUNCTIONS[name](network, images)
        assert not maps.requires_grad
    assert same(before, state(network, images))
    if interrupted:
        handle.remove()


@every_method
def test_gradients_of_the_caller_may_be_switched_off(network: nn.Module, images: Tensor, name: str) -> None:
    expected = FUNCTIONS[name](network, images)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert torch.allclose(FUNCTIONS[name](network, images), expected, atol=1e-6)


@every_method
def test_a_model_without_parameters_works(name: str) -> None:
    images = torch.rand(3, 3, 4, 4)
    weights = 0.1 * torch.randn(48, 4, generator=torch.Generator().manual_seed(0))

    class Bare(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            return (pixels.flatten(1) @ weights).tanh() * 3

    bare = Bare()
    assert torch.allclose(FUNCTIONS[name](bare, images), FUNCTIONS[name](bare.forward, images), atol=1e-6)


@every_method
def test_double_and_half_precision(network: nn.Module, images: Tensor, name: str) -> None:
    expected = FUNCTIONS[name](network, images, 1)
    double = FUNCTIONS[name](network.double(), images.double(), 1)
    assert double.dtype == torch.float64
    if name not in ("SmoothGrad", "BSG"):  # their noise is drawn by the pixels' bytes as float32: the same
        assert torch.allclose(double.float(), expected, atol=1e-3)
    half = FUNCTIONS[name](network.float(), images.half(), 1)
    # What the classes and `attribute_all` hand out is for the caller's further work; the functions keep their digits.
    assert half.dtype == (torch.float16 if name == "together" else torch.float32)


@every_method
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda images: images * 4 - 2, ValueError, r"`images` must be in \[0, 1\]"),
        (lambda images: (images * 255).byte(), TypeError, "`images` must be float32 in"),
        (lambda images: images[0], ValueError, "`images` must be of shape N×C×H×W"),
        (lambda images: images * float("nan"), ValueError, "`images` must be finite"),
        (lambda images: images[:0], ValueError, "`images` must be a batch of at least one image"),
    ],
)
def test_wrong_images_are_named(
    network: nn.Module, images: Tensor, name: str, change: Callable[[Tensor], Tensor], kind: type, message: str
) -> None:
    with pytest.raises(kind, match=message):
        FUNCTIONS[name](network, change(images))


@every_method
@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        (5, ValueError, "`target` must be a class from 0 to 4, got 5"),
        (-1, ValueError, "`target` must be a class from 0 to 4"),
        ([0, 1], ValueError, "`target` must be one class or one for each of the 7 images, got 2"),
        (1.0, TypeError, "`target` must be whole class numbers, got torch.float32"),
        ("cat", TypeError, "`target` must be whole class numbers, got 'cat'"),
        (torch.zeros(7, 3, 12, 12), TypeError, "`target` must be whole class numbers"),
    ],
)
def test_wrong_targets_are_named(
    network: nn.Module, images: Tensor, name: str, target: Any, kind: type, message: str
) -> None:
    with pytest.raises(kind, match=message):
        FUNCTIONS[name](network, images, target)


@every_method
def test_targets_in_every_form_mean_the_same(network: nn.Module, images: Tensor, name: str) -> None:
    expected = FUNCTIONS[name](network, images, 2)
    for target in ([2] * 7, torch.tensor(2), torch.tensor([2]), torch.full((7,), 2), torch.full((7, 1), 2), (2,)):
        assert torch.allclose(FUNCTIONS[name](network, images, target), expected, atol=1e-6)


@every_method
@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (lambda images: {"features": images.flatten(1)}, TypeError, "`model` must return logits as a tensor.* got dict"),
        (lambda images: images.flatten(1) / 0, ValueError, "`model` must return finite logits"),
    ],
)
def test_wrong_models_are_named(images: Tensor, name: str, model: Callable[..., Any], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        FUNCTIONS[name](model, images)


@every_method
def test_zero_gradients_are_said(images: Tensor, name: str) -> None:
    def constant(pixels: Tensor) -> Tensor:
        return pixels.flatten(1)[:, :3] * 0 + torch.tensor([1.0, 2.0, 5.0])

    with pytest.warns(UserWarning, match="is zero in every pixel for 7 of 7 images"):
        maps = FUNCTIONS[name](constant, images)
    assert (maps == 0).all()

    def half_constant(pixels: Tensor) -> Tensor:  # images with a dark corner pixel get no gradient
        return pixels.flatten(1)[:, :3] * (pixels[:, 0, :1, 0] > 0.5) + torch.tensor([1.0, 2.0, 50.0])

    dark = int((images[:, 0, 0, 0] <= 0.5).sum())
    assert 0 < dark < 7
    if name == "SM":
        with pytest.warns(UserWarning, match=f"zero in every pixel for {dark} of 7 images"):
            FUNCTIONS[name](half_constant, images, 1)


def test_bounds_none_lets_noise_through(network: nn.Module, images: Tensor) -> None:
    noisy = images * 3 - 1
    for name, function in FUNCTIONS.items():
        assert function(network, noisy, bounds=None).isfinite().all(), name
