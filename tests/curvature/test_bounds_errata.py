"""Formulas of the papers on bounds and gaps that are wrong as printed, beside the corrected ones (docs/errata.md)."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from torch.nn.functional import cross_entropy

from locality import robust_gap
from locality.curvature import gaussian_bounds as terms


def test_the_trace_term_has_no_beta() -> None:
    """Two images of different labels and W = 0: a stationary point, where noise of variance σ0² adds σ0²/2 · Tr."""
    features, variance, beta = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64), 0.01, 50.0
    trace = float(features.square().sum()) / 2  # ‖z‖² (1 − ‖p‖²), p = (1/2, 1/2)
    noise = math.sqrt(variance) * torch.randn(40_000, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = noise @ features
    both = [cross_entropy(logits, torch.full((40_000,), label), reduction="none") for label in (0, 1)]
    losses = torch.stack(both).mean(0)
    increase, error = float(losses.mean()) - math.log(2), float(losses.std()) / 200
    assert abs(increase - terms.trace_term(trace, variance)) < 4 * error + 0.03 * increase  # and terms of order σ0⁴
    printed = terms.trace_term(trace, variance) / beta
    assert abs(increase - printed) > 40 * error


def test_the_determinant_in_the_divergence_is_over_all_weights() -> None:
    offsets, variances, variance = torch.tensor([0.3, -1.0, 0.2]), torch.tensor([0.1, 0.5, 0.2]), 0.4
    expected = float(
        kl_divergence(
            MultivariateNormal(offsets, variances.diag()), MultivariateNormal(torch.zeros(3), variance * torch.eye(3))
        )
    )
    assert terms.divergence(offsets, variances, variance) == pytest.approx(expected, rel=1e-5)
    rest = -3 + float(offsets.square().sum() + variances.sum()) / variance
    printed = (math.log(variance / float(variances.prod())) + rest) / 2
    assert printed != pytest.approx(expected, rel=0.1)


def test_the_square_root_form_divides_both_terms_by_the_images() -> None:
    def printed(images: int) -> float:
        return 0.1 + 4 * math.sqrt(5.0 / images + math.log(2 * images / 0.05))

    assert printed(10**9) > printed(10**6) > 15  # larger than any error, whatever the number of images
    assert terms.square_root_bound(0.1, 5.0, 10**9, 0.05) == pytest.approx(0.1, abs=1e-2)


def test_the_divergence_of_layers_counts_their_weights() -> None:
    """The WCI paper's form lacks the dimension of a layer. With equal variances the missing terms are 0."""
    weights, prior = torch.tensor([0.5, -0.2, 0.1, 0.9]), 0.3

    def printed(posterior: float) -> float:  # with its constant, −1/2
        norm = float(weights.square().sum())
        return math.log(math.sqrt(prior / posterior)) + (norm + posterior) / (2 * prior) - 0.5

    def exact(posterior: float) -> float:
        centred = Normal(torch.zeros(4), math.sqrt(prior))
        return float(kl_divergence(Normal(weights, math.sqrt(posterior)), centred).sum())

    for posterior in (0.05, 0.3, 1.0):
        assert terms.divergence(weights, torch.full((4,), posterior), prior) == pytest.approx(exact(posterior), rel=1e-5)
    assert printed(0.3) == pytest.approx(exact(0.3), rel=1e-5) == float(weights.square().sum()) / 0.6
    assert printed(0.05) != pytest.approx(exact(0.05), rel=0.1)


def test_standard_minus_robust_error_is_no_generalisation_gap() -> None:
    """It is large where training and test images are the same, and nothing can be left to generalise."""
    head = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.eye_(head.weight)
    model = torch.nn.Sequential(torch.nn.Flatten(), head)
    images = torch.tensor([[0.55, 0.5], [0.9, 0.1]]).view(2, 1, 1, 2), torch.tensor([0, 0])
    gap = robust_gap(model, images, images, epsilon=0.1)
    assert gap.error.mean == gap.loss.mean == 0.0
    assert gap.standard_minus_robust.mean == -0.5
