"""RAT's Taylor terms against exact derivatives, hand algebra and finite differences."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from exact_terms import along, exact_terms, nested_derivatives
from torch import Tensor, nn
from toy_training import batch_of, linear_net, network_of, normalised_net, number

from locality.errors import ArgumentError
from locality.training.inner_attack import InnerAttack
from locality.training.losses.rat import NoisyPasses, shifted_passes
from locality.training.losses.rat_terms import RatTerms, distance, odd_and_even
from locality.training.losses.split import attacked_pass, clean_pass
from locality.training.losses.trades import Trades
from locality.training.weight_noise import WeightNoise

# torch uses its own deprecated compiler when it first differentiates forwards.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
GENERATOR = torch.Generator().manual_seed(1)
IMAGES = torch.rand(3, 3, 2, 2, generator=GENERATOR)
LABELS = torch.tensor([0, 2, 1])
VECTORS = torch.randn(6, 5, dtype=torch.float64, generator=GENERATOR)
LOSS = RatTerms(InnerAttack(0.1))


class PlainNorm(nn.Module):
    """Batch statistics by the formula."""

    def forward(self, features: Tensor) -> Tensor:
        centred = features - features.mean(0)
        return centred / (centred.square().mean(0) + 1e-5).sqrt()


def net_with(*middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), *middle, nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def noise_for(net: nn.Module, sigma: float) -> dict[str, Tensor]:
    return WeightNoise(sigma).offset(dict(net.named_parameters()), torch.Generator().manual_seed(4))


def parts(net: nn.Module, offset: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return odd_and_even(*(along(net, offset, VECTORS, factor) for factor in (1, -1, 0)))


def test_parts_of_two_linear_layers_by_hand() -> None:
    """f = B A x: the odd part is (V A + B U) x, the even part V U x."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Linear(4, 3, bias=False)).double()
    first, second = (value.detach() for value in net.parameters())
    offset = noise_for(net, 0.5)
    odd, even = parts(net, offset)
    assert torch.allclose(odd, VECTORS @ (offset["1.weight"] @ first + second @ offset["0.weight"]).T, atol=1e-12)
    assert torch.allclose(even, VECTORS @ (offset["1.weight"] @ offset["0.weight"]).T, atol=1e-12)


@pytest.mark.parametrize("middle", [[nn.Tanh()], [nn.BatchNorm1d(8), nn.Tanh()]], ids=["plain", "batch norm"])
def test_halving_sigma_cuts_the_errors_by_8_and_16(middle: list[nn.Module]) -> None:
    net = net_with(*middle).eval()
    errors = []
    for sigma in (0.02, 0.01):
        offset = noise_for(net, sigma)
        odd, even = parts(net, offset)
        slope, curvature = exact_terms(net, offset, VECTORS)
        errors.append(((odd - slope).norm().item(), (even - curvature / 2).norm().item()))
    (odd_before, even_before), (odd_after, even_after) = errors
    assert odd_before / odd_after == pytest.approx(8, rel=0.05)
    assert even_before / even_after == pytest.approx(16, rel=0.05)


def test_kinks_are_in_the_even_part_and_in_no_derivative() -> None:
    """relu(w) at w = 0.001 with u = 0.01: (0.011 + 0) / 2 − 0.001 = 0.0045, while uᵀH u = 0."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU()).double()
    with torch.no_grad():
        next(net.parameters()).fill_(0.001)
    offset, one = {"0.weight": torch.full((1, 1), 0.01, dtype=torch.float64)}, torch.ones(1, 1, dtype=torch.float64)
    _, even = odd_and_even(*(along(net, offset, one, factor) for factor in (1, -1, 0)))
    assert even.item() == pytest.approx(0.0045)
    assert exact_terms(net, offset, one)[1].item() == 0


def test_equation_16_is_for_noise_that_is_constant_along_rows() -> None:
    """E (Σ D u)² = vec(D)ᵀ Cov(u) vec(D): Equation 15 for independent noise, Equation 16 for noise shared by a row."""
    gap = torch.randn(3, 4, dtype=torch.float64, generator=GENERATOR)
    flat = gap.flatten()
    independent, shared = torch.eye(12).double(), torch.block_diag(*[torch.ones(4, 4)] * 3).double()
    assert torch.allclose(flat @ independent @ flat, gap.square().sum())
    assert torch.allclose(flat @ shared @ flat, gap.sum(1).square().sum())
    centred = gap - gap.mean(1, keepdim=True)  # a gap that Equation 16 does not see
    assert float(centred.sum(1).square().sum()) < 1e-28
    assert float(centred.square().sum()) > 1


def test_exact_terms_are_central_differences() -> None:
    net = net_with(nn.BatchNorm1d(8), nn.Tanh()).eval()
    offset = noise_for(net, 1.0)
    slope, curvature = exact_terms(net, offset, VECTORS)
    for step, expected, order in ((1e-6, slope, 1), (1e-4, curvature, 2)):
        plus, minus, centre = (along(net, offset, VECTORS, factor) for factor in (step, -step, 0.0))
        measured = (plus - minus) / (2 * step) if order == 1 else (plus + minus - 2 * centre) / step**2
        assert ((measured - expected).norm() / expected.norm()).item() < 1e-5


@pytest.mark.parametrize("middle", [nn.BatchNorm1d(8), nn.LayerNorm(8)])
def test_exact_terms_refuse_what_torch_gets_wrong(middle: nn.Module) -> None:
    with pytest.raises(ArgumentError, match="`net` must be without LayerNorm, and in eval mode if it has BatchNorm"):
        exact_terms(net_with(middle), {}, VECTORS)


def test_torch_is_still_wrong_through_batch_norm() -> None:
    """If this fails, torch has been repaired (pytorch#196699, #196700): `exact_terms` may then take BatchNorm."""
    fused = net_with(nn.BatchNorm1d(8, affine=False, track_running_stats=False), nn.Tanh())
    plain = net_with(PlainNorm(), nn.Tanh())
    offset = noise_for(plain, 1.0)
    assert torch.allclose(fused(VECTORS), plain(VECTORS), atol=1e-12)
    right, wrong = nested_derivatives(plain, offset, VECTORS), nested_derivatives(fused, offset, VECTORS)
    assert torch.allclose(wrong[0], right[0], atol=1e-10)  # the first derivative is right
    assert float((wrong[1] - right[1]).norm() / right[1].norm()) > 0.01
    plus, minus, centre = (along(plain, offset, VECTORS, factor) for factor in (1e-4, -1e-4, 0.0))
    assert torch.allclose(right[1], (plus + minus - 2 * centre) / 1e-8, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("middle", [lambda: nn.BatchNorm1d(8), lambda: nn.LayerNorm(8), nn.ReLU, PlainNorm])
@pytest.mark.parametrize("part", [0, 1], ids=["odd", "even"])
def test_gradients_of_the_parts_are_right_through_every_layer(middle: Callable[[], nn.Module], part: int) -> None:
    net = net_with(middle(), nn.Tanh())
    offset = noise_for(net, 0.05)
    direction = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def size(step: float) -> Tensor:
        moved = copy.deepcopy(net)
        with torch.no_grad():
            next(moved.parameters()).add_(step * direction)
        return parts(moved, offset)[part].square().sum().detach()

    (gradient,) = torch.autograd.grad(parts(net, offset)[part].square().sum(), [next(net.parameters())])
    measured = float(size(1e-5) - size(-1e-5)) / 2e-5
    assert float((gradient * direction).sum()) == pytest.approx(measured, rel=1e-3)


def noisy_passes(loss: RatTerms) -> NoisyPasses:
    passes = loss.passes(batch_of(network_of(normalised_net()), IMAGES, LABELS, loss))
    assert isinstance(passes, NoisyPasses)
    return passes


def test_the_loss_is_trades_and_the_terms() -> None:
    loss = RatTerms(InnerAttack(0.1), beta=3.0, noise=WeightNoise(0.1), eta=0.4)
    passes = noisy_passes(loss)
    plus, minus = shifted_passes(passes)
    first = second = 0.0
    for image in range(3):
        odd, even = [], []
        for one in (clean_pass, attacked_pass):
            up, down, centre = (one(seen).logits[image].detach().double() for seen in (plus, minus, passes))
            odd.append((up - down) / 2)
            even.append(up + down - 2 * centre)  # uᵀH u, twice the even part
        first += float(((odd[0] - odd[1]) ** 2).sum()) / 3
        second += float(((even[0] - even[1]) ** 2).sum()) / 3
    trades = Trades(InnerAttack(0.1), 3.0).value(passes, LABELS).total.item()
    both, one_order = loss.value(passes, LABELS), replace(loss, order=1).value(passes, LABELS)
    assert both.total.item() == pytest.approx(trades + 0.4 * first + 0.2 * second, rel=1e-5)
    assert one_order.total.item() == pytest.approx(trades + 0.4 * first, rel=1e-5)
    assert number(both.terms["first_term"]) == pytest.approx(first, rel=1e-4)
    assert number(both.terms["second_term"]) == pytest.approx(second, rel=1e-3)
    assert list(one_order.terms) == ["cross_entropy", "kl_divergence", "first_term"]
    assert first > 1e-6 < second


def test_eta_0_is_trades_bit_for_bit() -> None:
    """On the same passes: the images that `rat_terms` attacks are those at w + u."""
    loss = replace(LOSS, eta=0.0)
    passes = noisy_passes(loss)
    ours, trades = loss.value(passes, LABELS), Trades(InnerAttack(0.1)).value(passes, LABELS)
    assert torch.equal(ours.total, trades.total)
    assert torch.equal(loss.trace(passes, LABELS), Trades(InnerAttack(0.1)).trace(passes, LABELS))


def test_a_linear_network_has_no_second_term() -> None:
    """Noise on one linear layer moves logits linearly, so the even part is rounding."""
    loss = RatTerms(InnerAttack(0.1), noise=WeightNoise(0.1))
    terms = loss(batch_of(network_of(linear_net()), IMAGES, LABELS, loss)).terms
    assert number(terms["second_term"]) < 1e-10 < 1e-6 < number(terms["first_term"])


def test_kl_of_small_terms_is_a_squared_distance() -> None:
    """KL(softmax a ‖ softmax b) → ‖centred(a − b)‖² / 2K; in float32 alone it would be lost in rounding."""
    one, other = (1e-4 * torch.randn(4, 10, generator=GENERATOR) for _ in range(2))
    gap = (one - other).double()
    centred = gap - gap.mean(1, keepdim=True)
    expected = centred.square().sum(1) / 20
    assert torch.allclose(distance(one, other, "kl").double(), expected, rtol=1e-3)
    assert torch.allclose(distance(one, other, "squared").double(), gap.square().sum(1), rtol=1e-5)


def test_the_distance_of_a_sum_is_not_bounded_by_the_sum_of_distances() -> None:
    """Equation 7 of the paper, L(Σ x, Σ y) ≤ Σ L(x, y), fails for the squared distance and for KL of softmaxes."""
    terms, none = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
    for kind in ("squared", "kl"):
        whole = distance(terms + terms, none, kind)
        assert float(whole) > 1.4 * 2 * float(distance(terms, none, kind))


@pytest.mark.parametrize(
    ("change", "where"),
    [({"eta": -0.1}, "eta"), ({"eta": float("nan")}, "eta"), ({"order": 3}, "order"), ({"beta": -1.0}, "beta")],
)
def test_mistakes_in_settings(change: dict[str, float], where: str) -> None:
    (problem,) = replace(LOSS, **change).problems()  # type: ignore[arg-type]
    assert problem.where == where
