"""Votes and certified radii of linear models, whose smoothed decision is known."""

from typing import Any

import numpy as np
import pytest
import torch
from known_models import linear_model
from relu_layer import phi
from scipy.stats import binomtest, norm
from torch import Tensor, nn

from locality.certified import CERTIFICATES
from locality.certified.smoothing import Smoothing, clopper_pearson_lower
from locality.certified.votes import votes


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
    smoothing = Smoothing(sigma=0.25, samples=4000)
    certificate = smoothing(model, images)
    assert certificate.prediction.tolist() == [*labels[:3].tolist(), -1]
    assert (certificate.radius[:3] <= distances[:3]).all()
    assert (certificate.radius[:3] >= distances[:3] - 0.05).all()
    assert certificate.abstained.tolist() == [False, False, False, True]
    assert certificate.radius[3] == 0
    assert certificate.radius.dtype == torch.float64
    assert certificate.failure_probability.tolist() == [0.001] * 4
    assert certificate.norm == "l2"
    assert certificate.holds(labels, 0.15).tolist() == [False, True, True, False]
    again = smoothing(model, images.flip(0), chunk=33)
    assert torch.equal(again.radius.flip(0), certificate.radius)
    assert not torch.equal(Smoothing(sigma=0.25, samples=4000, seed=1)(model, images).radius, certificate.radius)


def test_the_radius_follows_from_the_votes() -> None:
    """Cohen et al.'s CERTIFY step by step: select by the first draws, count the next ones, bound, R = σΦ⁻¹(p̲)."""
    model, images, _, _ = linear_model([0.2], classes=2)
    smoothing = Smoothing(sigma=0.5, samples=300, selection_samples=40, alpha=0.01)
    seen: list[Tensor] = []

    def watched(noisy: Tensor) -> Tensor:
        seen.append(model(noisy).argmax(1))
        logits: Tensor = model(noisy)
        return logits

    certificate = smoothing(watched, images)
    classes = torch.cat(seen)
    chosen = int(classes[:40].bincount().argmax())
    successes = int((classes[40:] == chosen).sum())
    assert len(classes) == 340
    bound = clopper_pearson_lower(successes, 300, 0.01)
    assert certificate.details["probability"].tolist() == [bound]
    assert certificate.radius.item() == pytest.approx(0.5 * norm.ppf(bound), rel=1e-12)


def test_selection_and_estimate_use_different_draws() -> None:
    seen: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        seen.append(images.flatten(1).clone())
        return images.flatten(1)

    done: list[tuple[int, int | None]] = []
    Smoothing(selection_samples=20, samples=30)(model, torch.rand(2, 1, 3, 4), lambda *report: done.append(report), chunk=25)
    points = torch.cat(seen)
    assert len(points) == 2 * (20 + 30)
    assert len(points.unique(dim=0)) == 100
    assert done == [(count, 100) for count in (0, 20, 45, 50, 70, 95, 100)]


def test_the_lower_bound_is_clopper_and_pearson_s() -> None:
    for successes, trials, alpha in ((0, 10, 0.01), (3, 10, 0.05), (9_990, 10_000, 0.001), (50, 50, 0.2)):
        interval = binomtest(successes, trials, alternative="greater").proportion_ci(1 - alpha, method="exact")
        assert clopper_pearson_lower(successes, trials, alpha) == pytest.approx(interval.low, abs=1e-9)
    counts, times = np.unique(np.random.default_rng(0).binomial(200, 0.8, size=4000), return_counts=True)
    too_high = sum(times[n] for n, count in enumerate(counts) if clopper_pearson_lower(int(count), 200, 0.1) > 0.8) / 4000
    assert 0.05 < too_high <= 0.115  # at most α, and not much less: it is not two-sided


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sigma": 0}, "`sigma` must be positive"),
        ({"sigma": float("nan")}, "`sigma` must be the standard deviation"),
        ({"selection_samples": 0}, "`selection_samples` must be a whole number"),
        ({"samples": -5}, "`samples` must be a whole number"),
        ({"samples": True}, "`samples` must be a whole number"),
        ({"alpha": 0}, "`alpha` must be a probability of failure"),
        ({"alpha": 1}, "`alpha` must be a probability of failure"),
    ],
)
def test_bad_settings(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Smoothing(**settings)


def test_bad_images() -> None:
    for call in (votes, Smoothing(samples=5)):
        with pytest.raises(ValueError, match=r"`images` must be in \[0, 1\]"):
            call(torch.nn.Flatten(), torch.full((1, 1, 3, 4), 2.0))


def test_smoothing_is_in_the_table() -> None:
    assert CERTIFICATES["smoothing"] is Smoothing


class Shy(nn.Module):
    """Logits x, −x of the first pixel's distance x from ½; no decision where |x| is below 0.2."""

    def forward(self, images: Tensor) -> Tensor:
        value = images[:, 0, 0, 0] - 0.5
        return torch.stack([value, -value], dim=1)

    def abstains(self, logits: Tensor) -> Tensor:
        return logits.abs().amax(1) < 0.2


def test_abstentions_of_the_model_vote_for_no_class() -> None:
    images = torch.tensor([0.5, 0.75, 1.0]).view(3, 1, 1, 1)
    counts = votes(Shy(), images, sigma=0.05, samples=1000)
    own = [1 - phi(torch.tensor(4.0)), phi(torch.tensor(1.0)), phi(torch.tensor(6.0))]
    assert (counts[:, 0] / 1000).tolist() == pytest.approx([float(one) for one in own], abs=4 * 0.5 / 1000**0.5)
    certificate = Smoothing(sigma=0.05, samples=1000)(Shy(), images)
    assert certificate.prediction.tolist() == [-1, 0, 0]
    assert certificate.radius[0] == 0
    assert 0 < certificate.radius[1] <= 0.05  # the network abstains below 0.7
