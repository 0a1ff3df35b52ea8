"""SAM and ASAM against their formulas."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_training import batch_of, network_of, normalised_net

from locality.training.losses.standard import Standard
from locality.training.settings import problems_in
from locality.training.weight_shifts.sam import Sam

IMAGES = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1])


@pytest.mark.parametrize("adaptive", [False, True])
def test_all_weights_move_together(adaptive: bool) -> None:
    network = network_of(normalised_net())
    loss = Standard()
    shifted = Sam(0.3, adaptive)(batch_of(network, IMAGES, LABELS, loss), loss, network.weights)
    weights = list(network.weights.values())
    net = normalised_net().train()
    gradients = torch.autograd.grad(cross_entropy(net(IMAGES), LABELS), list(net.parameters()))
    flat, gradient = (torch.cat([value.detach().flatten() for value in values]) for values in (weights, gradients))
    unit = flat.abs() if adaptive else torch.ones_like(flat)
    expected = 0.3 * unit**2 * gradient / (unit * gradient).norm()
    moved = torch.cat([(shifted[name] - weight).flatten() for name, weight in network.weights.items()])
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6)
    lengths = (moved / unit).nan_to_num()
    assert lengths.norm().item() == pytest.approx(0.3, rel=1e-3)


def test_impossible_settings() -> None:
    assert [problem.where for problem in problems_in(Sam(float("inf")))] == ["size"]
