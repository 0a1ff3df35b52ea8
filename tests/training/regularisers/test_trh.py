"""TrH against its closed form by hand."""

import pytest
import torch
from torch.nn.functional import softmax
from toy_training import ToyLoss, batch_of, linear_net, network_of, number

from locality.training.inner_attack import InnerAttack
from locality.training.losses.mart import Mart
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.regularisers.trh import Trh
from locality.training.step import LossValue

IMAGES = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1])


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_mean_trace(bias: bool) -> None:
    net = linear_net()
    loss = Standard()
    batch = batch_of(network_of(net), IMAGES, LABELS, loss)
    value = loss(batch)
    trh = Trh(0.1, bias=bias)
    lengths = IMAGES.flatten(1).square().sum(1)
    probabilities = softmax(net(IMAGES), 1)
    expected = ((lengths + bias) * (probabilities * (1 - probabilities)).sum(1)).mean()
    torch.testing.assert_close(trh(batch, value), expected)
    terms = trh.terms(batch, value)
    assert number(terms["trh_squared_features"]) == pytest.approx(lengths.mean().item())
    assert number(terms["trh_head_norm"]) == pytest.approx(net.state_dict()["1.weight"].norm().item())


@pytest.mark.parametrize(
    "loss", [Trades(InnerAttack(0.1)), Trades(InnerAttack(0.1), stop_clean=True), Mart(InnerAttack(0.1))]
)
def test_it_is_the_trace_of_the_loss_in_use(loss: Trades | Mart) -> None:
    batch = batch_of(network_of(linear_net()), IMAGES, LABELS, loss)
    value = loss(batch)
    assert torch.equal(Trh(1.0)(batch, value), loss.trace(value.passes, LABELS).mean())
    assert number(Trh(1.0).terms(batch, value)["trh_squared_features"]) > 0


def test_a_loss_without_a_trace_is_an_error() -> None:
    loss = ToyLoss()
    batch = batch_of(network_of(linear_net()), IMAGES, LABELS, loss)
    with pytest.raises(ValueError, match="`loss` must be one with a trace, got 'ToyLoss'"):
        Trh(0.1)(batch, LossValue(torch.zeros(()), {}))
