"""RAT as published, against autograd, loops over classes, and label smoothing in closed form."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import hessian
from torch.nn.functional import cross_entropy, linear
from toy_training import batch_of, linear_net, network_of, normalised_net, number

from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.rat import Rat
from locality.training.losses.rat_labels import (
    LabelPasses,
    RatLabels,
    equal_label_smoothing,
    row_sums,
    soft_labels,
)
from locality.training.losses.rat_terms import RatTerms
from locality.training.losses.trades import Trades
from locality.training.network import FeatureModel, Network
from locality.training.recipe import RecipeError, recipe_from
from locality.training.step import Passes
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential, ForwardPass

# torch uses its own deprecated compiler when it first computes a Hessian.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
ATTACK = InnerAttack(0.1)
IMAGES = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 2, 1, 1])


def random_pass(classes: int = 5, images: int = 6, seed: int = 0) -> tuple[nn.Linear, Tensor, Tensor]:
    torch.manual_seed(seed)
    head = nn.Linear(7, classes).double()
    return head, torch.randn(images, 7, dtype=torch.float64), torch.randint(classes, (images,))


def two_passes(classes: int = 5) -> tuple[Passes, Tensor]:
    head, features, labels = random_pass(classes)
    others = features + 0.5 * torch.randn_like(features)
    return Passes(ForwardPass(features, head(features)), ForwardPass(others, head(others))), labels


@pytest.mark.parametrize("seed", range(3))
def test_row_sums_are_those_of_the_gradient_of_the_head(seed: int) -> None:
    head, features, labels = random_pass(seed=seed)
    logits = head(features)
    (gradient,) = torch.autograd.grad(cross_entropy(logits, labels), [head.weight])
    sums = row_sums(ForwardPass(features, logits), labels)
    assert torch.allclose(sums, gradient.sum(1), atol=1e-14)
    assert not sums.requires_grad
    assert abs(float(sums.sum())) < 1e-14  # probabilities and labels both sum to 1


def test_row_sums_are_0_after_layer_norm() -> None:
    """Its outputs sum to 0 as long as its weights are equal, so the labels of a new transformer are rounding errors."""
    head, features, labels = random_pass()
    normalised = nn.LayerNorm(7).double()(features)
    assert float(row_sums(ForwardPass(features, head(features)), labels).abs().max()) > 0.01
    assert float(row_sums(ForwardPass(normalised, head(normalised)), labels).abs().max()) < 1e-14


def test_logits_have_equal_row_sums() -> None:
    """∂g_j/∂W_j = z for every class: with g the logits, Equation 17 has nothing but uniform labels."""
    head, features, _ = random_pass()
    gradients = [torch.autograd.grad(head(features).mean(0)[j], [head.weight])[0][j] for j in range(5)]
    assert all(torch.allclose(gradient, features.mean(0)) for gradient in gradients)
    assert torch.allclose(
        soft_labels(torch.stack([gradient.sum() for gradient in gradients]).round(decimals=9)),
        soft_labels(torch.zeros(5).double()),
    )


def test_the_second_derivatives_of_the_paper_sum_to_0() -> None:
    """Equation 18 for the cross-entropy: for each class l, Σ_i Σ_jk ∂²CE / ∂W_li ∂W_jk = 0, whatever the network sees."""
    head, features, labels = random_pass()

    def loss(weight: Tensor) -> Tensor:
        return cross_entropy(linear(features, weight, head.bias.detach()), labels)

    second = torch.func.hessian(loss)(head.weight.detach())  # 5×7×5×7
    assert float(second.abs().max()) > 0.01
    assert float(second.sum((1, 2, 3)).abs().max()) < 1e-14


@pytest.mark.parametrize(("classes", "true_mass"), [(10, 0.2), (100, 0.02), (4, 0.5), (2, 1.0)])
def test_the_mass_of_the_label(classes: int, true_mass: float) -> None:
    """0.2 of 10 classes and 0.02 of 100 are the authors' numbers."""
    for gap in (torch.randn(classes), torch.zeros(classes), torch.eye(classes)[0]):
        table = soft_labels(gap)
        assert torch.allclose(table.diag(), torch.full((classes,), true_mass))
        assert torch.allclose(table.sum(1), torch.ones(classes), atol=1e-5)


def by_hand(passes: Passes, labels: Tensor, eta: float, beta: float, order: int, slip: bool) -> float:
    """The loss as loops over classes."""
    assert passes.clean is not None
    assert passes.attacked is not None
    classes, count = passes.clean.logits.shape[1], len(labels)
    clean, attacked = (
        [row.log_softmax(0).tolist() for row in seen.logits.detach()] for seen in (passes.clean, passes.attacked)
    )

    def sums(logs: list[list[float]], features: Tensor) -> list[float]:
        return [
            sum((math.exp(logs[b][j]) - (labels[b] == j).item()) * features[b].sum().item() for b in range(count)) / count
            for j in range(classes)
        ]

    def table(gap: list[float]) -> list[list[float]]:
        rows = []
        for label in range(classes):
            others = [0.0 if j == label else gap[j] - min(gap) for j in range(classes)]
            rows.append([2 / classes if j == label else (1 - 2 / classes) * others[j] / sum(others) for j in range(classes)])
        return rows

    def pull(rows: list[list[float]], logs: list[list[float]]) -> float:
        total = 0.0
        for b in range(count):
            total += sum(q * (math.log(q) - logs[b][j]) for j, q in enumerate(rows[int(labels[b])]) if q > 0)
        return total / count

    a, b = sums(clean, passes.clean.features), sums(attacked, passes.attacked.features)
    gaps = [[abs(x) - abs(y) for x, y in zip(a, b, strict=True)], [x * x - y * y for x, y in zip(a, b, strict=True)]]
    loss: float = -(1 - eta) * sum(clean[i][int(labels[i])] for i in range(count)) / count
    for i in range(count):
        loss += beta * sum(math.exp(x) * (x - y) for x, y in zip(clean[i], attacked[i], strict=True)) / count
    for number_, gap in enumerate(gaps[:order]):
        opposite = [-value for value in gap]
        for_attacked = opposite if slip and number_ == 1 else gap
        loss += eta / 2**number_ * (pull(table(for_attacked), attacked) + pull(table(opposite), clean)) / 2
    return loss


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("slip", [False, True])
def test_the_loss_by_hand(order: int, slip: bool) -> None:
    passes, labels = two_passes()
    loss = RatLabels(ATTACK, beta=3.0, eta=0.4, order=order, slip=slip)  # type: ignore[arg-type]
    value = loss.value(passes, labels)
    assert value.total.item() == pytest.approx(by_hand(passes, labels, 0.4, 3.0, order, slip), rel=1e-12)
    assert list(value.terms) == ["cross_entropy", *["first_term", "second_term"][:order], "kl_divergence"]
    assert value.fit is not None
    assert torch.allclose(value.total, value.fit + 3 * value.terms["kl_divergence"])


def test_the_slip_changes_the_second_term_of_attacked_images_alone() -> None:
    passes, labels = two_passes()
    right, slipped = (RatLabels(ATTACK, slip=slip).value(passes, labels).terms for slip in (False, True))
    assert number(right["first_term"]) == number(slipped["first_term"])
    assert number(right["second_term"]) != pytest.approx(number(slipped["second_term"]), rel=1e-3)


def test_eta_0_is_trades_bit_for_bit() -> None:
    """The whole loss, attack included, and its gradient."""
    results = []
    for loss in (RatLabels(ATTACK, eta=0.0), Trades(ATTACK)):
        network = network_of(normalised_net())
        total = loss(batch_of(network, IMAGES, LABELS, loss)).total
        results.append((total, torch.autograd.grad(total, list(network.weights.values()))))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(results[0][1], results[1][1], strict=True))


def test_the_base_at_is_at_with_the_same_labels() -> None:
    """η = 0 is AT, for a network without BatchNorm: the attacked images share a pass with the clean ones."""
    plain, at = RatLabels(ATTACK, eta=0.0, base="at"), Adversarial(ATTACK)
    ours = plain(batch_of(network_of(linear_net()), IMAGES, LABELS, plain))
    theirs = at(batch_of(network_of(linear_net()), IMAGES, LABELS, at))
    assert torch.allclose(ours.total, theirs.total, atol=1e-7)
    assert "kl_divergence" not in ours.terms
    passes, labels = two_passes()
    on_trades, on_at = (RatLabels(ATTACK, beta=0.0, base=base).value(passes, labels) for base in ("trades", "at"))
    assert passes.clean is not None
    assert passes.attacked is not None
    gap = cross_entropy(passes.attacked.logits, labels) - cross_entropy(passes.clean.logits, labels)
    assert torch.allclose(on_at.total - on_trades.total, 0.8 * gap)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("classes", "eta"), [(10, 0.2), (3, 0.9), (100, 0.3)])
def test_equal_gaps_are_label_smoothing(classes: int, eta: float, order: int) -> None:
    """Where clean and attacked images agree, all gaps are 0, and the gradient is that of label smoothing in closed form."""
    head, features, labels = random_pass(classes)
    weight = head.weight
    seen = ForwardPass(features, head(features))
    loss = RatLabels(ATTACK, beta=0.0, eta=eta, order=order)  # type: ignore[arg-type]
    (ours,) = torch.autograd.grad(loss.value(Passes(seen, seen), labels).total, [weight], retain_graph=True)
    # Clean images have the weight 1 − η + soft, attacked ones soft, with soft = η/2 + η/4, or η/2 with the first term.
    soft = eta * (0.5 if order == 1 else 0.75)
    smoothing = equal_label_smoothing(eta, classes, order)
    uniform = (1 - 2 / classes) / (1 - 1 / classes)  # 2/K on the label is this much smoothing
    expected = (1 - eta + soft) * cross_entropy(seen.logits, labels, label_smoothing=smoothing)
    expected = expected + soft * cross_entropy(seen.logits, labels, label_smoothing=uniform)
    (theirs,) = torch.autograd.grad(expected, [weight])
    assert torch.allclose(ours, theirs, atol=1e-12)


def test_the_smoothing_of_equal_strength() -> None:
    assert equal_label_smoothing(0.2, 10) == pytest.approx(0.1404, abs=1e-4)
    assert equal_label_smoothing(0.3, 10, order=1) == pytest.approx(0.1569, abs=1e-4)  # 0.15 · 0.8 / (0.9 · 0.85)
    assert equal_label_smoothing(0.0, 10) == 0
    assert equal_label_smoothing(0.5, 2) == 0  # the label keeps all its mass


@pytest.mark.parametrize("base", ["trades", "at"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_trace_is_that_of_the_hessian_with_constant_labels(base: str, bias: bool) -> None:
    head, features, labels = random_pass(images=1)
    others = features + 0.5 * torch.randn_like(features)
    loss = RatLabels(ATTACK, beta=2.0, eta=0.3, base=base)  # type: ignore[arg-type]
    passes = Passes(ForwardPass(features, head(features)), ForwardPass(others, head(others)))
    fixed = row_sums(passes.clean, labels), row_sums(passes.attacked, labels)  # type: ignore[arg-type]

    def total(weight: Tensor, offset: Tensor) -> Tensor:
        seen = LabelPasses(
            ForwardPass(features, linear(features, weight, offset)),
            ForwardPass(others, linear(others, weight, offset)),
            fixed,
        )
        return loss.value(seen, labels).total

    (of_weight, _), (_, of_bias) = hessian(total, argnums=(0, 1))(head.weight.detach(), head.bias.detach())
    expected = of_weight.reshape(35, 35).trace() + (of_bias.trace() if bias else 0)
    assert torch.allclose(loss.trace(passes, labels, bias), expected[None], atol=1e-10)


def test_row_sums_are_averaged_over_processes() -> None:
    """Labels of two processes with half a batch each are those of one process with the whole batch."""
    net = linear_net()
    loss = RatLabels(ATTACK)
    whole = loss.passes(batch_of(network_of(net), IMAGES, LABELS, loss))
    assert isinstance(whole, LabelPasses)
    assert whole.sums is not None
    locals_: list[Tensor] = []

    def remember(value: Tensor) -> Tensor:
        locals_.append(value)
        return value + 1

    model = FeatureModel(network_of(net).model).train()
    network = Network(model, model, remember)
    for part in (slice(0, 2), slice(2, 4)):
        batch = replace(batch_of(network, IMAGES[part], LABELS[part], loss), seeds=range(4)[part])
        passes = loss.passes(batch)
        assert isinstance(passes, LabelPasses)
        assert passes.sums is not None
        assert torch.equal(passes.sums[0], locals_[-2] + 1)  # what came back is what is used
    for kind in (0, 1):
        assert torch.allclose((locals_[kind] + locals_[2 + kind]) / 2, whole.sums[kind], atol=1e-6)


def test_labels_make_no_pass_more_than_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = FeatureModel.forward

    def spy(self: FeatureModel, images: Tensor) -> ForwardPass:
        sizes.append(len(images))
        return original(self, images)

    monkeypatch.setattr(FeatureModel, "forward", spy)
    # Clean logits and two steps of the attack on 4 images, then passes over clean and attacked ones.
    for loss, passes in (
        (Trades(ATTACK), 1),
        (RatLabels(ATTACK), 1),
        (Rat(ATTACK, antithetic=False), 2),
        (Rat(ATTACK), 3),
        (RatTerms(ATTACK), 3),
    ):
        sizes.clear()
        loss(batch_of(network_of(linear_net()), IMAGES, LABELS, loss))
        assert sizes == [4, 4, 4] + [8] * passes


@pytest.mark.parametrize(
    ("change", "where"),
    [({"eta": -0.1}, "eta"), ({"eta": 1.1}, "eta"), ({"eta": float("nan")}, "eta"), ({"order": 0}, "order")],
)
def test_mistakes_in_settings(change: dict[str, float], where: str) -> None:
    (problem,) = replace(RatLabels(ATTACK), **change).problems()  # type: ignore[arg-type]
    assert problem.where == where


def test_the_head_must_be_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The closed form of the row sums is that of a linear head."""
    monkeypatch.setitem(NETS, "bent", lambda classes: FeatureSequential(nn.Flatten(), nn.Softmax(1)))
    table = {"name": "a", "net": {"name": "bent"}, "epochs": 1, "data": {"name": "shapes"}}
    table["loss"] = {"name": "rat_labels", "attack": {"epsilon": 0.1}}
    with pytest.raises(
        RecipeError, match="`loss` needs a network whose head is a linear layer, but that of bent is Softmax"
    ):
        recipe_from(table, "test")
