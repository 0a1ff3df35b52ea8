"""Adversarial training of a linear model, whose worst image is known in closed form."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_training import batch_of, linear_net, network_of

from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial, FastAdversarial, OneStepAttack
from locality.training.schedules import Moment
from locality.types import Threat

LABELS = torch.tensor([0, 1, 1])
IMAGES = torch.full((3, 3, 2, 2), 0.5)


def worst(weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Of two classes, every pixel moves by epsilon against the label's logit."""
    directions = torch.stack([(weight[1 - label] - weight[label]).sign() for label in LABELS]).view(3, 3, 2, 2)
    return IMAGES + epsilon * directions


def test_it_fits_the_worst_images() -> None:
    net = linear_net(2)
    loss = Adversarial(InnerAttack(0.1, steps=4, step_size=1.0))
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss))
    logits = net(worst(net.state_dict()["1.weight"], 0.1))
    assert torch.allclose(value.total, cross_entropy(logits, LABELS))
    assert value.attacked is not None
    assert torch.allclose(value.attacked.logits, logits)
    assert value.clean is None
    assert value.terms == {"cross_entropy": value.total, "epsilon": 0.1}
    assert loss.threat == Threat("linf", 0.1)


def test_label_smoothing_is_for_the_fit_alone() -> None:
    net = linear_net(2)
    loss = Adversarial(InnerAttack(0.1, steps=4, step_size=1.0), label_smoothing=0.2)
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss))
    expected = cross_entropy(net(worst(net.state_dict()["1.weight"], 0.1)), LABELS, label_smoothing=0.2)
    assert torch.allclose(value.total, expected)


def test_fast_at_takes_one_step() -> None:
    """One step of 1.25 ε from a random start ends at the corner wherever the start was not too far on the other side."""
    net = linear_net(2)
    loss = FastAdversarial(OneStepAttack(0.1, warm_up=0.5))
    moment = Moment.of(0, 20, 10)
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss, moment))
    assert value.terms["epsilon"] == pytest.approx(0.02)  # a fifth of it in the first of five warm-up epochs
    assert loss.threat == Threat("linf", 0.1)
    same = Adversarial(InnerAttack(0.1, steps=1, step_size=1.25, warm_up=0.5))
    assert torch.equal(value.total, same(batch_of(network_of(net), IMAGES, LABELS, same, moment)).total)
    two = Adversarial(InnerAttack(0.1, steps=2, step_size=1.25, warm_up=0.5))
    assert not torch.equal(value.total, two(batch_of(network_of(net), IMAGES, LABELS, two, moment)).total)


def test_images_are_attacked_once_per_step() -> None:
    """A second evaluation, at other weights, sees the same attacked images."""
    network = network_of(linear_net(2))
    loss = Adversarial(InnerAttack(0.1))
    batch = batch_of(network, IMAGES, LABELS, loss)
    first = loss(batch).attacked
    second = loss(batch.at({name: -value for name, value in network.weights.items()})).attacked
    assert first is not None
    assert second is not None
    assert torch.equal(first.features, second.features)  # the pixels
    assert torch.allclose(first.logits, -second.logits)
