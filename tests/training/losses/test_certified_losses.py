"""Losses of certified training against formulas written out by hand, and what the Lipschitz constant does in them."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from toy_training import START, batch_of, network_of, number

from locality.training.losses import LOSSES, emma
from locality.training.losses.certified_loss import CertifiedLoss, bottom_logit
from locality.training.losses.emma import GloroEmma, GloroFixed, GloroLa, emma_logits
from locality.training.losses.gloro import GloroCe, GloroTrades
from locality.training.losses.standard import Standard
from locality.training.recipe import Recipe, RecipeError, check_recipe
from locality.training.recipe_parts import Net, TrainingData
from locality.training.schedules import Constant, Moment
from locality.training.step import Loss, TrainingBatch
from locality.types import Threat
from locality.zoo.nets import NETS
from locality.zoo.nets.lipschitz import LipschitzLinear, LipschitzNet, NormalisedHead

EPSILON = 0.2
STEPS = 400  # of the power iteration: exact for these small matrices
IMAGES = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Weights = dict[str, Tensor]


def small_net(seed: int = 0) -> LipschitzNet:
    """Logits linear in the 12 pixels of a 2×2 image, in float64."""
    torch.manual_seed(seed)
    return LipschitzNet(nn.Flatten(), LipschitzLinear(12, 4), NormalisedHead(4, 3)).double()


def labels_of(net: LipschitzNet) -> Tensor:
    """The predictions, but for the last image, which is labelled with the class that is least likely."""
    logits = net(IMAGES).detach()
    return torch.cat([logits[:-1].argmax(1), logits[-1:].argmin(1)])


def batch_for(net: LipschitzNet, loss: Loss, moment: Moment = START) -> TrainingBatch:
    return batch_of(network_of(net), IMAGES, labels_of(net), loss, moment)


def norm_by_hand(weights: Weights, j: int, i: int) -> Tensor:
    """K_ji of `small_net`: the largest singular value times the distance of two rows of length 1."""
    head = weights["2.weight"]
    apart = head[j] / head[j].square().sum().sqrt() - head[i] / head[i].square().sum().sqrt()
    return torch.linalg.svdvals(weights["1.weight"])[0] * apart.square().sum().sqrt() if i != j else apart.sum() * 0


def logits_by_hand(weights: Weights, image: Tensor) -> list[Tensor]:
    features = weights["1.weight"] @ image.flatten() + weights["1.bias"]
    rows = [row / row.square().sum().sqrt() for row in weights["2.weight"]]
    return [row @ features + bias for row, bias in zip(rows, weights["2.bias"], strict=True)]


def probability(logits: list[Tensor], index: int) -> Tensor:
    return logits[index].exp() / sum(one.exp() for one in logits)


def bottom(weights: Weights, logits: list[Tensor]) -> Tensor:
    j = max(range(3), key=lambda k: float(logits[k]))
    return torch.stack([logits[i] + EPSILON * norm_by_hand(weights, j, i) for i in range(3) if i != j]).max()


def moved(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> list[Tensor]:
    return [logits[i] + distances[i] * norm_by_hand(weights, y, i) for i in range(3)]


def ce(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> Tensor:
    return -probability([*logits, bottom(weights, logits)], y).log()


def trades(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> Tensor:
    of_bottom = probability([*logits, bottom(weights, logits)], 3)
    return -probability(logits, y).log() - 1.5 * (1 - of_bottom).log()


def fixed(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> Tensor:
    return -probability(moved(weights, logits, y, [EPSILON] * 3), y).log()


def emma_by_hand(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> Tensor:
    return -probability(moved(weights, logits, y, distances), y).log()


def annealing(weights: Weights, logits: list[Tensor], y: int, distances: list[float]) -> Tensor:
    away = [one - (2.0 if i == y else 0.0) for i, one in enumerate(moved(weights, logits, y, distances))]
    fit = -probability([one / 0.75 for one in away], y).log()
    return 0.75 * (1 - torch.exp(-fit)) ** 5 * fit


BY_HAND: dict[CertifiedLoss, Callable[[Weights, list[Tensor], int, list[float]], Tensor]] = {
    GloroCe(EPSILON, Constant(), STEPS): ce,
    GloroTrades(EPSILON, Constant(), STEPS, beta=1.5): trades,
    GloroFixed(EPSILON, Constant(), STEPS): fixed,
    GloroEmma(EPSILON, Constant(), STEPS): emma_by_hand,
    GloroLa(EPSILON, Constant(), STEPS): annealing,
}
every_loss = pytest.mark.parametrize("loss", BY_HAND, ids=lambda loss: type(loss).__name__)


def frozen_distances(weights: Weights, labels: Tensor) -> list[list[float]]:
    """ε̃ of every image and class, as plain numbers."""
    rows = []
    for image, y in zip(IMAGES, labels.tolist(), strict=True):
        logits = logits_by_hand(weights, image)
        ratios = [(float(logits[y] - logits[i]), float(norm_by_hand(weights, y, i))) for i in range(3)]
        rows.append([min(max(margin / norm if norm else 0.0, 0.01 * EPSILON), EPSILON) for margin, norm in ratios])
    return rows


def mean_by_hand(loss: CertifiedLoss, weights: Weights, labels: Tensor, distances: list[list[float]]) -> Tensor:
    values = [
        BY_HAND[loss](weights, logits_by_hand(weights, image), y, row)
        for image, y, row in zip(IMAGES, labels.tolist(), distances, strict=True)
    ]
    return torch.stack(values).mean()


@every_loss
def test_it_is_its_formula_and_has_its_gradient(loss: CertifiedLoss) -> None:
    """The gradient is that of the formula by central differences, where ε̃ is a constant."""
    net = small_net()
    weights: Weights = {name: value.detach().clone() for name, value in net.named_parameters()}
    labels = labels_of(net)
    distances = frozen_distances(weights, labels)
    kinds = {(one > 0.011 * EPSILON) + (one > 0.999 * EPSILON) for row in distances for one in row}
    assert kinds == {0, 1, 2}  # least, level and farthest: all cases of EMMA
    total = loss(batch_for(net, loss)).total
    assert total.item() == pytest.approx(float(mean_by_hand(loss, weights, labels, distances)), rel=1e-9)
    total.backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        for index in range(0, parameter.numel(), 5):
            sides = []
            for step in (1e-6, -1e-6):
                at = {key: value.clone() for key, value in weights.items()}
                at[name].view(-1)[index] += step
                sides.append(float(mean_by_hand(loss, at, labels, distances)))
            slope = (sides[0] - sides[1]) / 2e-6
            assert parameter.grad.view(-1)[index].item() == pytest.approx(slope, rel=1e-4, abs=1e-7), name


@every_loss
def test_its_terms_and_its_threat(loss: CertifiedLoss) -> None:
    net = small_net()
    ramped = replace(loss, schedule=type(loss)(EPSILON).schedule)
    value = ramped(batch_for(net, ramped, Moment.of(25, 100, 100)))
    assert number(value.terms["epsilon"]) == pytest.approx(EPSILON * (0.1 + 1.9 * 0.5))
    logits, norms = net(IMAGES), net.margin_norms(STEPS)
    labels = labels_of(net)
    right = [
        all(logits[n, y] - logits[n, i] > EPSILON * norms[y, i] for i in range(3) if i != y) for n, y in enumerate(labels)
    ]
    assert 0 < sum(right) < 6
    assert number(value.terms["certified_accuracy"]) == pytest.approx(sum(right) / 6)
    assert number(value.terms["lipschitz"]) == pytest.approx(norms.max().item())
    assert number(value.terms["cross_entropy"]) > 0
    assert loss.threat == Threat("l2", EPSILON)
    assert [ramped.radius(Moment.of(step, 100, 10)) / EPSILON for step in (0, 50, 99)] == pytest.approx([0.1, 2.0, 2.0])


def test_emma_is_cross_entropy_where_all_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    logits, norms = torch.randn(8, 5, generator=draw), torch.rand(5, 5, generator=draw).fill_diagonal_(0)
    worst = logits.argmin(1)
    least = emma_logits(logits, worst, norms, 0.5)
    assert torch.allclose(least, logits + 0.01 * 0.5 * norms[worst])
    monkeypatch.setattr(emma, "EMMA_LEAST", 0.0)
    assert torch.equal(emma_logits(logits, worst, norms, 0.5), logits)


def test_emma_levels_what_is_within_reach() -> None:
    logits, norms = torch.tensor([[2.0, 1.5, -9.0]]), torch.full((3, 3), 3.0).fill_diagonal_(0)
    assert torch.allclose(emma_logits(logits, torch.tensor([0]), norms, 0.4), torch.tensor([[2.0, 2.0, -7.8]]))


def test_the_bottom_logit_of_a_tie() -> None:
    """A tie counts as one: masking by value would certify it at every radius."""
    tie = torch.tensor([[1.0, 1.0, 0.0]])
    assert bottom_logit(tie, torch.ones(3, 3).fill_diagonal_(0), 0.5).tolist() == [1.5]


def test_weights_feel_the_lipschitz_constant_alone() -> None:
    """Where the pixels are 0, a layer's weight changes no logit, but how far the decision is safe."""
    net = small_net()
    nothing = torch.zeros(4, 3, 2, 2, dtype=torch.float64)
    labels = net(nothing).argmax(1)
    losses: list[tuple[Loss, bool]] = [(Standard(), False), *((loss, True) for loss in BY_HAND)]
    for loss, moves in losses:
        net.zero_grad()
        loss(batch_of(network_of(net), nothing, labels, loss)).total.backward()
        gradient = dict(net.named_parameters())["1.weight"].grad
        assert (gradient is not None and bool(gradient.abs().max() > 1e-4)) == moves, loss


def test_norms_are_of_pixels_and_at_the_given_weights() -> None:
    net = small_net()
    network = network_of(net)
    plain = network.margin_norms(STEPS, network.weights)
    network.model.std.fill_(0.25)
    assert torch.allclose(network.margin_norms(STEPS, network.weights), 4 * plain)
    network.model.std.fill_(1)
    doubled = {name: 2 * value for name, value in network.weights.items()}
    direction = net[1].direction
    aside = network.margin_norms(1, doubled, on_the_side=True)
    assert net[1].direction is direction
    assert torch.allclose(aside, 2 * plain)  # rows of the head have length 1 at every weight
    network.margin_norms(1, network.weights)
    assert net[1].direction is not direction


RECIPE = Recipe("small", Net("shapes_cnn"), TrainingData("shapes"), epochs=1)


@pytest.mark.parametrize("name", [name for name, kind in LOSSES.items() if issubclass(kind, CertifiedLoss)])
def test_networks_without_a_bound_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = LOSSES[name](36 / 255)  # type: ignore[call-arg]
    monkeypatch.setitem(NETS, "dropping", lambda classes: LipschitzNet(nn.Dropout(), nn.Flatten(), nn.Linear(12, classes)))
    for net, message in (
        ("shapes_cnn", "`loss` needs a network with `margin_norms`, which shapes_cnn does not have: choose liresnet"),
        ("dropping", "`loss` needs layers with a Lipschitz constant in training, which Dropout of dropping has not"),
    ):
        with pytest.raises(RecipeError, match=message) as caught:
            check_recipe(replace(RECIPE, net=Net(net), loss=loss))
        assert len(caught.value.problems) == 1
    check_recipe(replace(RECIPE, net=Net("centroid_net" if name == "centroid_emma" else "liresnet"), loss=loss))


@pytest.mark.parametrize(
    ("loss", "where"),
    [
        (GloroEmma(-1.0), "loss.epsilon"),
        (GloroEmma(math.nan), "loss.epsilon"),
        (GloroCe(0.1, power_steps=0), "loss.power_steps"),
        (GloroTrades(0.1, beta=-1), "loss.beta"),
        (GloroLa(0.1, temperature=0), "loss.temperature"),
    ],
)
def test_bad_settings_are_named(loss: CertifiedLoss, where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check_recipe(replace(RECIPE, net=Net("liresnet"), loss=loss))
    assert [problem.where for problem in caught.value.problems] == [where]


def test_logit_annealing_without_offset_and_focus_is_emma() -> None:
    net = small_net()
    plain = GloroLa(EPSILON, power_steps=STEPS, offset=0.0, temperature=1.0, gamma=0.0)
    other = GloroEmma(EPSILON, power_steps=STEPS)
    assert plain(batch_for(net, plain)).total.item() == pytest.approx(other(batch_for(net, other)).total.item())
    fit = cross_entropy(net(IMAGES), labels_of(net)).item()
    assert number(plain(batch_for(net, plain)).terms["cross_entropy"]) == pytest.approx(fit)


def test_trades_with_beta_1_is_the_cross_entropy_over_the_classes_and_bottom() -> None:
    net = small_net()
    losses = [GloroCe(EPSILON, Constant(), STEPS), *(GloroTrades(EPSILON, Constant(), STEPS, beta) for beta in (1.0, 2.0))]
    plain, same, other = (number(loss(batch_for(net, loss)).total) for loss in losses)
    assert plain == pytest.approx(same, rel=1e-12)
    assert plain != pytest.approx(other, rel=1e-2)
