"""Smoothed models and their saliency against the closed form of one ReLU layer (Theorem 1 and Corollary 1)."""

import math
from typing import Any

import pytest
import torch
from known_models import linear_model, small_network
from torch import Tensor, nn

from locality import SM, find_boundary
from locality.attribution.smoothgrad import smooth_gradient
from locality.certified.smoothing import (
    SmoothedModel,
    smoothed_relu_bound,
    smoothed_relu_saliency,
    smoothed_saliency,
)
from locality.model_calls import open_model

SHAPE = (1, 3, 4)
WEIGHTS = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))


def one_layer(images: Tensor) -> Tensor:
    return (images.flatten(1) @ WEIGHTS.T).relu()


def some_images(count: int = 4, seed: int = 0) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def phi(values: Tensor) -> Tensor:
    found: Tensor = torch.special.ndtr(values)
    return found


def mean_relu(images: Tensor, sigma: float) -> Tensor:
    """E[max(0, a + s·z)] = a·Φ(a/s) + s·φ(a/s), s = σ‖w‖."""
    activation, spread = images.flatten(1) @ WEIGHTS.T, sigma * WEIGHTS.norm(dim=1)
    density = torch.exp(-((activation / spread) ** 2) / 2) / math.sqrt(2 * math.pi)
    return activation * phi(activation / spread) + spread * density


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_the_closed_form_is_the_gradient_of_the_mean(sigma: float) -> None:
    images = some_images().requires_grad_()
    for number in range(3):
        (gradient,) = torch.autograd.grad(mean_relu(images, sigma)[:, number].sum(), images)
        assert torch.allclose(smoothed_relu_saliency(WEIGHTS, images.detach(), sigma)[:, number], gradient, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_saliency_by_monte_carlo_finds_the_closed_form(sigma: float) -> None:
    images, samples = some_images(), 3000
    for number in range(3):
        exact = smoothed_relu_saliency(WEIGHTS, images, sigma)[:, number]
        found = smoothed_saliency(one_layer, images, number, sigma, samples)
        share = phi(images.flatten(1) @ WEIGHTS[number] / (sigma * WEIGHTS[number].norm()))
        error = (share * (1 - share) / samples).sqrt().view(-1, 1, 1, 1) * WEIGHTS[number].view(SHAPE).abs()
        assert ((found - exact).abs() <= 4 * error + 1e-5).all()
        assert not torch.allclose(exact, images * 0 + WEIGHTS[number].view(SHAPE), atol=0.01)  # that of no noise


def test_it_is_the_bound_that_falls_with_sigma() -> None:
    """Theorem 1 and Corollary 1 as they hold: the distance of two maps is below a bound that falls, and may itself grow."""
    first, second = some_images(200, 1), some_images(200, 2)
    apart = (first - second).flatten(1).norm(dim=1)
    last = torch.full((200, 3), torch.inf)
    for sigma in (0.05, 0.1, 0.3, 1.0, 3.0):
        maps = smoothed_relu_saliency(WEIGHTS, first, sigma) - smoothed_relu_saliency(WEIGHTS, second, sigma)
        bound = smoothed_relu_bound(WEIGHTS, apart, sigma)
        assert (maps.flatten(2).norm(dim=2) <= bound).all()
        assert (bound < last).all()
        last = bound
    # Two points on the active side: the same map without noise, different ones with it.
    unit = (WEIGHTS[0] / WEIGHTS[0].norm()).view(1, *SHAPE)
    near, far = 0.5 * unit, 1.5 * unit

    def distance(sigma: float) -> float:
        maps = smoothed_relu_saliency(WEIGHTS, near, sigma) - smoothed_relu_saliency(WEIGHTS, far, sigma)
        return float(maps[0, 0].norm())

    assert distance(0.05) < 1e-3 < 0.1 < distance(0.5)


def test_the_bound_is_as_small_as_it_can_be() -> None:
    unit = (WEIGHTS[0] / WEIGHTS[0].norm()).view(1, *SHAPE)
    maps = smoothed_relu_saliency(WEIGHTS, 0.01 * unit, 0.5) - smoothed_relu_saliency(WEIGHTS, -0.01 * unit, 0.5)
    bound = smoothed_relu_bound(WEIGHTS, torch.tensor([0.02]), 0.5)
    assert float(maps[0, 0].norm()) == pytest.approx(float(bound[0, 0]), rel=1e-3)


def test_the_smoothed_model_is_the_mean() -> None:
    images, samples = some_images(), 3000
    found = SmoothedModel(one_layer, 0.5, samples)(images)
    assert torch.allclose(found, mean_relu(images, 0.5), atol=4 * 0.5 * float(WEIGHTS.norm(dim=1).max()) / samples**0.5)
    assert not torch.allclose(found, one_layer(images), atol=0.05)
    assert torch.allclose(SmoothedModel(one_layer, 0.0, 3)(images), one_layer(images))


def test_neither_batch_nor_chunk_matters_and_the_caller_keeps_his_numbers() -> None:
    model = small_network().eval()
    images = torch.rand(5, 3, 8, 8)
    state = torch.get_rng_state()
    whole = SmoothedModel(model, 0.3, 7)(images)
    assert torch.equal(torch.get_rng_state(), state)
    for chunk in (1, 3, 7, 20):
        assert torch.allclose(SmoothedModel(model, 0.3, 7, chunk=chunk)(images), whole, atol=1e-5)
    assert torch.allclose(SmoothedModel(model, 0.3, 7)(images.flip(0)).flip(0), whole, atol=1e-5)
    assert torch.allclose(SmoothedModel(model, 0.3, 7)(images[2:3]), whole[2:3], atol=1e-5)
    assert not torch.allclose(SmoothedModel(model, 0.3, 7, seed=1)(images), whole, atol=1e-2)


@pytest.mark.parametrize("chunk", [2, None])
def test_its_gradient_is_the_mean_gradient(chunk: int | None) -> None:
    """Also where chunks are computed again in the backward pass, through a model with weights in another memory format."""
    model = small_network().eval()
    images = torch.rand(3, 3, 8, 8)
    target = torch.tensor([0, 3, 1])
    expected = smooth_gradient(model, images, target, samples=6, sigma=0.2)
    smoothed = SmoothedModel(model, 0.2, 6, chunk=chunk)
    assert torch.allclose(SM(smoothed).attribute(images, target=target), expected, atol=1e-5)
    assert torch.allclose(smoothed_saliency(model, images, target, 0.2, 6), expected, atol=1e-6)
    leaf = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(smoothed(leaf).gather(1, target[:, None]).sum(), leaf)
    assert torch.allclose(gradient, expected, atol=1e-5)
    assert expected.abs().max() > 1e-3


@pytest.mark.parametrize("training", [True, False])
def test_weights_can_be_trained_through_it(training: bool) -> None:
    model, plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    plain.load_state_dict(model.state_dict())
    plain[1].bias.requires_grad_(False)
    SmoothedModel(model, 0.2, 6, chunk=2).train(training)(some_images()).square().sum().backward()
    SmoothedModel(plain, 0.2, 6).train(training)(some_images()).square().sum().backward()
    assert torch.allclose(model[1].weight.grad, plain[1].weight.grad, atol=1e-4)  # type: ignore[arg-type]
    assert plain[1].weight.grad.abs().max() > 1e-3  # type: ignore[union-attr,operator]
    model[1].bias.requires_grad_(False)
    SmoothedModel(model, 0.2, 6, chunk=2).train(training)(some_images()).square().sum().backward()
    assert torch.allclose(model[1].weight.grad, 2 * plain[1].weight.grad, atol=1e-4)  # type: ignore[arg-type,operator]


def test_only_noisy_images_are_kept_for_the_backward_pass() -> None:
    images = torch.rand(1, 3, 8, 8, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    model = small_network().eval()
    weights = sum(parameter.numel() for parameter in model.parameters())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        SmoothedModel(model, 0.2, 40, chunk=4).eval()(images)
    assert sum(kept.values()) < 1.1 * 40 * 192 + weights  # the layers' own would be twenty times that


def test_a_model_in_training_sees_each_chunk_once() -> None:
    model: Any = small_network().train()
    smoothed = SmoothedModel(model, 0.2, 6, chunk=2).train()
    smoothed(torch.rand(1, 3, 8, 8)).sum().backward()
    assert model[1].num_batches_tracked.item() == 3


def test_probabilities_are_averaged_as_probabilities() -> None:
    seen: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        seen.append(one_layer(images))
        return seen[-1]

    found = SmoothedModel(model, 0.5, 20, average="probabilities")(some_images())
    expected = torch.cat(seen).softmax(1).view(4, 20, 3).mean(1).log()
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.exp().sum(1).tolist() == pytest.approx([1.0] * 4)


def test_shared_noise_makes_a_function_without_jumps() -> None:
    def linear(images: Tensor) -> Tensor:
        return images.flatten(1) @ WEIGHTS.T

    first, second = some_images(1), some_images(1) + 0.001
    step = linear(second) - linear(first)
    shared, own = SmoothedModel(linear, 0.5, 10, noise="shared"), SmoothedModel(linear, 0.5, 10)
    assert torch.allclose(shared(second) - shared(first), step, atol=1e-5)
    assert not torch.allclose(own(second) - own(first), step, atol=1e-2)
    model, images, _, distances = linear_model([0.1, 0.2])
    edge = find_boundary(SmoothedModel(model, 0.01, 10, noise="shared"), images)
    assert edge.found.all()
    # The noise's mean shifts the boundary of a linear model, by a hundredth of σ or so.
    assert torch.allclose(edge.distance, distances, atol=0.02)


def test_without_a_target_it_is_the_smoothed_class() -> None:
    def spiky(images: Tensor) -> Tensor:
        value = images.flatten(1).mean(1)
        # Class 0 in a narrow spike around 0.5, class 1 elsewhere; the gradients tell them apart.
        return torch.stack([0.1 * value + 3 * (-((value - 0.5) ** 2) / 1e-6).exp(), 1 - 0.3 * value], dim=1)

    images = torch.full((1, 1, 1, 2), 0.5)
    assert spiky(images).argmax(1).item() == 0
    found = smoothed_saliency(spiky, images, sigma=0.5, samples=50)
    assert found.flatten().tolist() == pytest.approx([-0.15, -0.15])
    with open_model(spiky, images) as calls:
        smoothed_saliency(calls, images, sigma=0.5, samples=50)
        assert (calls.forwards, calls.gradients) == (50, 50)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: SmoothedModel(one_layer, sigma=-1), "`sigma` must be the noise's standard deviation"),
        (lambda x: SmoothedModel(one_layer, sigma=math.nan), "`sigma` must be"),
        (lambda x: SmoothedModel(one_layer, samples=0), "`samples` must be a whole number"),
        (lambda x: SmoothedModel(one_layer, average="votes"), "`average` must be 'logits' or 'probabilities', got 'votes'"),
        (lambda x: SmoothedModel(one_layer, noise="none"), "`noise` must be 'image' or 'shared', got 'none'"),
        (lambda x: smoothed_saliency(one_layer, x, samples=1.5), "`samples` must be a whole number"),
    ],
)
def test_bad_input(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(torch.ones(1, *SHAPE))


def test_its_settings_are_printed() -> None:
    assert "sigma=0.5, samples=9, seed=2, average='logits', noise='image'" in repr(SmoothedModel(nn.Flatten(), 0.5, 9, 2))
