"""Passes at other weights: what they compute, which gradients they have, and what they leave alone."""

import copy

import pytest
import torch
from torch import Tensor, nn
from toy_training import Ascent, ToyLoss, batch_of, linear_net, network_of, normalised_net

from locality.training.losses.standard import Standard
from locality.training.network import Network, in_mode
from locality.training.schedules import Moment

IMAGES = torch.rand(5, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1, 0])


def offsets(network: Network) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {name: 0.1 * torch.randn(value.shape, generator=generator) for name, value in network.weights.items()}


def moved_copy(net: nn.Module, offset: dict[str, Tensor]) -> nn.Module:
    """The network with other weights, made by hand."""
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for name, value in moved.named_parameters():
            value.add_(offset[name])
    return moved


@pytest.mark.parametrize("on_the_side", [False, True])
def test_a_pass_at_other_weights_is_that_of_a_network_with_them(on_the_side: bool) -> None:
    network = network_of(normalised_net())
    net, offset = network.model.net, offsets(network)
    moved = moved_copy(net, offset)
    before = copy.deepcopy(net.state_dict())
    shifted = {name: value + offset[name] for name, value in network.weights.items()}
    seen = (network.trial if on_the_side else network.forward)(IMAGES, shifted)
    seen.logits.square().sum().backward()
    moved(IMAGES).square().sum().backward()
    assert torch.allclose(seen.logits, moved(IMAGES))
    for name, value in moved.named_parameters():
        gradient = network.weights[name].grad
        assert gradient is not None
        assert value.grad is not None
        assert torch.allclose(gradient, value.grad, atol=1e-5)
        assert torch.equal(net.state_dict()[name], before[name])
    # The pass to train on moves BatchNorm's statistics, a pass on the side does not.
    assert torch.equal(net.state_dict()["1.running_mean"], before["1.running_mean"]) == on_the_side
    assert int(net.state_dict()["1.num_batches_tracked"]) == (0 if on_the_side else 1)


def test_a_pass_at_its_own_weights_is_the_plain_one() -> None:
    network = network_of(normalised_net())
    plain = copy.deepcopy(network.model.net)
    assert torch.equal(network.forward(IMAGES, network.weights).logits, plain(IMAGES))
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 1
    network.trial(IMAGES, network.weights)
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 1


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("shifted", [False, True])
def test_an_attack_sees_the_network_in_its_mode(mode: str, shifted: bool) -> None:
    network = network_of(normalised_net())
    offset = offsets(network) if shifted else {name: torch.zeros(()) for name in network.weights}
    weights = {name: value + offset[name] for name, value in network.weights.items()} if shifted else network.weights
    expected = moved_copy(network.model.net, offset).train(mode == "train")(IMAGES)
    assert torch.allclose(network.attacked_logits(IMAGES, weights, mode), expected)  # type: ignore[arg-type]
    assert network.bare.training
    # In training mode the network's own statistics move, as they always did; in eval mode and on the side they do not.
    moved = int(network.model.net.state_dict()["1.num_batches_tracked"])
    assert moved == (1 if mode == "train" and not shifted else 0)


def test_the_mode_comes_back_after_an_error() -> None:
    network = network_of(normalised_net())

    def fail() -> None:
        with in_mode(network.bare, "eval"):
            assert not network.bare.training
            raise RuntimeError("an attack that fails")

    with pytest.raises(RuntimeError):
        fail()
    assert network.bare.training
    assert network.model.net.training


def test_what_is_computed_once_is_shared_with_other_weights() -> None:
    network = network_of(linear_net())
    loss = Standard()
    batch = batch_of(network, IMAGES, LABELS, loss)
    calls: list[int] = []
    for one in (batch, batch.at(network.weights), batch.at(network.weights).at(network.weights)):
        assert one.once("number", lambda: calls.append(1) or 7) == 7  # type: ignore[func-returns-value]
    assert calls == [1]
    assert batch.once("other", lambda: 8) == 8
    again = batch_of(network, IMAGES, LABELS, loss)
    assert again.once("number", lambda: 9) == 9  # the next step begins afresh


def test_random_numbers_belong_to_seed_step_and_name() -> None:
    network = network_of(linear_net())

    def draw(step: int, name: str) -> float:
        batch = batch_of(network, IMAGES, LABELS, Standard(), Moment.of(step, 10, 1))
        return float(torch.rand((), generator=batch.generator(name)))

    assert draw(1, "noise") == draw(1, "noise")
    assert len({draw(1, "noise"), draw(2, "noise"), draw(1, "other")}) == 3


def test_a_shift_goes_uphill_from_the_networks_weights() -> None:
    """A toy ascent: the loss at the shifted weights is larger; the network's weights and statistics stay as they are."""
    network = network_of(normalised_net())
    before = {name: value.detach().clone() for name, value in network.weights.items()}
    loss = ToyLoss()
    batch = batch_of(network, IMAGES, LABELS, loss)
    shifted = Ascent(size=1e-3)(batch, loss, network.weights)
    assert all(torch.equal(value, before[name]) for name, value in network.weights.items())
    assert all(value.grad is None for value in network.weights.values())
    assert loss(batch.at(shifted)).total.item() > loss(batch.at(network.weights)).total.item()
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 0
    loss(batch)
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 1
