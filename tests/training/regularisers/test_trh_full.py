"""The trace over all layers: value and gradient against the full Hessian, with all sign vectors enumerated."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from curvature_networks import block_traces
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax
from toy_training import START, batch_of, network_of, normalised_net, run_in_two_processes

from locality.data.sources import shapes
from locality.training import loop
from locality.training.batches import BatchKeys, TrainingImages, collate
from locality.training.inner_attack import InnerAttack
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.standard import Standard
from locality.training.losses.trades import Trades
from locality.training.network import FeatureModel, Network
from locality.training.new_model import beginning, new_model
from locality.training.recipe import RecipeError, read_recipe, recipe_from
from locality.training.regularisers.trh_full import TrhFull, squared_gradient
from locality.training.schedules import Linear, Moment
from locality.training.step import LossValue, TrainingBatch
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential

CLASSES, COUNT = 3, 2
ATTACK = InnerAttack(epsilon=0.05)


def small_net() -> FeatureSequential:
    torch.manual_seed(0)
    return FeatureSequential(
        nn.Conv2d(3, 3, 1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(12, 4),
        nn.ReLU(inplace=True),
        nn.Linear(4, CLASSES),
    ).double()


def images() -> Tensor:
    return torch.rand(COUNT, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def batch_with(network: Network, loss: Standard | Adversarial | Trades) -> TrainingBatch:
    return batch_of(network, images(), torch.tensor([0, 2]), loss)


def all_signs(passes: int = 1) -> list[list[Tensor]]:
    """Every assignment of signs to the logits of `passes` passes."""
    rows = [
        torch.tensor(values, dtype=torch.float64).view(COUNT, CLASSES) for values in product((-1, 1), repeat=COUNT * CLASSES)
    ]
    if passes == 1:
        return [[row] for row in rows]
    # Not all pairs, but all signs of each pass, and with every second one its opposite: products of the two cancel.
    return [[first, sign * second] for first, second in zip(rows, rows[5:] + rows[:5], strict=True) for sign in (1, -1)]


def weights_in(network: Network) -> list[Tensor]:
    return [weight for weight in network.weights.values() if weight.dim() >= 2]


def mean_over_signs(logits: Tensor, network: Network) -> tuple[Tensor, list[Tensor]]:
    """The mean of the estimate over all signs, and of its gradient by all parameters."""
    values = [squared_gradient([(1.0, logits)], signs, weights_in(network)) for signs in all_signs()]
    mean = torch.stack(values).mean()
    return mean.detach(), list(torch.autograd.grad(mean, list(network.weights.values()), allow_unused=True))


def test_value_and_gradient_are_those_of_the_full_hessian() -> None:
    network = network_of(small_net())
    batch = batch_with(network, Standard())
    seen = Standard()(batch).clean
    assert seen is not None
    value, gradient = mean_over_signs(seen.logits, network)
    model = network.model
    assert float(value) == pytest.approx(float(block_traces(model, batch.images, batch.labels).sum()), rel=1e-9)

    parameters = {f"net.{name}": weight for name, weight in network.weights.items()}
    total = torch.zeros((), dtype=torch.float64)
    for name, weight in parameters.items():
        if weight.dim() < 2:
            continue

        def loss(flat: Tensor, name: str = name, weight: Tensor = weight) -> Tensor:
            replaced = parameters | {name: flat.view_as(weight)}
            return cross_entropy(functional_call(model, replaced, (batch.images,)), batch.labels)

        total = total + hessian(loss, weight.flatten(), create_graph=True).trace()
    expected = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    for one, other, parameter in zip(gradient, expected, parameters.values(), strict=True):
        torch.testing.assert_close(one if one is not None else torch.zeros_like(parameter), other, rtol=1e-9, atol=1e-9)
    assert float(expected[0].abs().max()) > 1e-3  # it reaches the first layer


def gauss_newton_trace(model: nn.Module, inputs: Tensor) -> Tensor:
    """The trace of JᵀΦJ / N over weights of two or more dimensions, the network in the mode that it is in."""
    total = torch.zeros((), dtype=torch.float64)
    for name, weight in dict(model.named_parameters()).items():
        if weight.dim() < 2:
            continue

        def logits(flat: Tensor, name: str = name, weight: Tensor = weight) -> Tensor:
            outputs: Tensor = functional_call(model, {name: flat.view_as(weight)}, (inputs,))
            return outputs

        slope = jacobian(logits, weight.detach().flatten())
        p = logits(weight.flatten()).softmax(1).detach()
        inner = p.diag_embed() - p[:, :, None] * p[:, None]
        total = total + torch.einsum("nkw,nkl,nlw->", slope, inner, slope) / len(inputs)
    return total


def test_with_batch_statistics_it_is_the_gauss_newton_trace_of_the_batch() -> None:
    network = network_of(normalised_net().double())
    batch = batch_with(network, Standard())
    seen = Standard()(batch).clean
    assert seen is not None
    value, _ = mean_over_signs(seen.logits, network)
    gauss_newton = gauss_newton_trace(network.model.train(), batch.images)
    assert float(value) == pytest.approx(float(gauss_newton), rel=1e-9)
    # Statistics of the batch depend on the weights: neither the Hessian's trace nor that with fixed statistics.
    curved = torch.zeros((), dtype=torch.float64)
    for name, weight in dict(network.model.named_parameters()).items():
        if weight.dim() < 2:
            continue

        def loss(flat: Tensor, name: str = name, weight: Tensor = weight) -> Tensor:
            return cross_entropy(functional_call(network.model, {name: flat.view_as(weight)}, (batch.images,)), batch.labels)

        curved = curved + hessian(loss, weight.detach().flatten()).trace()
    assert float(curved) != pytest.approx(float(value), rel=1e-3)
    assert float(gauss_newton_trace(network.model.eval(), batch.images)) != pytest.approx(float(value), rel=1e-3)


def test_it_follows_the_passes_of_the_loss() -> None:
    """AT: attacked images. TRADES: clean + β · attacked, by one backward pass with √β on the attacked logits."""
    network = network_of(small_net())
    weights = weights_in(network)
    for loss in (Standard(), Adversarial(ATTACK), Trades(ATTACK, beta=3.0)):
        batch = batch_with(network, loss)
        value = loss(batch)
        signs = [
            torch.randint(0, 2, (COUNT, CLASSES), generator=g) * 2 - 1 for g in [batch.generator("trh_full")] for _ in "ab"
        ]
        clean = [] if value.clean is None else [(1.0, value.clean.logits)]
        share = 3.0 if isinstance(loss, Trades) else 1.0
        attacked = [] if value.attacked is None else [(share, value.attacked.logits)]
        passes = clean + attacked
        expected = squared_gradient(passes, signs[: len(passes)], weights)
        assert float(TrhFull(1.0)(batch, value).detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    assert value.clean is not None
    assert value.attacked is not None
    both = [squared_gradient(passes, pair, weights, False) for pair in all_signs(2)]
    apart = [
        block_traces(network.model, shown, batch.labels).sum() for shown in (batch.images, batch.results["attacked images"])
    ]
    assert float(torch.stack(both).mean()) == pytest.approx(float(apart[0] + 3 * apart[1]), rel=1e-9)
    with pytest.raises(ValueError, match="`loss` must be one that makes a pass"):
        TrhFull(1.0)(batch_with(network, Standard()), LossValue(torch.zeros(()), {}))


def test_weight_0_adds_no_graph_and_draws_are_those_of_the_step() -> None:
    network = network_of(small_net())
    batch = batch_with(network, Standard())
    value = Standard()(batch)
    assert not TrhFull(0.0)(batch, value).requires_grad
    late = Linear(begin=0.0, end=1.0)
    assert not TrhFull(1.0, late)(batch, value).requires_grad  # its factor is 0 in the first step
    first = TrhFull(1.0)(batch, value)
    assert first.requires_grad
    assert float(first.detach()) == float(TrhFull(0.0)(batch, value))
    later = replace(batch, moment=replace(START, step=1))
    assert float(TrhFull(0.0)(later, value)) != float(first.detach())


def test_at_other_weights_the_gradient_reaches_the_network_s_own() -> None:
    network = network_of(small_net())
    shifted = {name: weight + 0.1 for name, weight in network.weights.items()}
    batch = replace(batch_with(network, Standard()), weights=shifted)
    penalty = TrhFull(1.0)(batch, Standard()(batch))
    gradient = torch.autograd.grad(penalty, weights_in(network))
    assert all(float(part.abs().max()) > 0 for part in gradient)


def test_confident_logits_have_finite_gradients() -> None:
    """√p is differentiable also where p rounds to 0."""
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[300.0, 0.0], [0.0, 300.0], [-300.0, 0.0]]))
    penalty = squared_gradient([(1.0, layer(torch.eye(2)))], [torch.ones(2, 3)], [layer.weight])
    (gradient,) = torch.autograd.grad(penalty, layer.weight)
    assert bool(torch.isfinite(gradient).all())
    assert float(log_softmax(layer(torch.eye(2)).detach(), 1).exp().min()) == 0


def test_a_transformer_is_one_sentence_before_the_run() -> None:
    table = {"name": "a", "net": {"name": "tiny_vit"}, "data": {"name": "shapes"}, "epochs": 1}
    with pytest.raises(RecipeError, match="piecewise linear in each layer, but tiny_vit has") as caught:
        recipe_from(table | {"regularisers": {"trh_full": {"weight": 0.1}}}, "a")
    assert len(caught.value.problems) == 1
    assert recipe_from(table | {"net": {"name": "tiny_resnet"}, "regularisers": {"trh_full": {"weight": 0.1}}}, "a")


RECIPE = """
name = "halves"
net = { name = "plain_net" }
epochs = 1
batch_size = 8
data = { name = "shapes", limit = 16 }
step_size = { name = "constant" }
optimizer = { name = "sgd", learning_rate = 0.1, momentum = 0 }
regularisers = { trh_full = { weight = 0.05 } }
"""


def plain_net(classes: int) -> FeatureSequential:
    """Without batch statistics, which halves of a batch do not share."""
    return FeatureSequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, classes))


@pytest.mark.slow
def test_two_processes_average_the_estimates_of_their_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of different processes do not meet in a probe: the number, and the step made of it, are means over both."""
    monkeypatch.setitem(NETS, "plain_net", plain_net)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 40)
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    run_in_two_processes(__file__, path, tmp_path / "two")
    lines = [json.loads(line) for line in (tmp_path / "two/log.jsonl").read_text(encoding="utf-8").splitlines()]
    recipe = read_recipe(path)
    data = beginning(recipe).data
    examples = TrainingImages(data, recipe.augmentation, recipe.seed)
    model = FeatureModel(new_model(recipe, data)).train()
    network = Network(model, model)
    halves = [BatchKeys(16, 8, 1, recipe.seed, process=process, processes=2) for process in (0, 1)]
    for step, keys in enumerate(zip(*halves, strict=True)):
        penalties: list[float] = []
        model.zero_grad()
        for half in keys:
            moment = Moment.of(step, 2, 1)
            pixels, labels, seeds = collate([examples[key] for key in half])
            batch = TrainingBatch(pixels, labels, seeds, moment, network, recipe.loss, network.weights, recipe.seed)
            value = recipe.loss(batch)
            penalty = TrhFull(0.05)(batch, value)
            penalties.append(penalty.item())
            ((value.total + 0.05 * penalty) / 2).backward()
        assert lines[step]["trh_full"] == pytest.approx(sum(penalties) / 2, rel=1e-4)
        assert penalties[0] != pytest.approx(penalties[1], rel=0.01)
        with torch.no_grad():
            for weight in network.weights.values():
                assert weight.grad is not None
                weight -= 0.1 * weight.grad
    state = torch.load(tmp_path / "two/state.pt", weights_only=True)
    for name, weight in network.weights.items():
        torch.testing.assert_close(state["weights"][name], weight.detach(), rtol=1e-4, atol=1e-6)


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    NETS["plain_net"] = plain_net
    shapes.DEFAULT_COUNT["train"] = 40
    loop.train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
