"""AWP and its variant for the top layer, on networks whose gradients are known."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_training import batch_of, linear_net, network_of, normalised_net

from locality.training.inner_attack import InnerAttack
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.network import Network
from locality.training.schedules import Moment
from locality.training.settings import problems_in
from locality.training.weight_shifts.awp import Awp, Awpt

IMAGES = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1])


def test_the_shift_of_a_linear_model() -> None:
    """ξ = δ ‖w‖ g/‖g‖ with g = mean of (p − y) xᵀ; the bias stays."""
    net = linear_net()
    network = network_of(net)
    loss = Standard()
    shifted = Awp(0.1)(batch_of(network, IMAGES, LABELS, loss), loss, network.weights)
    weight = net.state_dict()["1.weight"]
    errors = net(IMAGES).softmax(1) - torch.eye(3)[LABELS]
    gradient = errors.T @ IMAGES.flatten(1) / 4
    expected = weight + 0.1 * weight.norm() * gradient / gradient.norm()
    torch.testing.assert_close(shifted["1.weight"], expected)
    assert shifted["1.bias"] is network.weights["1.bias"]
    assert all(weight.grad is None for weight in network.weights.values())


def test_the_size_of_every_shift() -> None:
    """‖ξ‖ = δ ‖w‖ of each matrix and kernel; biases and BatchNorm stay."""
    network = network_of(normalised_net())
    loss = Trades(InnerAttack(0.1))
    shifted = Awp(0.02)(batch_of(network, IMAGES, LABELS, loss), loss, network.weights)
    moved = {name for name, weight in network.weights.items() if shifted[name] is not weight}
    assert moved == {"0.weight", "4.weight"}
    for name in moved:
        weight = network.weights[name]
        assert (shifted[name] - weight).norm().item() == pytest.approx(0.02 * weight.norm().item(), rel=1e-4)
        (through,) = torch.autograd.grad(shifted[name].sum(), weight)
        assert torch.equal(through, torch.ones_like(weight))  # the shift itself is a constant


def test_awpt_moves_the_head_alone() -> None:
    network = network_of(normalised_net())
    loss = Standard()
    batch = batch_of(network, IMAGES, LABELS, loss)
    all_layers = Awp(0.02)(batch, loss, network.weights)
    top = Awpt(0.02)(batch, loss, network.weights)
    assert {name for name, weight in network.weights.items() if top[name] is not weight} == {"4.weight"}
    torch.testing.assert_close(top["4.weight"], all_layers["4.weight"])


@pytest.mark.parametrize("shift", [Awp(0.02), Awpt(0.02)])
def test_the_loss_rises_and_nothing_else_changes(shift: Awp | Awpt) -> None:
    network = network_of(normalised_net())
    loss = Standard()
    batch = batch_of(network, IMAGES, LABELS, loss)
    before = {name: value.clone() for name, value in network.model.net.state_dict().items()}
    shifted = shift(batch, loss, network.weights)
    assert loss(batch.at(shifted)).total > loss(batch.at(network.weights)).total
    assert all(torch.equal(value, before[name]) for name, value in network.model.net.state_dict().items())


def test_images_are_attacked_once() -> None:
    network = network_of(normalised_net())
    loss = Trades(InnerAttack(0.1))
    batch = batch_of(network, IMAGES, LABELS, loss)
    Awp(0.02)(batch, loss, network.weights)
    images = batch.results["attacked images"]
    loss(batch)
    assert batch.results["attacked images"] is images


def test_gradients_are_averaged_over_the_processes() -> None:
    """As in a process whose partner has the same gradient with the other sign for class 0."""
    flat = network_of(linear_net())
    network = Network(flat.wrapped, flat.bare, lambda gradient: gradient * torch.tensor([[-1.0], [1.0], [1.0]]))
    loss = Standard()
    shifted = Awp(0.1)(batch_of(network, IMAGES, LABELS, loss), loss, network.weights)
    weight = network.weights["1.weight"]
    (gradient,) = torch.autograd.grad(cross_entropy(flat.model.net(IMAGES), LABELS), weight)
    gradient[0] *= -1
    torch.testing.assert_close(shifted["1.weight"], weight + 0.1 * weight.norm() * gradient / gradient.norm())


def test_warm_up_and_a_flat_loss() -> None:
    network = network_of(linear_net())
    loss = Standard()
    early, late = (batch_of(network, IMAGES, LABELS, loss, Moment.of(step, 20, 10)) for step in (3, 4))
    assert Awp(0.1, warm_up=0.2)(early, loss, network.weights) is network.weights
    assert Awp(0.1, warm_up=0.2)(late, loss, network.weights) is not network.weights
    dark = batch_of(network, torch.zeros_like(IMAGES), LABELS, loss)  # no gradient for the weight
    assert torch.equal(Awp(0.1)(dark, loss, network.weights)["1.weight"], network.weights["1.weight"])


def test_impossible_settings() -> None:
    for shift in (Awp(-0.1, 2.0), Awpt(-0.1, 2.0)):
        assert [problem.where for problem in problems_in(shift)] == ["size", "warm_up"]
