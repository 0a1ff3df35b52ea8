"""Max-sensitivity: models whose gradients are known, Captum and Quantus on the same perturbations."""

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import captum.metrics  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from known_models import linear_model
from torch import Tensor, nn

from locality.attribution import saliency_map
from locality.scores.max_sensitivity import max_sensitivity, sensitivity_of
from locality.types import PathMaps

quantus: Any = importlib.import_module("quantus")  # untyped


@pytest.fixture
def images() -> Tensor:
    return torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 0.6 + 0.2


def smooth_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 4)).eval()


def points_of(images: Tensor, **options: Any) -> Tensor:
    """samples×N×C×H×W: the perturbed images that max-sensitivity attributes."""
    seen: list[Tensor] = []

    def attribute(points: Tensor, classes: Tensor) -> Mapping[str, PathMaps | Tensor]:
        seen.append(points)
        return {"map": points}

    sensitivity_of(attribute, images, {"map": images}, torch.zeros(len(images), dtype=torch.int64), **options)
    return torch.stack(seen)


def test_a_linear_model_is_stable_and_a_square_in_closed_form(images: Tensor) -> None:
    model, linear_images, _, _ = linear_model([0.1, 0.2, 0.3, 0.4])
    assert max_sensitivity(model, linear_images, ["SM"])["SM"].distance.max() < 1e-6

    def half_square(pixels: Tensor) -> Tensor:  # the saliency map is the image
        value = (pixels**2).sum((1, 2, 3)) / 2
        return torch.stack((value, 0 * value), 1)

    found = max_sensitivity(half_square, images, ["SM"], 0, radius=0.1, samples=30)["SM"]
    moved = points_of(images, radius=0.1, samples=30) - images
    expected = moved.flatten(2).norm(dim=2).amax(0)
    assert torch.allclose(found.distance, expected, atol=1e-5)
    assert torch.allclose(found.relative, expected / images.flatten(1).norm(dim=1), atol=1e-5)
    assert (found.distance <= 0.1 * 8).all()
    assert found.distance.min() > 0.1 * 8 * 0.55  # a uniform coordinate has length r/√3 on average


def test_perturbations_are_uniform_in_the_ball_and_seeded_by_the_image(images: Tensor) -> None:
    moved = points_of(images, radius=0.05, samples=40) - images
    assert moved.abs().max() <= 0.05 + 1e-6
    assert moved.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.03)
    assert moved.mean().abs() < 0.001
    assert torch.equal(points_of(images[1:3], radius=0.05, samples=3), points_of(images, radius=0.05, samples=3)[:, 1:3])
    assert not torch.equal(points_of(images, samples=1, seed=1), points_of(images, samples=1))
    clipped = points_of(torch.ones(1, 1, 8, 8), radius=0.5)
    assert clipped.max() == 1
    assert points_of(torch.ones(1, 1, 8, 8), radius=0.5, bounds=None).max() > 1.4


def test_captum_and_quantus_agree(images: Tensor) -> None:
    model = smooth_network()
    points = points_of(images, samples=6)
    found = max_sensitivity(model, images, ["SM"], 2, samples=6)["SM"]
    drawn = iter(points.transpose(0, 1).flatten(0, 1)[None])

    def explain(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (saliency_map(model, inputs[0].detach(), 2),)

    expected = captum.metrics.sensitivity_max(explain, images, lambda inputs: (next(drawn),), n_perturb_samples=6)
    assert torch.allclose(found.relative, expected, rtol=1e-4)
    assert found.relative.std() > 0.001

    flat = iter(points.flatten(2).numpy())
    metric = quantus.MaxSensitivity(
        nr_samples=6, perturb_func=lambda **_: next(flat), disable_warnings=True, normalise=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = metric(
            model=model,
            x_batch=images.numpy(),
            y_batch=np.full(4, 2),
            a_batch=saliency_map(model, images, 2).numpy(),
            explain_func=importlib.import_module("locality.attribution.quantus").explain,
            explain_func_kwargs={"method": "SM", "bounds": None},
        )
    assert found.relative.numpy() == pytest.approx(np.array(theirs), rel=1e-4)


def test_chance_is_what_shuffled_values_score(images: Tensor) -> None:
    maps = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.5
    classes = torch.zeros(1, dtype=torch.int64)
    found = sensitivity_of(lambda points, _: {"map": maps}, images[:1], {"map": maps}, classes, samples=1)["map"]
    generator = torch.Generator().manual_seed(1)
    shuffled = torch.stack([maps.flatten()[torch.randperm(64, generator=generator)] for _ in range(4000)])
    changes = (shuffled - maps.flatten()).norm(dim=1) / maps.norm()
    assert found.chance.item() == pytest.approx(changes.square().mean().sqrt().item(), rel=0.01)
    assert found.distance.item() == 0


def test_the_maximum_ignores_undefined_perturbations(images: Tensor) -> None:
    classes = torch.zeros(4, dtype=torch.int64)
    changes = iter([1.0, 3.0, 2.0])

    def attribute(points: Tensor, _: Tensor) -> Mapping[str, PathMaps | Tensor]:
        maps = images + torch.tensor([next(changes), 0, 0, 0])[:, None, None, None] / 8
        if maps[0, 0, 0, 0] - images[0, 0, 0, 0] > 0.3:
            maps[1] = torch.nan
        maps[2] = torch.nan
        return {"map": maps}

    start = images.clone()
    start[3, 0, 0, 0] = torch.nan
    found = sensitivity_of(attribute, images, {"map": start}, classes, samples=3)["map"]
    assert found.distance[0].item() == pytest.approx(3.0, rel=1e-4)
    assert found.distance.isnan().tolist() == [False, False, True, True]
    assert found.defined.tolist() == [3, 2, 0, 0]
    zeros = sensitivity_of(lambda points, _: {"map": points}, images, {"map": 0 * images}, classes, samples=1)["map"]
    assert zeros.relative.isnan().all()


def test_several_methods_with_their_own_boundary() -> None:
    model, images, _, _ = linear_model([0.1, 0.2])
    found = max_sensitivity(model, images, ["SM", "BSM", "BIG"], samples=2, radius=0.01)
    assert found["BSM"].distance.max() < 1e-5
    assert found["BIG"].relative.min() > 0.005  # the step to the boundary grows and shrinks with the noise
    with pytest.raises(ValueError, match="`samples` must be a whole number of perturbations per image, got 0"):
        max_sensitivity(model, images, samples=0)
    with pytest.raises(ValueError, match="`radius` must be a positive distance"):
        max_sensitivity(model, images, ["SM"], radius=0)
