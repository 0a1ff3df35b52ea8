"""Gaussian offsets of the weights: which tensors move, how far, and that passes at moved weights leave everything alone."""

import copy

import pytest
import torch
from torch import nn
from toy_training import START, batch_of, linear_net, network_of, normalised_net

from locality.errors import ArgumentError
from locality.training.losses.standard import Standard
from locality.training.schedules import Moment
from locality.training.step import TrainingBatch
from locality.training.weight_noise import WeightNoise, passes_at, shifted
from locality.zoo.nets.forward_pass import FeatureSequential

IMAGES = torch.rand(5, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1, 0])


def batch(net: nn.Module, moment: Moment = START) -> TrainingBatch:
    return batch_of(network_of(net), IMAGES, LABELS, Standard(), moment)


def test_a_draw_depends_on_the_seed_and_the_step_alone() -> None:
    noise = WeightNoise()
    here, there = noise.draw(batch(linear_net())), noise.draw(batch(linear_net(seed=1)))
    assert torch.equal(here["1.weight"], there["1.weight"])  # another process would have other images
    later = noise.draw(batch(linear_net(), Moment(1, 10, 0, 5)))
    assert not torch.equal(here["1.weight"], later["1.weight"])


def test_one_draw_per_step() -> None:
    """Also where the loss is evaluated at other weights, as AWP does."""
    first = batch(linear_net())
    moved = first.at({name: 2 * value for name, value in first.weights.items()})
    noise = WeightNoise(unit="relative")
    assert noise.draw(first) is noise.draw(moved)


def test_matrices_and_kernels_move_and_nothing_else() -> None:
    weights = batch(normalised_net()).weights
    assert set(weights) == {"0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"}
    generator = torch.Generator().manual_seed(0)
    assert set(WeightNoise().offset(weights, generator)) == {"0.weight", "4.weight"}
    assert set(WeightNoise(on="convolutions").offset(weights, generator)) == {"0.weight"}
    with pytest.raises(ArgumentError, match=r"`noise.on` must be a kind of layer that the network has, got 'convolutions'"):
        WeightNoise(on="convolutions").offset(batch(linear_net()).weights, generator)


def test_the_unit_is_a_number_or_the_root_mean_square() -> None:
    weights = {"small": torch.full((300, 300), 1e-3), "large": torch.tensor([3.0, -4.0]).repeat(300, 150)}
    absolute = WeightNoise(0.1).offset(weights, torch.Generator().manual_seed(0))
    relative = WeightNoise(0.1, "relative").offset(weights, torch.Generator().manual_seed(0))
    for name, expected in {"small": 0.1, "large": 0.1}.items():
        assert float(absolute[name].std()) == pytest.approx(expected, rel=0.01)
    for name, expected in {"small": 1e-4, "large": 0.1 * 12.5**0.5}.items():  # (9 + 16) / 2
        assert float(relative[name].std()) == pytest.approx(expected, rel=0.01)
        assert abs(float(relative[name].mean())) < 0.02 * expected


@pytest.mark.parametrize("sign", [1, -1])
def test_shifted_weights_are_those_of_a_moved_copy(sign: int) -> None:
    made = batch(normalised_net())
    net = made.network.model.net
    before, gradients_wanted = copy.deepcopy(net.state_dict()), [value.requires_grad for value in net.parameters()]
    offset = WeightNoise(0.1).draw(made)
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for name, value in moved.named_parameters():
            value.add_(sign * offset.get(name, torch.zeros(())))
    (seen,) = passes_at(made, IMAGES, offset, [sign])
    expected = moved(IMAGES)
    assert torch.allclose(seen.logits, expected, atol=1e-6)
    ours = torch.autograd.grad(seen.logits.square().sum(), list(made.weights.values()))
    theirs = torch.autograd.grad(expected.square().sum(), list(moved.parameters()))
    for our, their in zip(ours, theirs, strict=True):
        assert torch.allclose(our, their, atol=1e-5)
    # Weights, running statistics and flags of the network are as they were.
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [value.requires_grad for value in net.parameters()] == gradients_wanted


def test_nothing_changes_when_a_pass_fails() -> None:
    made = batch(normalised_net())
    net = made.network.model.net
    before, random_state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with pytest.raises(RuntimeError):
        passes_at(made, IMAGES[:, :, :1], WeightNoise().draw(made), [1, -1])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert net.training


def test_all_passes_drop_the_same_features() -> None:
    """With the same weights, a pass with dropout is the same on both sides and in the pass that follows."""
    torch.manual_seed(0)
    made = batch(FeatureSequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 3)))
    zero = {"2.weight": torch.zeros(3, 12)}
    plus, minus = passes_at(made, IMAGES, zero, [1, -1])
    centre = made.forward(IMAGES)
    assert torch.equal(plus.features, minus.features)
    assert torch.equal(plus.features, centre.features)
    assert not torch.equal(centre.features, made.forward(IMAGES).features)


def test_a_shift_by_0_changes_no_bit() -> None:
    weights = batch(linear_net()).weights
    same = shifted(weights, {"1.weight": torch.zeros(3, 12)})
    assert all(torch.equal(same[name], value) for name, value in weights.items())


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_sigma_must_be_a_size(sigma: float) -> None:
    (problem,) = WeightNoise(sigma).problems()
    assert str(problem).startswith("`sigma` must be above 0 and finite")
