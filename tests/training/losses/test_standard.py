"""Standard training against formulas written out by hand."""

import torch
from torch.nn.functional import softmax
from toy_training import batch_of, linear_net, network_of

from locality.training.losses.standard import Standard

LABELS = torch.tensor([0, 2, 1])
IMAGES = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(1))


def test_it_is_the_cross_entropy() -> None:
    net = linear_net()
    loss = Standard()
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss))
    probabilities = softmax(net(IMAGES), dim=1)
    assert torch.allclose(value.total, -probabilities[torch.arange(3), LABELS].log().mean())
    assert value.terms == {"cross_entropy": value.total}
    assert value.attacked is None
    assert value.clean is not None
    assert torch.equal(value.clean.logits, net(IMAGES))
    assert torch.equal(value.clean.features, IMAGES.flatten(1))


def test_label_smoothing_mixes_in_the_uniform_distribution() -> None:
    net = linear_net()
    loss = Standard(label_smoothing=0.3)
    logs = net(IMAGES).log_softmax(1)
    expected = -(0.7 * logs[torch.arange(3), LABELS] + 0.3 * logs.mean(1)).mean()
    assert torch.allclose(loss(batch_of(network_of(net), IMAGES, LABELS, loss)).total, expected)
