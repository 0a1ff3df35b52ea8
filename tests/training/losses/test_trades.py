"""TRADES against formulas written out by hand."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax
from toy_training import batch_of, linear_net, network_of, number

from locality.training.inner_attack import InnerAttack, Objective
from locality.training.losses.trades import Trades, kl_divergence
from locality.training.step import TrainingBatch
from locality.types import Threat

LABELS = torch.tensor([0, 2, 1])
IMAGES = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Objective, str]]:
    """What was attacked for and from where; the attack adds 0.1."""
    seen: list[tuple[Objective, str]] = []

    def attack(self: TrainingBatch, settings: InnerAttack, objective: Objective, start: str = "random") -> Tensor:
        seen.append((objective, start))
        return self.images + 0.1

    monkeypatch.setattr(TrainingBatch, "attack", attack)
    return seen


def test_it_is_cross_entropy_and_divergence(attacks: list[tuple[Objective, str]]) -> None:
    net = linear_net()
    loss = Trades(InnerAttack(0.1), beta=4.0)
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss))
    clean, moved = softmax(net(IMAGES), dim=1), softmax(net(IMAGES + 0.1), dim=1)
    divergence = (clean * (clean / moved).log()).sum(1)
    fit = cross_entropy(net(IMAGES), LABELS)
    assert torch.allclose(value.total, fit + 4 * divergence.mean(), atol=1e-6)
    assert {name: number(term) for name, term in value.terms.items()} == {
        "cross_entropy": pytest.approx(fit.item()),
        "kl_divergence": pytest.approx(divergence.mean().item(), abs=1e-6),
        "epsilon": 0.1,
    }
    ((objective, start),) = attacks
    assert start == "near"
    assert torch.allclose(objective(net(IMAGES + 0.1)), divergence, atol=1e-6)
    # The clean half takes part in the divergence's gradient, as in the published code.
    weight = dict(net.named_parameters())["1.weight"]
    (gradient,) = torch.autograd.grad(value.total - fit, weight)
    (expected,) = torch.autograd.grad(4 * divergence.mean(), weight)
    assert torch.allclose(gradient, expected, atol=1e-5)
    assert loss.threat == Threat("linf", 0.1)


def test_both_passes_come_with_features(attacks: list[tuple[Objective, str]]) -> None:
    net = linear_net()
    loss = Trades(InnerAttack(0.1), label_smoothing=0.2)
    value = loss(batch_of(network_of(net), IMAGES, LABELS, loss))
    assert value.clean is not None
    assert value.attacked is not None
    assert torch.equal(value.clean.features, IMAGES.flatten(1))
    assert torch.equal(value.attacked.features, (IMAGES + 0.1).flatten(1))
    fit = cross_entropy(net(IMAGES), LABELS, label_smoothing=0.2)
    assert number(value.terms["cross_entropy"]) == pytest.approx(fit.item())


def test_the_divergence_of_a_distribution_from_itself_is_0() -> None:
    logits = torch.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(kl_divergence(logits.log_softmax(1), logits + 5), torch.zeros(2), atol=1e-6)
    # KL((1/2, 1/2) ‖ (1/4, 3/4)) = log(2/√3).
    half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert float(kl_divergence(half, quarter)) == pytest.approx(0.143841, abs=1e-5)


def test_the_attack_starts_near_the_image_and_stays_in_the_ball() -> None:
    net = linear_net()
    loss = Trades(InnerAttack(0.1, steps=3, step_size=0.5))
    batch = batch_of(network_of(net), IMAGES, LABELS, loss)
    value = loss(batch)
    assert value.attacked is not None
    offset = (value.attacked.features - IMAGES.flatten(1)).abs()
    assert float(offset.max()) == pytest.approx(0.1, abs=1e-6)
    assert number(value.terms["kl_divergence"]) > 0


def test_stop_clean_holds_the_clean_side_of_the_divergence(attacks: list[tuple[Objective, str]]) -> None:
    """The value is the same; the gradient is that of a divergence from a constant."""
    net = linear_net()
    weight = dict(net.named_parameters())["1.weight"]
    values = [
        loss(batch_of(network_of(net), IMAGES, LABELS, loss))
        for loss in (Trades(InnerAttack(0.1), beta=4.0, stop_clean=stop) for stop in (False, True))
    ]
    assert torch.equal(values[0].total, values[1].total)
    clean, moved = softmax(net(IMAGES), dim=1).detach(), softmax(net(IMAGES + 0.1), dim=1)
    expected = cross_entropy(net(IMAGES), LABELS) + 4 * (clean * (clean / moved).log()).sum(1).mean()
    gradients = [torch.autograd.grad(total, weight)[0] for total in (values[0].total, values[1].total, expected)]
    assert torch.allclose(gradients[1], gradients[2], atol=1e-5)
    assert not torch.allclose(gradients[0], gradients[2], atol=1e-3)
