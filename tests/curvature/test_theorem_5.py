"""Theorem 5 of the thesis (4 of the TrH paper): the printed equality is wrong, a corrected one and an inequality hold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from locality import layer_traces


def network(seed: int, classes: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, classes)]
    return nn.Sequential(*layers).double()


def slopes(model: nn.Sequential, image: Tensor, place: int) -> tuple[Tensor, Tensor, Tensor]:
    """p, ∂g/∂I of the active units behind layer `place` (K×D), and ‖I‖² of the layer's own input."""
    own = model[:place](image).detach()
    behind = model[place : place + 2](own).detach()[0]
    slope: Tensor = torch.autograd.functional.jacobian(lambda features: model[place + 2 :](features[None])[0], behind)
    return model(image).softmax(1)[0].detach(), slope[:, behind > 0], own.square().sum()


def exact_and_printed(model: nn.Sequential, image: Tensor, place: int) -> tuple[float, float]:
    """‖I‖² Σ_d Var_{k~p}(∂g_k/∂I_d), and the printed ‖I‖² Σ_{k,d} p_k (1 − p_k) (∂g_k/∂I_d)²."""
    p, slope, length = slopes(model, image, place)
    variance = (p[:, None] * slope.square()).sum(0) - (p @ slope).square()
    return float(length * variance.sum()), float(length * ((p * (1 - p))[:, None] * slope.square()).sum())


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 5), place=st.sampled_from([1, 3]))
def test_the_trace_is_a_variance_and_at_most_twice_the_printed_sum(seed: int, classes: int, place: int) -> None:
    model = network(seed, classes)
    image = torch.rand(1, 3, 2, 2, dtype=torch.float64)
    trace = float(layer_traces(model, image, torch.tensor([0])).traces[place // 2])
    exact, printed = exact_and_printed(model, image, place)
    assert trace == pytest.approx(exact, rel=1e-9, abs=1e-14)
    assert trace <= 2 * printed + 1e-14


def test_the_printed_equality_is_wrong() -> None:
    image = torch.rand(1, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ratios = []
    for seed in range(10):
        exact, printed = exact_and_printed(network(seed, 4), image, 3)
        ratios.append(exact / printed)
    assert min(ratios) < 0.9 or max(ratios) > 1.1
    assert all(ratio != pytest.approx(1, rel=1e-3) for ratio in ratios)


def test_the_factor_2_is_needed() -> None:
    """Two classes with opposite slopes and p = 1/2: the trace is exactly twice the printed sum."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1), nn.ReLU(), nn.Linear(1, 2)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.get_parameter("1.bias").fill_(1.0)
        model.get_parameter("3.weight").copy_(torch.tensor([[1.0], [-1.0]]))
        model.get_parameter("3.bias").copy_(torch.tensor([-1.0, 1.0]))
    image = torch.rand(1, 3, 2, 2, dtype=torch.float64)
    exact, printed = exact_and_printed(model, image, 1)
    assert exact == pytest.approx(2 * printed, rel=1e-12)
    assert float(layer_traces(model, image, torch.tensor([0])).traces[0]) == pytest.approx(exact, rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), classes=st.integers(2, 5))
def test_inequality_4_8_holds(seed: int, classes: int) -> None:
    """max H of a layer ≤ max H of the next · ‖W‖₁², where ‖W‖₁ is the largest sum of a column's absolute values."""
    model = network(seed, classes)
    image = torch.rand(1, 3, 2, 2, dtype=torch.float64)
    largest = []
    for place in (1, 3):
        p, slope, _ = slopes(model, image, place)
        values = (p * (1 - p))[:, None] * slope.square()
        largest.append(float(values.max()) if values.numel() else 0.0)
    norm = float(torch.linalg.matrix_norm(model.get_parameter("3.weight").detach(), 1))
    assert largest[0] <= largest[1] * norm**2 * (1 + 1e-12)
