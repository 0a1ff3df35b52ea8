"""What one step does: its attack, the weights that it moves and its log, against numbers written out by hand."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from toy_training import weights_of

from locality.data.dataset import load_dataset
from locality.data.sources import shapes
from locality.perturbation import random_in_ball
from locality.training import loop, step
from locality.training.batches import TrainingImages
from locality.training.inner_attack import InnerAttack, Objective, perturbed
from locality.training.loop import train
from locality.training.losses import LOSSES
from locality.training.losses.adversarial import Adversarial, FastAdversarial, OneStepAttack
from locality.training.losses.alp import Alp
from locality.training.losses.mart import Mart
from locality.training.losses.split import AttackedLoss
from locality.training.losses.trades import Trades
from locality.training.network import Weights
from locality.training.new_model import new_model
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.training.regularisers import REGULARISERS
from locality.training.regularisers.logit_squeezing import LogitSqueezing
from locality.training.run_state import RunState
from locality.training.schedules import Linear
from locality.training.step import Loss, LossValue, TrainingBatch, merged
from locality.training.step_size import Constant
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.types import Norm, Threat

# Two steps per epoch.
PLAIN = Recipe(
    name="steps",
    net=Net("shapes_cnn"),
    data=TrainingData("shapes", limit=32),
    epochs=1,
    batch_size=16,
    optimizer=Optimizer("sgd", learning_rate=0.1, momentum=0.0),
    step_size=Constant(),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 100)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[RunState]:
    """Copies of the state after each step."""
    copies: list[RunState] = []
    monkeypatch.setattr(loop, "write_state", lambda state, path: copies.append(copy.deepcopy(state)))
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    return copies


def beginning(recipe: Recipe) -> dict[str, Tensor]:
    return new_model(recipe, load_dataset("shapes", split="train", limit=32)).net.state_dict()


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in log_of(folder)]


@pytest.mark.parametrize(
    ("loss", "radii", "steps", "size"),
    [
        # A random start within the whole ball, the recipe's steps, in units of the ball.
        (Adversarial(InnerAttack(0.04, steps=3, step_size=0.3, warm_up=0.5)), [0.02, 0.04, 0.04, 0.04], 3, 0.3),
        (Adversarial(InnerAttack(0.8, "l2", steps=2, step_size=0.7, warm_up=0.5)), [0.4, 0.8, 0.8, 0.8], 2, 0.7),
        # One step of 1.25 ε.
        (FastAdversarial(OneStepAttack(0.04, warm_up=0.5)), [0.02, 0.04, 0.04, 0.04], 1, 1.25),
        # A start next to the image, and never outside the ball.
        (Trades(InnerAttack(0.04, steps=3, step_size=0.3, warm_up=0.5)), [0.001] * 4, 3, 0.3),
        (Trades(InnerAttack(0.0012, steps=2, warm_up=0.5)), [0.0006, 0.001, 0.001, 0.001], 2, 0.7),
        (Mart(InnerAttack(0.04, steps=3, step_size=0.3, warm_up=0.5)), [0.001] * 4, 3, 0.3),
        (Alp(InnerAttack(0.04, steps=3, step_size=0.3, warm_up=0.5)), [0.02, 0.04, 0.04, 0.04], 3, 0.3),
    ],
    ids=["at", "at l2", "fast_at", "trades", "trades with a small ball", "mart", "alp"],
)
def test_attacks_are_the_recipes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: AttackedLoss | FastAdversarial,
    radii: list[float],
    steps: int,
    size: float,
) -> None:
    """Over four epochs, the first half of which warm up: half of ε, then all of it."""
    starts: list[tuple[float, Norm, Sequence[int], Tensor]] = []
    attacks: list[tuple[Tensor, Threat, int, float]] = []

    def start_spy(images: Tensor, seeds: Sequence[int], radius: float, norm: Norm) -> Tensor:
        points = random_in_ball(images, seeds, radius, norm)
        starts.append((radius, norm, seeds, points))
        return points

    def attack_spy(
        logits: Callable[[Tensor], Tensor],
        images: Tensor,
        objective: Objective,
        start: Tensor,
        threat: Threat,
        steps: int,
        step_size: float,
    ) -> Tensor:
        attacks.append((start, threat, steps, step_size))
        return perturbed(logits, images, objective, start, threat, steps, step_size)

    monkeypatch.setattr(step, "random_in_ball", start_spy)
    monkeypatch.setattr(step, "perturbed", attack_spy)
    train(replace(PLAIN, epochs=4, loss=loss), tmp_path, device="cpu")
    epsilons = [share * loss.threat.radius for share in (0.5, 0.5, 1, 1, 1, 1, 1, 1)]
    assert [threat.radius for _, threat, _, _ in attacks] == pytest.approx(epsilons)
    assert {(threat.norm, count) for _, threat, count, _ in attacks} == {(loss.threat.norm, steps)}
    assert [step_size for *_, step_size in attacks] == pytest.approx([size * epsilon for epsilon in epsilons])
    assert [start[0] for start in starts] == pytest.approx([radius for radius in radii for _ in range(2)])
    assert {start[1] for start in starts} == {loss.threat.norm}
    assert all(attack[0] is start[3] for attack, start in zip(attacks, starts, strict=True))
    assert len({seed for start in starts for seed in start[2]}) == 8 * 16  # every image of every epoch has its own
    assert [line["epsilon"] for line in log_of(tmp_path)] == pytest.approx(epsilons)


def test_standard_training_attacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "perturbed", lambda *_: pytest.fail("an attack"))
    train(PLAIN, tmp_path, device="cpu")


@dataclass(frozen=True)
class Flat:
    """A loss without a slope."""

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        return LossValue(clean.logits.sum() * 0, {}, clean=clean)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_weight_decay_shrinks_matrices_and_kernels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Literal["sgd", "adamw"]
) -> None:
    """With a loss that is flat, a step is nothing but decay: w ← (1 − learning rate · decay) w."""

    monkeypatch.setitem(LOSSES, "flat", Flat)
    recipe = replace(PLAIN, loss=Flat(), optimizer=replace(PLAIN.optimizer, name=name, weight_decay=0.5))
    trained = train(recipe, tmp_path, device="cpu")
    begun = dict(new_model(recipe, trained.data).named_parameters())
    assert {value.dim() for value in begun.values()} == {1, 2, 4}
    for key, value in trained.model.named_parameters():
        torch.testing.assert_close(value, begun[key] * 0.95**2 if value.dim() > 1 else begun[key])
    assert [line["learning_rate"] for line in log_of(tmp_path)] == [0.1, 0.1]


def test_a_step_of_plain_descent_by_hand(tmp_path: Path, states: list[RunState]) -> None:
    """w ← w − learning rate · gradient, of the first batch, worked out with nothing of the loop."""
    recipe = replace(PLAIN, data=TrainingData("shapes", limit=16))
    trained = train(recipe, tmp_path, device="cpu")
    images = TrainingImages(trained.data, Augmentation(), recipe.seed)
    model = new_model(recipe, trained.data).train()
    batch = torch.stack([images[0, index].image for index in range(16)])  # in any order: it is all there is
    loss = nn.functional.cross_entropy(model(batch), torch.tensor([images[0, index].label for index in range(16)]))
    loss.backward()
    assert losses(tmp_path) == pytest.approx([loss.item()], rel=1e-5)
    for name, value in model.net.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(states[0].weights[name], value.detach() - 0.1 * value.grad, rtol=1e-4, atol=1e-5)


def test_clipping_bounds_the_length_of_a_step(tmp_path: Path, states: list[RunState]) -> None:
    recipe = replace(PLAIN, optimizer=replace(PLAIN.optimizer, clip_norm=0.01))
    train(recipe, tmp_path, device="cpu")
    names = [name for name, _ in new_model(recipe, load_dataset("shapes", split="train", limit=2)).net.named_parameters()]
    begun = beginning(recipe)
    moved = torch.cat([(states[0].weights[name] - begun[name]).flatten() for name in names])
    assert float(moved.norm()) == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_a_regulariser_is_added_with_its_weight(tmp_path: Path) -> None:
    squeezed = replace(PLAIN, regularisers={"logit_squeezing": LogitSqueezing(0.3)})
    without = train(PLAIN, tmp_path / "without", device="cpu")
    added = train(squeezed, tmp_path / "with", device="cpu")
    first, plain = log_of(tmp_path / "with")[0], log_of(tmp_path / "without")[0]
    assert first["logit_squeezing"] > 1e-4
    assert first["logit_squeezing_weight"] == 0.3
    assert first["cross_entropy"] == plain["cross_entropy"] == plain["loss"]
    assert first["loss"] - plain["loss"] == pytest.approx(0.3 * first["logit_squeezing"], rel=1e-3)
    assert "logit_squeezing" not in plain
    # Its gradient counts, too.
    assert any(
        not torch.allclose(one, other)
        for one, other in zip(added.model.parameters(), without.model.parameters(), strict=True)
    )


def test_the_weight_of_a_regulariser_follows_its_schedule(tmp_path: Path) -> None:
    squeezed = replace(PLAIN, epochs=2, regularisers={"logit_squeezing": LogitSqueezing(0.4, Linear())})
    train(squeezed, tmp_path, device="cpu")
    lines = log_of(tmp_path)
    assert [line["logit_squeezing_weight"] for line in lines] == pytest.approx([0, 0.1, 0.2, 0.3])
    for line in lines:
        expected = line["cross_entropy"] + line["logit_squeezing_weight"] * line["logit_squeezing"]
        assert line["loss"] == pytest.approx(expected, rel=1e-6)


# The regularisers of centroids need a network with centroids.
@pytest.mark.parametrize("name", [name for name in REGULARISERS if name not in ("pull", "push")])
def test_a_regulariser_of_weight_0_changes_nothing(tmp_path: Path, name: str) -> None:
    regulariser: Any = REGULARISERS[name]
    none = train(replace(PLAIN, regularisers={name: regulariser(weight=0.0)}), tmp_path / "0", device="cpu")
    without = train(PLAIN, tmp_path / "without", device="cpu")
    assert torch.equal(weights_of(none.model), weights_of(without.model))


@dataclass(frozen=True)
class Elsewhere:
    """Weights at a fixed offset."""

    offset: float = 0.05

    def __call__(self, batch: TrainingBatch, loss: Loss, weights: Weights) -> Weights:
        return {name: value + self.offset for name, value in weights.items()}


def test_a_shift_gives_the_gradient_at_the_shifted_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[RunState]
) -> None:
    """w ← w − learning rate · ∇L(w + offset), worked out with a copy of the network that has the shifted weights."""
    monkeypatch.setitem(WEIGHT_SHIFTS, "elsewhere", Elsewhere)
    recipe = replace(PLAIN, data=TrainingData("shapes", limit=16), weight_shift=Elsewhere())
    trained = train(recipe, tmp_path, device="cpu")
    images = TrainingImages(trained.data, Augmentation(), recipe.seed)
    model = new_model(recipe, trained.data).train()
    begun = {name: value.detach().clone() for name, value in model.net.named_parameters()}
    with torch.no_grad():
        for value in model.net.parameters():
            value.add_(0.05)
    batch = torch.stack([images[0, index].image for index in range(16)])
    loss = nn.functional.cross_entropy(model(batch), torch.tensor([images[0, index].label for index in range(16)]))
    loss.backward()
    assert losses(tmp_path) == pytest.approx([loss.item()], rel=1e-5)
    for name, value in model.net.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(states[0].weights[name], begun[name] - 0.1 * value.grad, rtol=1e-4, atol=1e-5)
    # BatchNorm has seen the batch once, at the shifted weights.
    buffers = dict(model.net.named_buffers())
    for name in ("0.1.running_mean", "0.1.num_batches_tracked"):
        torch.testing.assert_close(states[0].weights[name], buffers[name])


def test_the_log_has_every_term_and_its_accuracies(tmp_path: Path) -> None:
    common = ["step", "epoch", "loss", "cross_entropy"]
    for loss, terms, accuracies in (
        (PLAIN.loss, [], ["clean_accuracy"]),
        (Adversarial(InnerAttack(0.01)), ["epsilon"], ["attacked_accuracy"]),
        (Trades(InnerAttack(0.01)), ["kl_divergence", "epsilon"], ["clean_accuracy", "attacked_accuracy"]),
    ):
        folder = tmp_path / type(loss).__name__
        train(replace(PLAIN, epochs=2, loss=loss), folder, device="cpu")
        lines = log_of(folder)
        assert list(lines[0]) == [*common, *terms, *accuracies, "learning_rate"]
        assert [(line["step"], line["epoch"]) for line in lines] == [(1, 1), (2, 1), (3, 2), (4, 2)]
        assert all(0 <= line[name] <= 1 for line in lines for name in accuracies)


@pytest.mark.parametrize("name", ["loss", "step", "learning_rate", "fit"])
def test_two_terms_of_one_name_are_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=f"`terms` must be names that no other term of the log has, got '{name}'"):
        merged({"loss": 1.0, "learning_rate": 0.1}, {"fit": 2.0}, {name: 3.0})


def test_terms_in_the_log_have_no_graph() -> None:
    weight = torch.ones((), requires_grad=True)
    terms = merged({"loss": weight * 2}, {"fit": 1.0})
    assert not any(value.requires_grad for value in terms.values() if isinstance(value, Tensor))


def test_precisions_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bfloat16 step runs after a float32 one and before another, and is coarser."""
    kinds: list[torch.dtype] = []
    real = torch.nn.functional.linear

    def spy(*arguments: Tensor) -> Tensor:
        outputs = real(*arguments)
        kinds.append(outputs.dtype)
        return outputs

    monkeypatch.setattr(torch.nn.functional, "linear", spy)
    one = replace(PLAIN, data=TrainingData("shapes", limit=16))
    whole = train(one, tmp_path / "no", device="cpu")
    coarse = train(replace(one, precision="bf16"), tmp_path / "bf16", device="cpu")
    again = train(one, tmp_path / "again", device="cpu")
    assert kinds == [torch.float32, torch.bfloat16, torch.float32]
    first, second, third = (
        torch.cat([value.flatten() for value in run.model.parameters()]) for run in (whole, coarse, again)
    )
    assert torch.equal(first, third)
    assert not torch.equal(first, second)
    assert first.dtype == second.dtype == torch.float32
    torch.testing.assert_close(first, second, rtol=0, atol=0.02)
