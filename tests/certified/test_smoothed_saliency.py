"""Saliency of smoothed models against the closed form of one ReLU layer (Theorem 1 and Corollary 1)."""

from typing import Any

import pytest
import torch
from relu_layer import SHAPE, WEIGHTS, mean_relu, one_layer, phi, some_images
from torch import Tensor

from locality.certified.smoothed_saliency import smoothed_relu_bound, smoothed_relu_saliency, smoothed_saliency
from locality.model_calls import open_model


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_the_closed_form_is_the_gradient_of_the_mean(sigma: float) -> None:
    images = some_images().requires_grad_()
    for number in range(3):
        (gradient,) = torch.autograd.grad(mean_relu(images, sigma)[:, number].sum(), images)
        assert torch.allclose(smoothed_relu_saliency(WEIGHTS, images.detach(), sigma)[:, number], gradient, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_saliency_by_monte_carlo_agrees_with_the_closed_form(sigma: float) -> None:
    images, samples = some_images(), 3000
    for number in range(3):
        exact = smoothed_relu_saliency(WEIGHTS, images, sigma)[:, number]
        found = smoothed_saliency(one_layer, images, number, sigma, samples)
        share = phi(images.flatten(1) @ WEIGHTS[number] / (sigma * WEIGHTS[number].norm()))
        error = (share * (1 - share) / samples).sqrt().view(-1, 1, 1, 1) * WEIGHTS[number].view(SHAPE).abs()
        assert ((found - exact).abs() <= 4 * error + 1e-5).all()
        assert not torch.allclose(exact, images * 0 + WEIGHTS[number].view(SHAPE), atol=0.01)  # that of no noise


def test_the_bound_decreases_with_sigma() -> None:
    """Theorem 1 and Corollary 1 as they hold: the distance of two maps is below a decreasing bound, and may itself grow."""
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


def test_the_bound_is_tight() -> None:
    unit = (WEIGHTS[0] / WEIGHTS[0].norm()).view(1, *SHAPE)
    maps = smoothed_relu_saliency(WEIGHTS, 0.01 * unit, 0.5) - smoothed_relu_saliency(WEIGHTS, -0.01 * unit, 0.5)
    bound = smoothed_relu_bound(WEIGHTS, torch.tensor([0.02]), 0.5)
    assert float(maps[0, 0].norm()) == pytest.approx(float(bound[0, 0]), rel=1e-3)


def test_without_a_target_the_smoothed_class_is_attributed() -> None:
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


def test_bad_input() -> None:
    samples: Any = 1.5
    with pytest.raises(ValueError, match="`samples` must be a whole number"):
        smoothed_saliency(one_layer, torch.ones(1, *SHAPE), samples=samples)
