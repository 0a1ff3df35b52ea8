"""What one step does: the attack it makes, the weights it moves and their average, against numbers written out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from locality.data.dataset import load_dataset
from locality.data.sources import shapes
from locality.training import loop
from locality.training.batches import TrainingImages
from locality.training.loop import new_model, train
from locality.training.losses import Outcome, TrainingBatch, logit_squeezing
from locality.training.recipe import AugmentationPart, DataPart, LossPart, OptimizerPart, Recipe
from locality.training.run_state import RunState

# Two steps an epoch.
PLAIN = Recipe(
    name="steps",
    net="shapes_cnn",
    data=DataPart("shapes", limit=32),
    epochs=1,
    batch_size=16,
    optimizer=OptimizerPart("sgd", learning_rate=0.1, momentum=0.0, schedule="constant"),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 100)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[RunState]:
    """Copies of the state after each step."""
    found: list[RunState] = []

    def note(state: RunState, path: Path) -> None:
        weights, average = ({name: value.clone() for name, value in t.items()} for t in (state.weights, state.average))
        found.append(replace(state, weights=weights, average=average))

    monkeypatch.setattr(loop, "write_state", note)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    return found


def beginning(recipe: Recipe) -> dict[str, Tensor]:
    return new_model(recipe, load_dataset("shapes", split="train", limit=32)).net.state_dict()


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("settings", "radii", "steps", "size"),
    [
        # A random start within the whole ball, the recipe's steps, in units of the ball.
        (LossPart("at", epsilon=0.04, steps=3, step_size=0.3, warm_up=0.5), [0.02, 0.04, 0.04, 0.04], 3, 0.3),
        (LossPart("at", "l2", epsilon=0.8, steps=2, step_size=0.7, warm_up=0.5), [0.4, 0.8, 0.8, 0.8], 2, 0.7),
        # One step of 1.25 ε, whatever the recipe says.
        (LossPart("fast_at", epsilon=0.04, steps=3, step_size=0.3, warm_up=0.5), [0.02, 0.04, 0.04, 0.04], 1, 1.25),
        # A start next to the image, and never outside the ball.
        (LossPart("trades", epsilon=0.04, steps=3, step_size=0.3, warm_up=0.5), [0.001] * 4, 3, 0.3),
        (LossPart("trades", epsilon=0.0012, steps=2, warm_up=0.5), [0.0006, 0.001, 0.001, 0.001], 2, 0.7),
    ],
    ids=["at", "at l2", "fast_at", "trades", "trades with a small ball"],
)
def test_attacks_are_the_recipes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: LossPart,
    radii: list[float],
    steps: int,
    size: float,
) -> None:
    """Over four epochs, the first half of which warm up: half of ε, then all of it."""
    starts: list[tuple[float, str, list[int], Tensor]] = []
    attacks: list[tuple[Tensor, float, str, int, float]] = []
    random_points, perturbed = loop.random_points, loop.perturbed

    def start_spy(images: Tensor, seeds: list[int], radius: float, norm: str) -> Tensor:
        points = random_points(images, seeds, radius, norm)  # type: ignore[arg-type]
        starts.append((radius, norm, seeds, points))
        return points

    def attack_spy(
        model: nn.Module,
        images: Tensor,
        objective: object,
        start: Tensor,
        epsilon: float,
        norm: str,
        steps: int,
        step_size: float,
    ) -> Tensor:
        attacks.append((start, epsilon, norm, steps, step_size))
        return perturbed(model, images, objective, start, epsilon, norm, steps, step_size)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "random_points", start_spy)
    monkeypatch.setattr(loop, "perturbed", attack_spy)
    train(replace(PLAIN, epochs=4, loss=settings), tmp_path, device="cpu")
    epsilons = [share * settings.epsilon for share in (0.5, 0.5, 1, 1, 1, 1, 1, 1)]
    assert [attack[1] for attack in attacks] == pytest.approx(epsilons)
    assert [attack[2:4] for attack in attacks] == [(settings.norm, steps)] * 8
    assert [attack[4] for attack in attacks] == pytest.approx([size * epsilon for epsilon in epsilons])
    assert [start[0] for start in starts] == pytest.approx([radius for radius in radii for _ in range(2)])
    assert {start[1] for start in starts} == {settings.norm}
    assert all(attack[0] is start[3] for attack, start in zip(attacks, starts, strict=True))
    assert len({seed for start in starts for seed in start[2]}) == 8 * 16  # every image of every epoch draws its own


def test_standard_training_attacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "perturbed", lambda *_: pytest.fail("an attack"))
    train(PLAIN, tmp_path, device="cpu")


def test_the_average_forgets_fast_at_first(tmp_path: Path, states: list[RunState]) -> None:
    """Decay min(ema, (1 + n)/(10 + n)): 1/10 in the first step, where 2/11 in the second is above 0.15 already."""
    recipe = replace(PLAIN, data=DataPart("shapes", limit=48), ema=0.15)
    trained = train(recipe, tmp_path, device="cpu")
    expected = {name: value.double() for name, value in beginning(recipe).items()}
    for state, decay in zip(states, (0.1, 0.15, 0.15), strict=True):
        for name, value in state.weights.items():
            mixed = decay * expected[name] + (1 - decay) * value.double()
            expected[name] = mixed if value.is_floating_point() else value.double()  # BatchNorm's counter is no average
            torch.testing.assert_close(state.average[name].double(), expected[name], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trained.model.net.state_dict(), states[-1].average)
    gap = max(float((states[-1].weights[name] - value).abs().max()) for name, value in states[-1].average.items())
    assert gap > 1e-3  # or any decay would do


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_weight_decay_shrinks_matrices_and_kernels_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With a loss that is flat, a step is nothing but decay: w ← (1 − learning rate · decay) w."""

    def flat(batch: TrainingBatch) -> Outcome:
        logits = batch.model(batch.images)
        return Outcome(logits.sum() * 0, logits)

    monkeypatch.setitem(loop.LOSSES, "standard", flat)
    recipe = replace(PLAIN, optimizer=replace(PLAIN.optimizer, name=name, weight_decay=0.5))  # type: ignore[arg-type]
    trained = train(recipe, tmp_path, device="cpu")
    begun = dict(new_model(recipe, trained.data).named_parameters())
    assert {value.dim() for value in begun.values()} == {1, 2, 4}
    for key, value in trained.model.named_parameters():
        torch.testing.assert_close(value, begun[key] * 0.95**2 if value.dim() > 1 else begun[key])
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["learning_rate"] for line in lines] == [0.1, 0.1]


def test_a_step_of_plain_descent_by_hand(tmp_path: Path, states: list[RunState]) -> None:
    """w ← w − learning rate · gradient, of the first batch, worked out with nothing of the loop."""
    recipe = replace(PLAIN, data=DataPart("shapes", limit=16))
    trained = train(recipe, tmp_path, device="cpu")
    images = TrainingImages(trained.data, AugmentationPart(), recipe.seed)
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


def test_a_regulariser_is_added_with_its_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[float] = []

    def spy(batch: TrainingBatch, logits: Tensor) -> Tensor:
        value = logit_squeezing(batch, logits)
        values.append(value.item())
        return value

    monkeypatch.setitem(loop.REGULARISERS, "logit_squeezing", spy)
    without = train(PLAIN, tmp_path / "without", device="cpu")
    assert values == []
    added = train(replace(PLAIN, regularisers={"logit_squeezing": 0.3}), tmp_path / "with", device="cpu")
    assert values[0] > 1e-4
    first, begun = losses(tmp_path / "with")[0], losses(tmp_path / "without")[0]
    assert first - begun == pytest.approx(0.3 * values[0], rel=1e-3)
    # Its gradient counts, too.
    assert any(
        not torch.allclose(one, other)
        for one, other in zip(added.model.parameters(), without.model.parameters(), strict=True)
    )


def test_precisions_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bfloat16 step runs after a float32 one and before another, and is coarser."""
    kinds: list[torch.dtype] = []
    real = torch.nn.functional.linear

    def spy(*given: Tensor) -> Tensor:
        found = real(*given)
        kinds.append(found.dtype)
        return found

    monkeypatch.setattr(torch.nn.functional, "linear", spy)
    one = replace(PLAIN, data=DataPart("shapes", limit=16))
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
