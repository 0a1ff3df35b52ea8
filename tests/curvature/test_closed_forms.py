"""Every closed form against the full Hessian by autograd, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from top_layer_examples import BETA, CASES, Example
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot, softmax

from locality.curvature.closed_forms import (
    spread,
    squared_length,
    trace_alp,
    trace_cross_entropy,
    trace_mart,
    trace_trades,
    without_rival,
)
from locality.zoo.nets.forward_pass import ForwardPass

# torch.func compiles some of its derivatives on first use.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


@pytest.mark.parametrize("name", CASES)
@given(
    seed=st.integers(0, 2**31),
    images=st.integers(1, 3),
    width=st.integers(1, 4),
    classes=st.integers(2, 5),
    scale=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    bias=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_closed_form_is_trace_of_full_hessian(
    name: str, seed: int, images: int, width: int, classes: int, scale: float, bias: bool
) -> None:
    example = Example.drawn(seed, images, width, classes, scale)
    loss, closed = CASES[name]
    torch.testing.assert_close(closed(example, bias), example.traces(loss(example), bias), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_zero_head_gives_uniform_spread(classes: int) -> None:
    """W = 0: p is uniform, so the trace is ‖z‖² (1 − 1/K)."""
    features = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    seen = ForwardPass(features, torch.zeros(2, classes))
    expected = torch.tensor([25.0, 0.0]) * (1 - 1 / classes)
    torch.testing.assert_close(trace_cross_entropy(seen), expected)
    torch.testing.assert_close(squared_length(features, bias=True), torch.tensor([26.0, 1.0]))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [20.0, 100.0])
def test_large_logits_give_finite_traces_and_gradients(name: str, size: float) -> None:
    """Confident and wrong, confident and right, and undecided between two classes, in float32."""
    features = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rows = [[size, -size, 0.0], [-size, size, 0.0], [size, size, -size], [0.0, 0.0, 0.0]]
    clean, attacked = torch.tensor(rows).requires_grad_(), torch.tensor(rows[::-1]).requires_grad_()
    labels = torch.zeros(4, dtype=torch.int64)
    seen = ForwardPass(features, clean), ForwardPass(2 * features, attacked)
    traces = {
        "trades": lambda: trace_trades(*seen, BETA),
        "trades stopped": lambda: trace_trades(*seen, BETA, stop_clean=True),
        "alp": lambda: trace_alp(*seen, BETA),
        "alp stopped": lambda: trace_alp(*seen, BETA, stop_clean=True),
        "alp logits": lambda: trace_alp(*seen, BETA, "logits"),
        "alp logits stopped": lambda: trace_alp(*seen, BETA, "logits", stop_clean=True),
        "mart": lambda: trace_mart(*seen, labels, BETA),
        "mart stopped": lambda: trace_mart(*seen, labels, BETA, stop_clean=True),
    }.get(name, lambda: trace_cross_entropy(seen[1]))()
    assert traces.isfinite().all()
    gradients = torch.autograd.grad(traces.sum(), (features, attacked))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0].abs().sum() > 0


@pytest.mark.parametrize("size", [18.0, 40.0, 80.0])
def test_spread_of_a_confident_row_is_not_rounded_away(size: float) -> None:
    """Of two classes σ = 2 p (1 − p) ≈ 2 e^−size with slope −σ; 1 − ‖p‖² is 0 in float32 at 18."""
    logits = torch.tensor([[size, 0.0]], requires_grad=True)
    value = spread(logits)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    expected = 2 * torch.tensor(-size, dtype=torch.float64).exp().item()
    assert value.item() == pytest.approx(expected, rel=1e-5)
    assert slope[0, 1].item() == pytest.approx(expected, rel=1e-5)
    assert slope[0, 0].item() == pytest.approx(-expected, rel=1e-5)
    assert 1 - softmax(logits, 1).square().sum().item() == 0


def test_half_precision_is_widened() -> None:
    seen = ForwardPass(torch.full((1, 3), 100.0, dtype=torch.bfloat16), torch.zeros(1, 4, dtype=torch.bfloat16))
    assert trace_cross_entropy(seen).dtype == torch.float32
    assert trace_cross_entropy(seen).item() == 22_500


def test_every_trace_has_a_gradient_through_features_and_logits() -> None:
    """The regulariser would lose half of its gradient if either were detached."""
    example = Example.drawn(5)
    for name, (_, closed) in CASES.items():
        leaf = Example(
            example.clean.clone().requires_grad_(),
            example.attacked.clone().requires_grad_(),
            example.labels,
            example.weight.clone().requires_grad_(),
            example.bias,
        )
        by_features, by_weight = torch.autograd.grad(closed(leaf, False).sum(), (leaf.attacked, leaf.weight))
        step = 1e-6
        direction = torch.ones_like(leaf.attacked)
        moved = [
            closed(Example(example.clean, example.attacked + sign * step * direction, *_rest(example)), False).sum()
            for sign in (1, -1)
        ]
        assert ((moved[0] - moved[1]) / (2 * step)).item() == pytest.approx(by_features.sum().item(), rel=1e-5, abs=1e-7), (
            name
        )
        assert by_weight.abs().sum() > 0, name


def _rest(example: Example) -> tuple[Tensor, Tensor, Tensor]:
    return example.labels, example.weight, example.bias


@pytest.mark.parametrize("stop_clean", [False, True])
def test_a_stopped_prediction_has_no_gradient_in_the_trace(stop_clean: bool) -> None:
    """What the loss treats as a constant is one in its trace, too; TRADES' own cross-entropy of the clean image is not."""
    clean, attacked = Example.drawn(2).seen()
    leaf = clean.logits.clone().requires_grad_()
    seen = ForwardPass(clean.features, leaf), attacked
    labels = torch.tensor([0, 1, 2])
    for trace in (trace_alp(*seen, BETA, stop_clean=stop_clean), trace_mart(*seen, labels, BETA, stop_clean=stop_clean)):
        assert trace.requires_grad != stop_clean
    assert trace_trades(*seen, BETA, stop_clean=stop_clean).requires_grad


def test_without_rival_removes_the_largest_other_class() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert without_rival(logits, torch.tensor([0, 2])).tolist() == [[3, -torch.inf, 1], [-torch.inf, 2, 1]]


def test_one_hot_labels_are_a_special_case() -> None:
    """Soft labels that sum to 1 leave the trace alone: the Hessian of −t·g + lse(g) does not contain t."""
    example = Example.drawn(1)
    hard = one_hot(example.labels, 4).double()
    soft = softmax(torch.arange(12.0, dtype=torch.float64).view(3, 4), 1)
    traces = [
        example.traces(lambda g, h, g0, h0, t=t: -(t * log_softmax(h, 1)).sum(1), True)  # type: ignore[misc]
        for t in (hard, soft, 0.5 * (hard + soft))
    ]
    torch.testing.assert_close(traces[0], traces[1])
    torch.testing.assert_close(traces[0], traces[2])
