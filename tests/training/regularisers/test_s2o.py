"""S2O's soft labels against a loop over classes, and the loss that it makes of a loss."""

import pytest
import torch
from torch.nn.functional import cross_entropy, softmax
from toy_training import ToyLoss, batch_of, linear_net, network_of, normalised_net

from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.split import SplitLoss
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.regularisers.s2o import S2o, soft_label_loss, soft_labels
from locality.training.settings import problems_in

IMAGES = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1])


def by_loops(logits: torch.Tensor) -> list[list[float]]:
    """The published construction, from the Kronecker products of each image's logits with themselves."""
    classes = logits.shape[1]
    matrix = sum(torch.kron(row[:, None], row[None, :]) for row in logits)
    assert isinstance(matrix, torch.Tensor)
    targets = []
    for k in range(classes):
        largest = max(abs(float(matrix[k, l])) for l in range(classes))  # noqa: E741
        parts = [0.0 if l == k else largest - abs(float(matrix[k, l])) for l in range(classes)]  # noqa: E741
        targets.append([0.2 if l == k else 0.8 * part / sum(parts) for l, part in enumerate(parts)])  # noqa: E741
    return targets


def test_soft_labels() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    targets = soft_labels(logits)
    assert targets.tolist() == [pytest.approx(row) for row in by_loops(logits.detach())]
    assert targets.sum(1).tolist() == pytest.approx([1] * 4)
    assert targets.diag().tolist() == pytest.approx([0.2] * 4)
    assert not targets.requires_grad


def test_soft_labels_without_correlations_are_uniform() -> None:
    """All logits 0, or equal: no class correlates less than another."""
    for logits in (torch.zeros(2, 3), torch.ones(2, 3)):
        assert soft_labels(logits)[0].tolist() == pytest.approx([0.2, 0.4, 0.4])
    assert soft_labels(torch.randn(3, 2))[0].tolist() == pytest.approx([0.2, 0.8])


def test_the_divergence_from_the_soft_labels() -> None:
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor(by_loops(logits), dtype=torch.float64)[LABELS]
    expected = (targets * (targets / softmax(logits, 1)).log()).sum(1).mean()
    torch.testing.assert_close(soft_label_loss(logits, LABELS), expected)


@pytest.mark.parametrize("loss", [Standard(), Adversarial(InnerAttack(0.1)), Trades(InnerAttack(0.1), 2.0)], ids=repr)
def test_a_share_of_the_fit_is_replaced(loss: SplitLoss) -> None:
    """(1 − α) fit + α S + the rest of the loss."""
    net = linear_net()
    batch = batch_of(network_of(net), IMAGES, LABELS, loss)
    value = loss(batch)
    total = value.total + 0.3 * S2o(0.3)(batch, value)
    clean = net(IMAGES)
    soft = soft_label_loss(clean, LABELS)
    if value.attacked is not None:
        soft = (soft + soft_label_loss(value.attacked.logits, LABELS)) / 2
    seen = clean if value.attacked is None or isinstance(loss, Trades) else value.attacked.logits
    fit = cross_entropy(seen, LABELS)
    torch.testing.assert_close(total, 0.7 * fit + 0.3 * soft + (value.total - fit))


def test_a_clean_pass_of_its_own_leaves_batch_statistics_alone() -> None:
    network = network_of(normalised_net())
    loss = Adversarial(InnerAttack(0.1))
    batch = batch_of(network, IMAGES, LABELS, loss)
    value = loss(batch)
    before = {name: buffer.clone() for name, buffer in network.model.net.named_buffers()}
    S2o(0.1)(batch, value)
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.model.net.named_buffers())


def test_impossible_settings() -> None:
    assert [problem.where for problem in problems_in(S2o(1.5, label_share=-1.0))] == ["weight", "label_share"]
    loss = ToyLoss()
    batch = batch_of(network_of(linear_net()), IMAGES, LABELS, loss)
    with pytest.raises(ValueError, match="`loss` must be one that names the part that is fitted to labels, got 'ToyLoss'"):
        S2o(0.1)(batch, loss(batch))
