"""RAT with noise on the weights, against networks that were moved by hand, and against TRADES."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax
from toy_training import Ascent, batch_of, linear_net, network_of, normalised_net, number

from locality.training.inner_attack import InnerAttack, Mode
from locality.training.losses.rat import Rat, shifted_passes
from locality.training.losses.rat_labels import RatLabels
from locality.training.losses.rat_terms import RatTerms
from locality.training.losses.split import AttackedLoss
from locality.training.losses.trades import Trades
from locality.training.network import Network, Weights
from locality.training.schedules import Moment
from locality.training.weight_noise import WeightNoise, shifted
from locality.types import Threat

IMAGES = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1])
ATTACK = InnerAttack(0.1)
ALL = [Rat(ATTACK), Rat(ATTACK, antithetic=False), RatTerms(ATTACK), RatLabels(ATTACK), RatLabels(ATTACK, base="at")]


def moved_copy(net: nn.Module, offset: dict[str, Tensor], sign: int) -> nn.Module:
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for name, value in moved.named_parameters():
            value.add_(sign * offset.get(name, torch.zeros(())))
    return moved


def divergence(net: nn.Module, attacked: Tensor) -> Tensor:
    clean, other = softmax(net(torch.cat([IMAGES, attacked])), dim=1).chunk(2)  # one pass, as BatchNorm sees it
    return (clean * (clean / other).log()).sum(1).mean()


@pytest.mark.parametrize("antithetic", [True, False])
def test_the_divergence_is_that_of_moved_networks(monkeypatch: pytest.MonkeyPatch, antithetic: bool) -> None:
    monkeypatch.setattr("locality.training.losses.rat.divergent_images", lambda batch, attack: IMAGES.flip(0))
    net = normalised_net()
    loss = Rat(ATTACK, beta=3.0, noise=WeightNoise(0.2), antithetic=antithetic)
    batch = batch_of(network_of(net), IMAGES, LABELS, loss)
    offset = loss.noise.draw(batch)
    plain = copy.deepcopy(net)
    value = loss(batch)
    signs = (1, -1) if antithetic else (1,)
    expected = sum(divergence(moved_copy(plain, offset, sign), IMAGES.flip(0)).item() for sign in signs) / len(signs)
    fit = cross_entropy(plain(torch.cat([IMAGES, IMAGES.flip(0)]))[:4], LABELS).item()
    assert value.total.item() == pytest.approx(fit + 3 * expected, rel=1e-5)
    assert abs(expected - divergence(copy.deepcopy(plain), IMAGES.flip(0)).item()) > 1e-4  # or the noise would do nothing
    assert loss.threat == Threat("linf", 0.1)
    assert value.terms["epsilon"] == 0.1


@pytest.mark.parametrize("loss", [Rat(ATTACK), Rat(ATTACK, antithetic=False), RatTerms(ATTACK)])
def test_sigma_to_0_is_trades(loss: Rat | RatTerms) -> None:
    """Loss and gradient, to 1e-5 at σ = 1e-7 in float64, with BatchNorm in training mode."""
    loss = replace(loss, noise=WeightNoise(1e-7))
    results = []
    for one in (loss, Trades(ATTACK)):
        network = network_of(normalised_net().double())
        total = one(batch_of(network, IMAGES.double(), LABELS, one)).total
        results.append((total.item(), torch.autograd.grad(total, list(network.weights.values()))))
    (ours, our_gradients), (trades, gradients) = results
    assert ours == pytest.approx(trades, rel=1e-5)
    for our, gradient in zip(our_gradients, gradients, strict=True):
        assert torch.allclose(our, gradient, atol=1e-5)
    assert max(float(gradient.abs().max()) for gradient in gradients) > 0.01


def test_a_pair_has_no_odd_part() -> None:
    """The mean over w ± u does not know the sign of u; that over w + u does."""
    for antithetic in (True, False):
        loss = Rat(ATTACK, noise=WeightNoise(0.2), antithetic=antithetic)
        totals = []
        for sign in (1, -1):
            batch = batch_of(network_of(linear_net()), IMAGES, LABELS, loss)
            batch.once("attacked images", lambda: IMAGES.flip(0))
            offset = loss.noise.draw(batch)
            batch.results["weight noise"] = {name: sign * value for name, value in offset.items()}
            totals.append(loss(batch).total.item())
        assert (totals[0] == pytest.approx(totals[1], rel=1e-6)) == antithetic


def test_both_estimates_are_unbiased_and_the_pair_varies_less() -> None:
    """Over 300 steps, their means agree with a Monte Carlo mean over independent draws within three standard errors."""
    net = linear_net()
    sigma, generator = 0.01, torch.Generator().manual_seed(7)
    with torch.no_grad():
        independent = torch.stack(
            [
                divergence(moved_copy(net, {"1.weight": sigma * torch.randn(3, 12, generator=generator)}, 1), IMAGES.flip(0))
                for _ in range(1000)
            ]
        )
    estimates = {}
    for antithetic in (True, False):
        loss = Rat(ATTACK, noise=WeightNoise(sigma), antithetic=antithetic)
        drawn = []
        for step in range(300):
            batch = batch_of(network_of(net), IMAGES, LABELS, loss, Moment(step, 300, 0, 1))
            batch.once("attacked images", lambda: IMAGES.flip(0))
            drawn.append(number(loss(batch).terms["kl_divergence"]))
        estimates[antithetic] = torch.tensor(drawn)
        error = (estimates[antithetic].var() / 300 + independent.var() / 1000).sqrt()
        assert abs(float(estimates[antithetic].mean() - independent.mean())) < 3 * float(error)
    # At the same number of passes: a pair costs two draws.
    assert float(estimates[True].var()) < 0.9 * float(estimates[False].var()) / 2


def test_the_attack_is_at_w_plus_u(monkeypatch: pytest.MonkeyPatch) -> None:
    """All passes of the attack, that of the clean images included, see one draw; `rat_labels` attacks at w."""
    seen: list[Weights] = []
    original = Network.attacked_logits

    def spy(self: Network, images: Tensor, weights: Weights, mode: Mode) -> Tensor:
        seen.append(weights)
        return original(self, images, weights, mode)

    monkeypatch.setattr(Network, "attacked_logits", spy)
    for loss in ALL:
        seen.clear()
        batch = batch_of(network_of(linear_net()), IMAGES, LABELS, loss)
        loss(batch)
        expected = batch.weights
        if isinstance(loss, Rat | RatTerms):
            expected = shifted(batch.weights, loss.noise.draw(batch))
        assert len(seen) == (2 if loss == ALL[-1] else 3)  # two steps, and the clean logits of TRADES
        for weights in seen:
            assert all(torch.equal(weights[name], value) for name, value in expected.items())


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_a_step_moves_running_statistics_once_and_nothing_else(loss: AttackedLoss) -> None:
    network = network_of(normalised_net())
    net = network.model.net
    before = copy.deepcopy(net.state_dict())
    batch = batch_of(network, IMAGES, LABELS, loss)
    loss(batch)
    after = net.state_dict()
    assert int(after["1.num_batches_tracked"]) == 1
    assert all(torch.equal(after[name], before[name]) for name in dict(net.named_parameters()))
    assert net.training
    # The statistics are those of clean and attacked images together, at the network's own weights.
    both = torch.cat([IMAGES, batch.results["attacked images"]])
    mean = (both.mean((0, 2, 3)) @ before["0.weight"][:, :, 0, 0].T) + before["0.bias"]
    assert torch.allclose(after["1.running_mean"], 0.1 * mean, atol=1e-6)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_noise_comes_on_top_of_a_weight_shift(loss: AttackedLoss) -> None:
    """As AWP does: the shift evaluates the loss on the side, and the loss is then evaluated at shifted weights."""
    network = network_of(normalised_net())
    batch = batch_of(network, IMAGES, LABELS, loss)
    moved = Ascent(0.05)(batch, loss, network.weights)
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 0
    at_moved = replace(batch, weights=moved)
    value = loss(at_moved)
    assert int(network.model.net.state_dict()["1.num_batches_tracked"]) == 1
    gradients = torch.autograd.grad(value.total, list(network.weights.values()), allow_unused=True)
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
    if isinstance(loss, Rat):
        again = loss.passes(at_moved)
        offset = loss.noise.draw(batch)
        expected = network.trial(torch.cat([IMAGES, batch.results["attacked images"]]), shifted(moved, offset)).logits
        first = shifted_passes(again)[0].clean
        assert first is not None
        assert torch.allclose(first.logits, expected[:4], atol=1e-6)


@pytest.mark.parametrize(("change", "where"), [({"beta": -1.0}, "beta"), ({"label_smoothing": 1.0}, "label_smoothing")])
def test_mistakes_in_settings(change: dict[str, float], where: str) -> None:
    (problem,) = replace(Rat(ATTACK), **change).problems()  # type: ignore[arg-type]
    assert problem.where == where
