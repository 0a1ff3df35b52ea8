"""Smoothed models: the mean over noise, its gradient, and what the backward pass keeps."""

import math
from typing import Any

import pytest
import torch
from known_models import linear_model, small_network
from relu_layer import WEIGHTS, mean_relu, one_layer, some_images
from torch import Tensor, nn

from locality import SM, find_boundary
from locality.attribution.smoothgrad import smooth_gradient
from locality.certified.smoothed_model import SmoothedModel
from locality.certified.smoothed_saliency import smoothed_saliency


def test_the_smoothed_model_is_the_mean() -> None:
    images, samples = some_images(), 3000
    found = SmoothedModel(one_layer, 0.5, samples)(images)
    assert torch.allclose(found, mean_relu(images, 0.5), atol=4 * 0.5 * float(WEIGHTS.norm(dim=1).max()) / samples**0.5)
    assert not torch.allclose(found, one_layer(images), atol=0.05)
    assert torch.allclose(SmoothedModel(one_layer, 0.0, 3)(images), one_layer(images))


def test_neither_batch_nor_chunk_matters_and_random_state_is_kept() -> None:
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
    """Also if chunks are recomputed in the backward pass, through a model with weights in another memory format."""
    model = small_network().eval()
    images = torch.rand(3, 3, 8, 8)
    target = torch.tensor([0, 3, 1])
    expected = smooth_gradient(model, images, target, samples=6, sigma=0.2)
    smoothed = SmoothedModel(model, 0.2, 6, chunk=chunk)
    maps = SM(smoothed).attribute(images, target=target)
    assert isinstance(maps, Tensor)
    assert torch.allclose(maps, expected, atol=1e-5)
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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sigma": -1}, "`sigma` must be the standard deviation of the noise"),
        ({"sigma": math.nan}, "`sigma` must be"),
        ({"samples": 0}, "`samples` must be a whole number"),
        ({"average": "votes"}, "`average` must be one of logits, probabilities, got 'votes'"),
        ({"noise": "none"}, "`noise` must be one of image, shared, got 'none'"),
    ],
)
def test_bad_input(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SmoothedModel(one_layer, **settings)


def test_its_settings_are_printed() -> None:
    assert "sigma=0.5, samples=9, seed=2, average='logits', noise='image'" in repr(SmoothedModel(nn.Flatten(), 0.5, 9, 2))
