import torch
from toy_training import batch_of, linear_net, network_of

from locality.training.losses.standard import Standard
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.training.weight_shifts.no_shift import NoShift


def test_the_weights_stay_as_they_are() -> None:
    network = network_of(linear_net())
    loss = Standard()
    batch = batch_of(network, torch.zeros(1, 3, 2, 2), torch.tensor([0]), loss)
    assert NoShift()(batch, loss, network.weights) is network.weights
    assert WEIGHT_SHIFTS["none"] is NoShift
