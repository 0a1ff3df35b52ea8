"""Every loss of the table: its value is a pure function of its passes, and its trace is that of the value's Hessian."""

import pytest
import torch
from torch import Tensor
from toy_training import batch_of, network_of, normalised_net

from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial, FastAdversarial, OneStepAttack
from locality.training.losses.alp import Alp
from locality.training.losses.mart import Mart
from locality.training.losses.split import SplitLoss
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.step import Passes
from locality.zoo.nets.forward_pass import ForwardPass

ATTACK = InnerAttack(0.1, steps=2)
ALL: list[SplitLoss] = [
    Standard(label_smoothing=0.1),
    Adversarial(ATTACK, label_smoothing=0.1),
    FastAdversarial(OneStepAttack(0.1)),
    *(Trades(ATTACK, 2.0, stop_clean=stop) for stop in (False, True)),
    *(Alp(ATTACK, 2.0, pair, stop) for pair in ("softmax", "logits") for stop in (False, True)),
    *(Mart(ATTACK, 2.0, stop) for stop in (False, True)),
]
IMAGES = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1, 0, 2])
every_loss = pytest.mark.parametrize("loss", ALL, ids=repr)


@every_loss
def test_value_is_pure(loss: SplitLoss) -> None:
    """The value of the passes is what a call gives, bit for bit; the call adds the radius of the attack."""
    batch = batch_of(network_of(normalised_net()), IMAGES, LABELS, loss)
    called = loss(batch)
    passes = called.passes
    value = loss.value(passes, LABELS)
    assert torch.equal(value.total, called.total)
    assert value.fit is not None
    assert called.fit is not None
    assert torch.equal(value.fit, called.fit)
    expected = [*value.terms] if isinstance(loss, Standard) else [*value.terms, "epsilon"]
    assert list(called.terms) == expected
    again = loss.passes(batch)
    for one, other in ((passes.clean, again.clean), (passes.attacked, again.attacked)):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one.logits, other.logits)


@every_loss
@pytest.mark.parametrize("bias", [False, True])
def test_trace_is_that_of_the_value(loss: SplitLoss, bias: bool) -> None:
    draw = torch.Generator().manual_seed(3)
    clean, attacked, weight = (torch.randn(size, generator=draw, dtype=torch.float64) for size in [(6, 4), (6, 4), (3, 5)])

    def passes(head: Tensor) -> Passes:
        seen = [ForwardPass(z, z @ head[:, :4].T + head[:, 4]) for z in (clean, attacked)]
        return Passes(*seen)

    def total(head: Tensor) -> Tensor:
        return loss.value(passes(head if bias else torch.cat([head, weight[:, 4:]], 1)), LABELS).total

    start = weight if bias else weight[:, :4]
    full = torch.autograd.functional.hessian(total, start.clone())
    trace = full.view(start.numel(), start.numel()).trace()
    torch.testing.assert_close(loss.trace(passes(weight), LABELS, bias).mean(), trace, rtol=1e-9, atol=1e-9)


@every_loss
def test_gradient_of_the_trace_reaches_the_first_layer(loss: SplitLoss) -> None:
    network = network_of(normalised_net())
    batch = batch_of(network, IMAGES, LABELS, loss)
    trace = loss.trace(loss(batch).passes, LABELS)
    assert trace.shape == (6,)
    gradients = torch.autograd.grad(trace.mean(), list(network.weights.values()))
    assert all(gradient.abs().sum() > 1e-6 for gradient in (gradients[0], gradients[-2]))
