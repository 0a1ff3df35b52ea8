"""Published formulas that are wrong, as printed, against the full Hessian; `docs/errata.md` points here."""

from __future__ import annotations

import pytest
import torch
from top_layer_examples import BETA, CASES, Example, doubt
from torch import Tensor
from torch.func import hessian, jacfwd
from torch.nn.functional import cross_entropy, softmax

from locality.curvature.closed_forms import squared_length, trace_cross_entropy, trace_mart, trace_trades

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def phi(p: Tensor) -> Tensor:
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


def psi(p: Tensor) -> Tensor:
    classes = p.shape[1]
    return torch.eye(classes, dtype=p.dtype) - p[:, None, :].expand(-1, classes, -1)


def differs(printed: Tensor, name: str) -> bool:
    loss, closed = CASES[name]
    example = Example.drawn(0)
    truth = example.traces(loss(example), False)
    torch.testing.assert_close(closed(example, False), truth)
    return bool(((printed - truth).abs() > 1e-3 * truth.abs()).all())


def test_derivative_of_covariance() -> None:
    """∂Φ_ik/∂g_k is (1 − 2p_k) Φ_ik, not Φ_kk Ψ_ki."""
    logits = Example.drawn(0).seen()[0].logits[:1]
    p = softmax(logits, 1)
    slopes: Tensor = jacfwd(lambda g: phi(softmax(g, 1))[0])(logits)[:, :, 0]
    truth = torch.stack([slopes[:, k, k] for k in range(4)], 1)
    torch.testing.assert_close(truth, phi(p)[0] * (1 - 2 * p))
    assert not torch.allclose(truth, (p - p**2) * (torch.eye(4) - p.T), rtol=0.1)


def test_trades_with_gradient_through_clean() -> None:
    """Printed: a wrong derivative, and −z·z′ σ(p) three times instead of twice."""
    example = Example.drawn(0)
    clean, attacked = example.seen()
    p, q = softmax(clean.logits, 1), softmax(attacked.logits, 1)
    own, mixed = squared_length(clean.features), (clean.features * attacked.features).sum(1)
    h = p - p**2
    by_q = (psi(p) * q.log()[:, None, :]).sum(2)
    by_p = (psi(p) * p.log()[:, None, :]).sum(2)
    omega, omega_q = (phi(p) * psi(p)).sum((1, 2)), (phi(p) * psi(q)).sum((1, 2))
    extra = -2 * mixed * h.sum(1) - own * (by_q * h).sum(1) - mixed * omega_q + own * ((by_p * h).sum(1) + omega)
    printed = trace_trades(clean, attacked, BETA, stop_clean=True) + BETA * extra
    assert differs(printed, "trades")


def test_alp_stopped() -> None:
    """Printed with Φ_kk Ψ where (1 − 2p_k) Φ belongs."""
    clean, attacked = Example.drawn(0).seen()
    p, q = softmax(clean.logits, 1), softmax(attacked.logits, 1)
    second = ((q - q**2) * (psi(q) * (p - q)[:, None, :]).sum(2)).sum(1)
    length = squared_length(attacked.features)
    printed = trace_cross_entropy(attacked) + 2 * BETA * length * (phi(q).square().sum((1, 2)) - second)
    assert differs(printed, "alp stopped")


@pytest.mark.parametrize("line", ["last", "middle"])
def test_mart_margin(line: str) -> None:
    example = Example.drawn(0)
    clean, attacked = example.seen()
    q = softmax(attacked.logits, 1)
    rows = torch.arange(3)
    rival = q.scatter(1, example.labels[:, None], 0.0).argmax(1)
    rest = 1 - q[rows, rival, None]
    row = phi(q)[rows, rival]
    first = row.square() if line == "last" else (q - q**2) * psi(q)[rows, :, rival]
    margin = squared_length(attacked.features) * (first / rest + row.square() / rest**2).sum(1)
    weighted = BETA * doubt(clean.logits, example.labels) * trace_cross_entropy(attacked)
    assert differs(trace_cross_entropy(attacked) + margin + weighted, "mart stopped")


def test_mart_weight() -> None:
    """Printed without the factor 1 − p_y of the weighted divergence."""
    example = Example.drawn(0)
    clean, attacked = example.seen()
    fit = trace_mart(clean, attacked, example.labels, beta=0.0)
    assert differs(fit + BETA * trace_cross_entropy(attacked), "mart stopped")


def test_lower_layer_needs_the_variance() -> None:
    """Theorem 5: Tr = ‖I‖² Σ_active Var_p(∂g/∂I), not Σ h_k (∂g_k/∂I)², which is at least half of it."""
    draw = torch.Generator().manual_seed(0)
    lower, upper, inputs = (torch.randn(size, generator=draw, dtype=torch.float64) for size in [(9, 7), (4, 9), (6, 7)])
    labels = torch.randint(4, (6,), generator=draw)

    def mean_loss(weight: Tensor) -> Tensor:
        return cross_entropy(torch.relu(inputs @ weight.view(9, 7).T) @ upper.T, labels)

    truth = hessian(mean_loss)(lower.flatten()).trace()
    before = inputs @ lower.T
    p, active = softmax(torch.relu(before) @ upper.T, 1), (before > 0).double()
    printed = (inputs.square().sum(1) * (active * ((p - p**2) @ upper.square())).sum(1)).mean()
    variance = p @ upper.square() - (p @ upper).square()
    exact = (inputs.square().sum(1) * (active * variance).sum(1)).mean()
    torch.testing.assert_close(exact, truth)
    assert abs(printed - truth) > 0.01 * truth
    assert truth <= 2 * printed
