"""Votes and certified radii of linear models, whose smoothed decision is known."""

from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_model
from scipy.stats import binomtest
from torch import Tensor

from locality.certified.certificate import certify, clopper_pearson_lower, votes


def phi(values: Tensor) -> Tensor:
    found: Tensor = torch.special.ndtr(values)
    return found


def test_votes_follow_the_normal_distribution() -> None:
    model, images, labels, distances = linear_model([0.0, 0.1, 0.2, 0.4], classes=2)
    counts = votes(model, images, sigma=0.2, samples=2000)
    assert counts.sum(1).tolist() == [2000] * 4
    own = counts.gather(1, labels[:, None])[:, 0] / 2000
    assert own.tolist() == pytest.approx(phi(distances / 0.2).tolist(), abs=4 * 0.5 / 2000**0.5)
    assert torch.equal(votes(model, images[1:2], sigma=0.2, samples=2000, chunk=7), counts[1:2])


def test_the_radius_of_a_linear_model_is_just_below_its_distance() -> None:
    """Smoothing does not move a linear boundary, so the true radius is the distance to it."""
    model, images, labels, distances = linear_model([0.1, 0.2, 0.4, 0.0005], classes=2)
    found = certify(model, images, sigma=0.25, n=4000)
    assert found.prediction[:3].tolist() == labels[:3].tolist()
    assert (found.radius[:3] <= distances[:3]).all()
    assert (found.radius[:3] >= distances[:3] - 0.05).all()
    assert found.prediction[3] == -1
    assert found.abstained.tolist() == [False, False, False, True]
    assert found.radius[3] == 0
    assert found.holds(labels, 0.15).tolist() == [False, True, True, False]
    assert found.holds(1 - labels, 0.0).tolist() == [False] * 4
    assert not found.holds(torch.full((4,), -1), 0.0).any()  # an abstention is not right about an unknown class
    assert (found.n0, found.n, found.alpha, found.sigma) == (100, 4000, 0.001, 0.25)
    again = certify(model, images.flip(0), sigma=0.25, n=4000, chunk=33)
    assert torch.equal(again.radius.flip(0), found.radius)


def test_selection_and_estimate_use_different_draws() -> None:
    seen: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        seen.append(images.flatten(1).clone())
        return images.flatten(1)

    done: list[tuple[int, int]] = []
    certify(model, torch.rand(2, 1, 3, 4), n0=20, n=30, progress=lambda *numbers: done.append(numbers))
    points = torch.cat(seen)
    assert len(points) == 2 * (20 + 30)
    assert len(points.unique(dim=0)) == 100
    assert done == [(1, 2), (2, 2)]


def test_the_lower_bound_is_clopper_and_pearson_s() -> None:
    for successes, trials, alpha in ((0, 10, 0.01), (3, 10, 0.05), (9_990, 10_000, 0.001), (50, 50, 0.2)):
        interval = binomtest(successes, trials, alternative="greater").proportion_ci(1 - alpha, method="exact")
        assert clopper_pearson_lower(successes, trials, alpha) == pytest.approx(interval.low, abs=1e-9)
    counts, times = np.unique(np.random.default_rng(0).binomial(200, 0.8, size=4000), return_counts=True)
    too_high = sum(times[n] for n, count in enumerate(counts) if clopper_pearson_lower(int(count), 200, 0.1) > 0.8) / 4000
    assert 0.05 < too_high <= 0.115  # at most α, and not much less: it is not two-sided


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: votes(torch.nn.Flatten(), x * 2), r"`images` must lie in \[0, 1\]"),
        (lambda x: certify(torch.nn.Flatten(), x, sigma=0), "`sigma` must be positive"),
        (lambda x: certify(torch.nn.Flatten(), x, n0=0), "`n0` must be a whole number"),
        (lambda x: certify(torch.nn.Flatten(), x, n=-5), "`n` must be a whole number"),
        (lambda x: certify(torch.nn.Flatten(), x, alpha=0), "`alpha` must be a probability of failure"),
    ],
)
def test_bad_input(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(torch.ones(1, 1, 3, 4))
