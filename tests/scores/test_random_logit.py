"""Random logit: linear models in closed form, Quantus on the same classes, and maps that ignore the class."""

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_model, small_network
from skimage.metrics import structural_similarity
from torch import Tensor, nn

from locality.attribution import METHODS, saliency_map
from locality.boundary import find_boundary
from locality.scores.random_logit import between_classes, flipped_ssim, other_classes, random_logit

quantus: Any = importlib.import_module("quantus")  # untyped


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_orthogonal_classes_of_a_linear_model() -> None:
    model, images, labels, _ = linear_model([0.1, 0.2, 0.3, 0.4])
    found = random_logit(model, images, ["SM"])["SM"]
    assert found.cosine.abs().max() < 1e-5
    assert (found.other != labels).all()
    maps = {label: saliency_map(model, images, label) for label in range(4)}
    for row, (label, other) in enumerate(zip(labels.tolist(), found.other.tolist(), strict=True)):
        one, two = (maps[number][row].sum(0).double().numpy() for number in (label, other))
        assert found.ssim[row].item() == pytest.approx(flipped_ssim(one, two), abs=1e-6)


def test_opposite_logits_are_the_same_map_up_to_the_sign(images: Tensor) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = nn.Linear(192, 1)

    def model(pixels: Tensor) -> Tensor:
        logit = linear(pixels.flatten(1))
        return torch.cat((logit, -logit), 1)

    found = random_logit(model, images, ["SM"], target=0)["SM"]
    assert found.other.tolist() == [1] * 6
    assert torch.allclose(found.cosine, -torch.ones(6), atol=1e-6)
    assert torch.allclose(found.ssim, torch.ones(6), atol=1e-5)
    assert found.ssim_chance.max() < 0.6


def test_a_map_that_ignores_the_class(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    class Edges:
        def __init__(self, model: object) -> None:
            self.model = model

        def attribute(self, inputs: Tensor, target: Any = None) -> Tensor:
            return inputs - inputs.mean((2, 3), keepdim=True)

    monkeypatch.setitem(METHODS, "edges", Edges)
    found = random_logit(small_network().eval(), images, ["edges", "SM"])
    assert torch.allclose(found["edges"].ssim, torch.ones(6), atol=1e-6)
    assert torch.allclose(found["edges"].cosine, torch.ones(6), atol=1e-6)
    assert found["SM"].cosine.max() < 0.95
    assert torch.equal(found["SM"].other, found["edges"].other)


def test_quantus_agrees_on_two_classes(images: Tensor) -> None:
    """With two classes it draws the same one. Its SSIM is of flattened maps, and its cosine refuses batches."""

    def cosine(one: np.ndarray, other: np.ndarray, batched: bool) -> np.ndarray:
        assert batched
        cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        return np.asarray(cosines)

    grey = images[:, :1]
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 2)).eval()
    metric = quantus.RandomLogit(num_classes=2, similarity_func=cosine, disable_warnings=True, normalise=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = metric(
            model=model,
            x_batch=grey.numpy(),
            y_batch=np.zeros(6, dtype=int),
            a_batch=saliency_map(model, grey, 0).numpy(),
            explain_func=importlib.import_module("locality.attribution.quantus").explain,
            explain_func_kwargs={"method": "SM"},
        )
    found = random_logit(model, grey, ["SM"], target=0)["SM"]
    assert found.cosine.numpy() == pytest.approx(np.array(expected, dtype=float), abs=1e-5)
    assert found.cosine.std() > 0.05


def test_ssim_is_that_of_the_paper() -> None:
    """Channels summed, 1st to 99th percentile, windows of 5 pixels, the better sign."""
    draws = np.random.default_rng(0)
    one, noise = draws.normal(size=(2, 20, 24))
    two = one + noise

    def scaled(values: np.ndarray) -> np.ndarray:
        low, high = np.quantile(values, (0.01, 0.99))
        return np.asarray(((values - low) / (high - low)).clip(0, 1))

    expected = structural_similarity(scaled(one), scaled(two), win_size=5, data_range=1.0)
    assert flipped_ssim(one, two) == pytest.approx(expected)
    assert flipped_ssim(one, -3 * two + 2) == pytest.approx(expected, abs=0.02)
    assert np.isnan(flipped_ssim(one, np.ones_like(one)))
    assert np.isnan(flipped_ssim(one, np.full_like(one, np.nan)))


def test_the_chance_of_the_cosine_in_closed_form(images: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(1, 3, 8, 8, generator=generator) + 0.7 for _ in range(2))
    found = between_classes(first, second, torch.tensor([1]), images[:1], 0)
    shuffled = torch.stack([second.flatten()[torch.randperm(192, generator=generator)] for _ in range(4000)])
    cosines = nn.functional.cosine_similarity(first.flatten()[None], shuffled)
    assert found.cosine_chance.item() == pytest.approx(cosines.mean().item(), abs=4 * cosines.std().item() / 4000**0.5)
    assert found.cosine_chance.item() > 0.2


def test_other_classes_are_uniform_and_seeded_by_the_image() -> None:
    images = torch.rand(900, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    classes = torch.arange(900) % 4
    other = other_classes(images, classes, 4, 0)
    assert (other != classes).all()
    counts = torch.bincount((other - classes) % 4, minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 240
    assert torch.equal(other_classes(images[7:9], classes[7:9], 4, 0), other[7:9])
    assert not torch.equal(other_classes(images, classes, 4, 1), other)


def test_undefined_maps_and_big(images: Tensor) -> None:
    model = small_network().eval()
    edge = find_boundary(model, images)
    found = random_logit(model, images, ["BIG", "IG"], boundary=edge)
    again = random_logit(model, images[2:4], ["BIG"])
    assert torch.allclose(found["BIG"].ssim[2:4], again["BIG"].ssim, atol=1e-3)
    broken = torch.randn(2, 3, 8, 8)
    broken[0, 1, 2, 3] = torch.nan
    undefined = between_classes(broken, torch.randn(2, 3, 8, 8), torch.tensor([1, 1]), images[:2], 0)
    for values in (undefined.ssim, undefined.ssim_chance, undefined.cosine, undefined.cosine_chance):
        assert values.isnan().tolist() == [True, False]
    with pytest.raises(ValueError, match="`target` must be a class from 0 to 4, got 9"):
        random_logit(model, images, ["SM"], target=9)
