"""γ‖θ‖² is a weight decay of 2γ."""

import torch
from toy_training import batch_of, network_of, normalised_net

from locality.training.losses.standard import Standard
from locality.training.regularisers.l2 import L2

IMAGES = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1])


def test_a_step_of_sgd_equals_one_with_twice_the_weight_decay() -> None:
    nets = []
    for penalty, decay in ((0.03, 0.0), (0.0, 0.06)):
        network = network_of(normalised_net())
        loss = Standard()
        batch = batch_of(network, IMAGES, LABELS, loss)
        value = loss(batch)
        (value.total + penalty * L2(penalty)(batch, value)).backward()
        torch.optim.SGD(network.weights.values(), lr=0.5, weight_decay=decay).step()
        nets.append(network.weights)
    for name, weight in nets[0].items():
        torch.testing.assert_close(weight, nets[1][name])


def test_all_weights_count() -> None:
    network = network_of(normalised_net())
    loss = Standard()
    batch = batch_of(network, IMAGES, LABELS, loss)
    total = sum(value.square().sum().item() for value in network.model.net.parameters())
    torch.testing.assert_close(L2(1.0)(batch, loss(batch)), torch.tensor(total))
