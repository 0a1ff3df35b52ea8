"""Terms of PAC-Bayes bounds for a Gaussian prior N(0, σ0² I) and a Gaussian posterior around the trained weights.

Catoni's bound: with probability 1 − τ over n training images, for every posterior Q at once,
R(Q) ≤ R̂(Q) + KL(Q ‖ P)/β + β C²/(8n) + ln(1/τ)/β, for a loss in [0, C]. Section 4.1 of the thesis expands R̂(Q) to second
order; its Eq. 4.6 is the `norm_term`, the `trace_term` and the `constant`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def constant(beta: float, images: int, largest_loss: float, failure: float) -> float:
    """β C²/(8n) + ln(1/τ)/β: what the bound costs for any weights."""
    return beta * largest_loss**2 / (8 * images) + math.log(1 / failure) / beta


def norm_term(squared_norm: float, beta: float, variance: float) -> float:
    """‖θ‖²/(2βσ0²), or with ‖θ − θ0‖² for a prior around the initial weights."""
    return squared_norm / (2 * beta * variance)


def trace_term(trace: float, variance: float) -> float:
    """σ0² Tr(H)/2: the increase of the loss under noise of variance σ0², to second order."""
    return variance * trace / 2


def spherical_term(trace: float, weights: int, beta: float, variance: float) -> float:
    """N/(2β) ln(1 + σ0² β Tr(H)/N): variability and KL of the best posterior with one variance; at most the trace term."""
    return weights / (2 * beta) * math.log1p(variance * beta * trace / weights)


def diagonal_term(diagonal: Tensor, beta: float, variance: float) -> float:
    """1/(2β) Σ ln(1 + σ0² β H_nn): the same of the best posterior with a variance per weight; at most the spherical term."""
    return float(torch.log1p(variance * beta * diagonal).sum()) / (2 * beta)


def best_variance(squared_norm: float, trace: float, beta: float) -> float:
    """σ0² = ‖θ‖/√(β Tr(H)), where norm term and trace term are equal and their sum is smallest; nan for flat losses."""
    return math.sqrt(squared_norm / (beta * trace)) if squared_norm > 0 and trace > 0 else math.nan


def best_term(squared_norm: float, trace: float, beta: float) -> float:
    """‖θ‖ √(Tr(H)/β): norm term + trace term at the best variance. Summed over layers it is WCI/√β."""
    return math.sqrt(squared_norm * trace / beta)


def posterior_variance(diagonal: Tensor, beta: float, variance: float) -> Tensor:
    """σ_n² = 1/(1/σ0² + β H_nn): the posterior behind the `diagonal_term`.

    >>> posterior_variance(torch.tensor([0.0, 1.0]), 4.0, 0.5).tolist()  # 1/2 and 1/(2 + 4)
    [0.5, 0.1666666716337204]
    """
    return 1 / (1 / variance + beta * diagonal)


def divergence(offsets: Tensor, variances: Tensor, variance: float) -> float:
    """KL(N(θ, diag σ_n²) ‖ N(0, σ0² I)) = ½ Σ [ln(σ0²/σ_n²) − 1 + (θ_n² + σ_n²)/σ0²].

    >>> divergence(torch.zeros(3), torch.full((3,), 0.5), 0.5)
    0.0
    """
    ratio = variances / variance
    return float((ratio - 1 - ratio.log() + offsets.square() / variance).sum()) / 2


def square_root_bound(error: float, kl: float, images: int, failure: float) -> float:
    """R̂(Q) + 4 √((KL + ln(2n/τ))/n), for a loss in [0, 1]: the form that the papers on AWP and S2O start from."""
    return error + 4 * math.sqrt((kl + math.log(2 * images / failure)) / images)


def betas(images: int, count: int) -> Sequence[float]:
    """n, n/2, n/4 …: temperatures to choose from, at a cost of ln(count)/β."""
    return [images / 2**power for power in range(count)]
