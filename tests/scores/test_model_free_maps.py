"""Maps that know nothing: their closed forms, and that neither batch nor global state changes them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import erf

from locality import load_dataset
from locality.scores.locality import locality_scores, map_scores
from locality.scores.model_free_maps import MODEL_FREE_MAPS, centred_gaussian_maps, random_maps, uniform_maps, uniform_scores


def test_the_closed_form_of_the_uniform_map() -> None:
    batch = load_dataset("shapes", count=20).batch(range(20))
    masks = torch.cat([batch.masks, torch.zeros(1, 1, 64, 64).bool(), torch.ones(1, 1, 64, 64).bool()])
    images = torch.cat([batch.images, batch.images[:2]])
    found, formula = map_scores(uniform_maps(images), masks), uniform_scores(masks)
    for name in ("precision", "recall", "f1"):
        assert torch.allclose(getattr(found, name), getattr(formula, name), equal_nan=True)
    assert torch.allclose(found.lift[:20], torch.zeros(20), atol=1e-6)
    assert formula.f1[-2].isnan()
    assert formula.f1[-1] == 1
    large = torch.arange(100).view(1, 1, 10, 10) < 54
    assert uniform_scores(large).f1.item() == pytest.approx(0.7, abs=0.002)  # as its docstring says


def test_the_random_map_scores_its_expectation() -> None:
    batch = load_dataset("shapes", count=100).batch(range(100))
    maps = random_maps(batch.images)
    found = locality_scores(maps, batch.masks)
    share = uniform_scores(batch.masks).precision
    for score, expected in ((found.precision, share), (found.recall, torch.full((100,), 0.5))):
        off = score - expected
        assert off.mean().abs() < 3 * off.std() / math.sqrt(100)
        assert off.abs().max() < 0.05
    assert maps.mean().abs() < 0.005
    assert maps.std().item() == pytest.approx(1, abs=0.005)


def test_the_random_map_belongs_to_the_image() -> None:
    images = load_dataset("shapes", count=3).batch(range(3)).images
    state = torch.random.get_rng_state()
    maps = random_maps(images)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(random_maps(images.flip(0)).flip(0), maps)
    assert torch.equal(random_maps(images[1:2])[0], maps[1])
    assert not torch.equal(random_maps(images, seed=1), maps)
    assert not torch.equal(maps[0], maps[1])


@pytest.mark.parametrize(("height", "width"), [(64, 64), (48, 100)])
def test_the_centred_gaussian_has_a_quarter_of_the_side_as_its_width(height: int, width: int) -> None:
    images = torch.rand(2, 3, height, width)
    maps = centred_gaussian_maps(images)
    assert maps.shape == images.shape
    assert torch.equal(maps, maps.flip(2, 3))
    # Within one standard deviation of the centre lies erf(1/√2) of a Gaussian that is cut at two of them, in each direction.
    masks = torch.zeros(2, 1, height, width, dtype=torch.bool)
    masks[:, :, height // 4 : height * 3 // 4, width // 4 : width * 3 // 4] = True
    expected = (erf(1 / math.sqrt(2)) / erf(2 / math.sqrt(2))) ** 2
    found = map_scores(maps, masks)
    assert found.precision.tolist() == pytest.approx([expected] * 2, rel=1e-3)
    assert found.recall.tolist() == [1, 1]
    assert (found.lift > 0.4).all()


def test_the_table() -> None:
    images = torch.rand(2, 3, 8, 8)
    assert list(MODEL_FREE_MAPS) == ["uniform", "random", "centred Gaussian"]
    for make in MODEL_FREE_MAPS.values():
        maps = make(images, 0)
        assert maps.shape == images.shape
        assert maps.dtype == torch.float32
        maps += 1  # its own memory, no view
