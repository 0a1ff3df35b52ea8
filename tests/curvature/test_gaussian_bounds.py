"""Terms of PAC-Bayes bounds: their optimum, their order, and the KL divergence, against independent computations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from locality.curvature import gaussian_bounds as terms

POSITIVE = st.floats(1e-3, 1e3)


@given(squared_norm=POSITIVE, trace=POSITIVE, beta=st.floats(1.0, 1e5))
def test_the_best_variance_is_that_of_a_grid(squared_norm: float, trace: float, beta: float) -> None:
    best = terms.best_variance(squared_norm, trace, beta)

    def total(variance: float) -> float:
        return terms.norm_term(squared_norm, beta, variance) + terms.trace_term(trace, variance)

    assert total(best) == pytest.approx(terms.best_term(squared_norm, trace, beta))
    grid = best * np.geomspace(0.01, 100, 401)
    assert min(map(total, grid)) == pytest.approx(total(best))
    assert abs(int(np.argmin([total(variance) for variance in grid])) - 200) <= 1


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20), st.floats(1.0, 1e5), POSITIVE)
def test_linear_is_above_spherical_is_above_diagonal(diagonal: list[float], beta: float, variance: float) -> None:
    curvature = torch.tensor(diagonal, dtype=torch.float64)
    trace = float(curvature.sum())
    linear = terms.trace_term(trace, variance)
    spherical = terms.spherical_term(trace, len(diagonal), beta, variance)
    own = terms.diagonal_term(curvature, beta, variance)
    assert linear * (1 + 1e-9) >= spherical >= own * (1 - 1e-9)
    assert terms.diagonal_term(torch.full_like(curvature, trace / len(diagonal)), beta, variance) == pytest.approx(spherical)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 10.0)), min_size=1, max_size=8),
    st.floats(0.05, 5.0),
)
def test_the_divergence_is_that_of_torch(weights: list[tuple[float, float]], variance: float) -> None:
    offsets, variances = torch.tensor(weights, dtype=torch.float64).T
    posterior = Normal(offsets, variances.sqrt())
    prior = Normal(torch.zeros_like(offsets), torch.full_like(offsets, math.sqrt(variance)))
    assert terms.divergence(offsets, variances, variance) == pytest.approx(float(kl_divergence(posterior, prior).sum()))


def test_the_divergence_of_the_prior_is_zero() -> None:
    assert terms.divergence(torch.zeros(5), torch.full((5,), 0.3), 0.3) == 0.0


@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6), st.floats(1.0, 100.0), st.floats(0.01, 2.0))
def test_the_posterior_is_the_best_one_and_gives_the_diagonal_term(
    diagonal: list[float], beta: float, variance: float
) -> None:
    """½ Σ σ_n² H_nn + KL/β without the norm, at the posterior and at other variances."""
    curvature = torch.tensor(diagonal, dtype=torch.float64)
    origin = torch.zeros_like(curvature)

    def total(variances: torch.Tensor) -> float:
        return float((variances * curvature).sum()) / 2 + terms.divergence(origin, variances, variance) / beta

    best = terms.posterior_variance(curvature, beta, variance)
    assert total(best) == pytest.approx(terms.diagonal_term(curvature, beta, variance), abs=1e-12)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert total(best * factor) > total(best)


def test_layers_of_their_own_variance_are_never_worse() -> None:
    norms, traces = [3.0, 0.5, 10.0], [0.1, 7.0, 2.0]
    layers = sum(terms.best_term(norm, trace, 50.0) for norm, trace in zip(norms, traces, strict=True))
    index = sum(math.sqrt(norm * trace) for norm, trace in zip(norms, traces, strict=True))
    assert layers == pytest.approx(index / math.sqrt(50.0))
    assert layers < terms.best_term(sum(norms), sum(traces), 50.0)


def test_constants() -> None:
    assert terms.constant(100.0, 400, 2.0, 0.05) == pytest.approx(100 * 4 / 3200 + math.log(20) / 100)
    assert terms.square_root_bound(0.1, 7.0, 400, 0.05) == pytest.approx(0.1 + 4 * math.sqrt((7 + math.log(16000)) / 400))
    assert terms.betas(400, 3) == [400, 200, 100]
    assert math.isnan(terms.best_variance(1.0, 0.0, 10.0))
