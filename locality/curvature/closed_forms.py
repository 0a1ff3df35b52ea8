"""Traces of the Hessian of a loss with respect to the weights of the last linear layer, in closed form, one per image.

Notation: z are the features, g = W z + b the logits, p = softmax(g); a dash marks the attacked image, which counts as a
constant. r = log p − log p′ and KL = Σ p r. Every function is differentiable and detaches nothing but what its loss stops.
`bias=True` counts the layer's bias as a weight: it is a feature that is always 1.

The published forms for ALP, MART and TRADES with a gradient through the clean logits are wrong; `docs/errata.md` lists
where. Those below are tested against the full Hessian.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from locality.zoo.nets.forward_pass import ForwardPass

Pair = Literal["softmax", "logits"]


def spread(logits: Tensor) -> Tensor:
    """N: σ(p) = Σ p (1 − p) = 1 − ‖p‖² of each row, also for rows whose 1 − ‖p‖² rounds to 0.

    >>> spread(torch.zeros(1, 4))  # 1 − 1/4
    tensor([0.7500])
    >>> spread(torch.tensor([[40.0, 0.0]])).item() > 0
    True
    """
    return _variances(_log_probabilities(logits)).sum(1)


def squared_length(features: Tensor, bias: bool = False) -> Tensor:
    """N: s(z) = ‖z‖² of each row, plus 1 if the bias counts."""
    return inner_product(features, features, bias)


def inner_product(features: Tensor, others: Tensor, bias: bool = False) -> Tensor:
    """N: s(z, z′) = z · z′ of each row, plus 1 if the bias counts."""
    return (_wide(features) * _wide(others)).sum(1) + float(bias)


def trace_cross_entropy(seen: ForwardPass, bias: bool = False) -> Tensor:
    """N: s(z) σ(p), for hard, smoothed or any other labels that sum to 1 (TrH, Proposition 1)."""
    return squared_length(seen.features, bias) * spread(seen.logits)


def trace_trades(
    clean: ForwardPass, attacked: ForwardPass, beta: float, stop_clean: bool = False, bias: bool = False
) -> Tensor:
    """N: the trace for CE(g, y) + β KL(p ‖ p′); `stop_clean` treats p in KL as a constant.

    Stopped: s(z) σ(p) + β s(z′) σ(p′). Otherwise plus β times
    s(z) [Σ (1 − 2p) p (r − KL) + σ(p)] − 2 s(z, z′) σ(p).
    """
    divergence = trace_cross_entropy(attacked, bias)
    if not stop_clean:
        logs = _log_probabilities(clean.logits)
        first = _bent(logs.exp(), logs - _log_probabilities(attacked.logits)) + spread(clean.logits)
        mixed = -2 * inner_product(clean.features, attacked.features, bias) * spread(clean.logits)
        divergence = divergence + squared_length(clean.features, bias) * first + mixed
    return trace_cross_entropy(clean, bias) + beta * divergence


def trace_alp(
    clean: ForwardPass,
    attacked: ForwardPass,
    beta: float,
    pair: Pair = "softmax",
    stop_clean: bool = False,
    bias: bool = False,
) -> Tensor:
    """N: the trace for CE(g′, y) + β ‖p − p′‖², or β ‖g − g′‖² with `pair="logits"`; `stop_clean` makes p or g constant.

    With Φ = diag(p) − p pᵀ, e = p − p′ and S(q) = Σ (1 − 2q) q (e − e·q), softmax pairing adds to s(z′) σ(p′)
    2β { s(z) [‖Φ‖² + S(p)] − 2 s(z, z′) ⟨Φ, Φ′⟩ + s(z′) [‖Φ′‖² − S(p′)] }, stopped 2β s(z′) [‖Φ′‖² − S(p′)].
    Logit pairing of K classes adds 2Kβ ‖z − z′‖², stopped 2Kβ s(z′).
    """
    fit = trace_cross_entropy(attacked, bias)
    length = squared_length(attacked.features, bias)
    if pair == "logits":
        distance = length if stop_clean else squared_length(clean.features - attacked.features)
        return fit + 2 * beta * clean.logits.shape[1] * distance
    logs, other_logs = _log_probabilities(clean.logits), _log_probabilities(attacked.logits)
    if stop_clean:
        logs = logs.detach()
    others = other_logs.exp()
    difference = logs.exp() - others
    pairing = length * (_covariance_product(other_logs, other_logs) - _bent(others, difference))
    if not stop_clean:
        first = _covariance_product(logs, logs) + _bent(logs.exp(), difference)
        mixed = inner_product(clean.features, attacked.features, bias) * _covariance_product(logs, other_logs)
        pairing = pairing + squared_length(clean.features, bias) * first - 2 * mixed
    return fit + 2 * beta * pairing


def trace_mart(
    clean: ForwardPass,
    attacked: ForwardPass,
    labels: Tensor,
    beta: float,
    stop_clean: bool = False,
    bias: bool = False,
) -> Tensor:
    """N: the trace for −log p′_y − log(1 − max_{k≠y} p′_k) + β (1 − p_y) KL(p ‖ p′); `stop_clean` makes p constant.

    The first two terms give s(z′) [2σ(p′) − σ(q′)], where q′ is the softmax without the rival class; it may be negative.
    """
    fit = squared_length(attacked.features, bias) * (
        2 * spread(attacked.logits) - spread(without_rival(attacked.logits, labels))
    )
    return fit + beta * _weighted_divergence(clean, attacked, labels, stop_clean, bias)


def without_rival(logits: Tensor, labels: Tensor) -> Tensor:
    """N×K: the logits with −∞ at each row's largest class besides the label."""
    rivals = logits.detach().scatter(1, labels[:, None], -torch.inf).argmax(1, keepdim=True)
    return logits.scatter(1, rivals, -torch.inf)


def _weighted_divergence(clean: ForwardPass, attacked: ForwardPass, labels: Tensor, stop_clean: bool, bias: bool) -> Tensor:
    """N: the trace for u KL(p ‖ p′) with u = 1 − p_y.

    Stopped: u s(z′) σ(p′). Otherwise plus, with u_k = −p_y (1[k=y] − p_k),
    s(z) Σ_k [u_k (1 − 2p_k) KL + 2 u_k p_k (r_k − KL) + u ((1 − 2p_k) p_k (r_k − KL) + p_k − p_k²)]
    + 2 s(z, z′) Σ_k [u_k (p′_k − p_k) − u (p_k − p_k²)].
    """
    logs = _log_probabilities(clean.logits)
    weight = _complements(logs).gather(1, labels[:, None])  # u = 1 − p_y
    if stop_clean:
        return weight[:, 0].detach() * trace_cross_entropy(attacked, bias)
    other_logs = _log_probabilities(attacked.logits)
    probabilities, others, ratios = logs.exp(), other_logs.exp(), logs - other_logs
    divergence = (probabilities * ratios).sum(1, keepdim=True)
    label = probabilities.gather(1, labels[:, None])
    slopes = (label * probabilities).scatter(1, labels[:, None], -label * weight)  # u_k = ∂u/∂g_k
    own = slopes * ((1 - 2 * probabilities) * divergence + 2 * probabilities * (ratios - divergence))
    bent = weight[:, 0] * (_bent(probabilities, ratios) + _variances(logs).sum(1))
    mixed = (slopes * (others - probabilities) - weight * _variances(logs)).sum(1)
    return (
        squared_length(clean.features, bias) * (own.sum(1) + bent)
        + 2 * inner_product(clean.features, attacked.features, bias) * mixed
        + weight[:, 0] * trace_cross_entropy(attacked, bias)
    )


def _bent(probabilities: Tensor, values: Tensor) -> Tensor:
    """N: Σ (1 − 2p) p (v − v·p), which is Σ_ik v_i ∂²p_i/∂g_k²."""
    mean = (probabilities * values).sum(1, keepdim=True)
    return ((1 - 2 * probabilities) * probabilities * (values - mean)).sum(1)


def _covariance_product(logs: Tensor, others: Tensor) -> Tensor:
    """N: ⟨Φ, Φ′⟩, the sum of the products of the entries of diag(p) − p pᵀ and of diag(p′) − p′ p′ᵀ."""
    products = (logs + others).exp()
    beside = products * (products.sum(1, keepdim=True) - products)
    return (_variances(logs) * _variances(others) + beside).sum(1)


def _variances(logs: Tensor) -> Tensor:
    """N×K: p (1 − p) of log-probabilities."""
    return logs.exp() * _complements(logs)


def _complements(logs: Tensor) -> Tensor:
    """N×K: 1 − p of log-probabilities. For the largest p, whose logarithm may round to 0, it is the sum of the others."""
    top = logs.argmax(1, keepdim=True)
    others = logs.exp().scatter(1, top, 0.0).sum(1, keepdim=True)
    return (-torch.expm1(logs)).scatter(1, top, others)


def _log_probabilities(logits: Tensor) -> Tensor:
    return log_softmax(_wide(logits), dim=1)


def _wide(values: Tensor) -> Tensor:
    """At least float32: squares of bfloat16 have two digits."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
