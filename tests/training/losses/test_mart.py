"""MART against the formula as the paper writes it, in float64, and where that formula breaks down."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softmax
from toy_training import number

from locality.training.inner_attack import InnerAttack
from locality.training.losses.mart import Mart, rival_loss
from locality.training.settings import problems_in
from locality.training.step import LossValue, Passes
from locality.zoo.nets.forward_pass import ForwardPass

LABELS = torch.tensor([0, 2, 1])
ROWS = torch.arange(3)


def logits(seed: int) -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def value_of(loss: Mart, clean: Tensor, attacked: Tensor) -> LossValue:
    return loss.value(Passes(ForwardPass(clean, clean), ForwardPass(attacked, attacked)), LABELS)


@pytest.mark.parametrize("stop_clean", [False, True])
def test_it_is_the_papers_formula(stop_clean: bool) -> None:
    clean, attacked = logits(0), logits(1)
    value = value_of(Mart(InnerAttack(0.1), beta=3.0, stop_clean=stop_clean), clean, attacked)
    p, q = softmax(clean, 1), softmax(attacked, 1)
    rival = torch.stack([max(q[row, k] for k in range(4) if k != LABELS[row]) for row in range(3)])
    fit = (-q[ROWS, LABELS].log() - (1 - rival).log()).mean()
    weighted = ((1 - p[ROWS, LABELS]) * (p * (p / q).log()).sum(1)).mean()
    assert value.fit is not None
    torch.testing.assert_close(value.fit, fit, rtol=1e-12, atol=0)
    torch.testing.assert_close(value.total, fit + 3 * weighted, rtol=1e-12, atol=0)
    assert number(value.terms["weighted_kl_divergence"]) == pytest.approx(weighted.item())
    assert number(value.terms["cross_entropy"]) + number(value.terms["rival"]) == pytest.approx(fit.item())
    (expected,) = torch.autograd.grad(3 * weighted, clean)
    (gradient,) = torch.autograd.grad(value.total, clean, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(gradient, torch.zeros_like(clean) if stop_clean else expected)


@pytest.mark.parametrize("size", [30.0, 100.0])
def test_a_certain_rival_has_a_finite_loss_and_a_gradient(size: float) -> None:
    """In float32 1 − p rounds to 0 there, and log(1 − p) is −∞; the loss is size − log 1, with slope 1."""
    sure = torch.tensor([[0.0, size, -size]], requires_grad=True)
    loss = rival_loss(sure, torch.tensor([0]))
    assert loss.item() == pytest.approx(size)
    (slope,) = torch.autograd.grad(loss.sum(), sure)
    assert slope[0].tolist() == pytest.approx([-1, 1, 0], abs=1e-6)
    harmless = torch.tensor([[size, 0.0, -size]], requires_grad=True)
    loss = rival_loss(harmless, torch.tensor([0]))
    assert 0 < loss.item() == pytest.approx(torch.tensor(-size).exp().item(), rel=1e-4)


def test_settings() -> None:
    assert [problem.where for problem in problems_in(Mart(InnerAttack(0.1), beta=float("nan")))] == ["beta"]
