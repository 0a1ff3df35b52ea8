"""Adversarial logit pairing against formulas written out by hand."""

import pytest
import torch
from torch.nn.functional import cross_entropy, softmax
from toy_training import number

from locality.curvature.closed_forms import Pair
from locality.training.inner_attack import InnerAttack
from locality.training.losses.alp import Alp
from locality.training.settings import problems_in
from locality.training.step import Passes
from locality.types import Threat
from locality.zoo.nets.forward_pass import ForwardPass

LABELS = torch.tensor([0, 2, 1])


def passes() -> tuple[Passes, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    clean, attacked = (torch.randn(3, 4, generator=draw).requires_grad_() for _ in range(2))
    return Passes(ForwardPass(clean, clean), ForwardPass(attacked, attacked)), clean, attacked


@pytest.mark.parametrize("pair", ["softmax", "logits"])
@pytest.mark.parametrize("stop_clean", [False, True])
def test_it_is_cross_entropy_and_squared_distance(pair: Pair, stop_clean: bool) -> None:
    seen, clean, attacked = passes()
    loss = Alp(InnerAttack(0.1), beta=0.7, pair=pair, stop_clean=stop_clean)
    value = loss.value(seen, LABELS)
    difference = softmax(clean, 1) - softmax(attacked, 1) if pair == "softmax" else clean - attacked
    distance = sum(difference[row].square().sum().item() for row in range(3)) / 3
    fit = cross_entropy(attacked, LABELS)
    assert number(value.terms["cross_entropy"]) == pytest.approx(fit.item())
    assert number(value.terms["pairing"]) == pytest.approx(distance, rel=1e-5)
    assert value.total.item() == pytest.approx(fit.item() + 0.7 * distance, rel=1e-5)
    (gradient,) = torch.autograd.grad(value.total, clean, allow_unused=True, materialize_grads=True)
    assert bool(gradient.any()) != stop_clean
    assert loss.threat == Threat("linf", 0.1)


def test_settings() -> None:
    assert [problem.where for problem in problems_in(Alp(InnerAttack(0.1), beta=-1.0, label_smoothing=1.0))] == [
        "beta",
        "label_smoothing",
    ]
    smoothed = Alp(InnerAttack(0.1), label_smoothing=0.2).value(passes()[0], LABELS)
    assert smoothed.fit is not None
    assert smoothed.fit.item() == pytest.approx(cross_entropy(passes()[2], LABELS, label_smoothing=0.2).item())
