"""Runs of certified training: a finite Lipschitz constant, exact resumption, several processes, the card's certificate."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_training import run_in_two_processes, same_state, weights_of

from locality.certified.lipschitz import Lipschitz
from locality.certified.verified_accuracy import verified_accuracy
from locality.data.dataset import load_dataset
from locality.data.sources import shapes
from locality.training import loop
from locality.training.averaging import Ema
from locality.training.export import write_model
from locality.training.loop import train
from locality.training.losses.emma import GloroEmma
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, read_recipe, recipe_from
from locality.training.recipe_parts import Net, TrainingData
from locality.training.weight_shifts.awp import Awp
from locality.types import Threat
from locality.zoo.load import load_model

SMALL = Recipe(
    name="small",
    net=Net("liresnet", {"depth": 2, "width": 8, "dimension": 16}),
    data=TrainingData("shapes", limit=16),
    epochs=3,
    batch_size=8,
    mean=(0.5, 0.5, 0.5),
    std=(1.0, 1.0, 1.0),
    loss=GloroEmma(0.1, power_steps=2),
    optimizer=Optimizer("nadam", learning_rate=3e-3, clip_norm=3.0, lookahead=2),
    average=Ema(0.9),
)
TEXT = """
name = "small"
net = { name = "liresnet", depth = 2, width = 8, dimension = 16 }
epochs = 2
batch_size = 8
mean = [0.5, 0.5, 0.5]
std = [1.0, 1.0, 1.0]
data = { name = "shapes", limit = 16 }
loss = { name = "gloro_emma", epsilon = 0.1, schedule = { name = "linear", begin = 0.5, end = 1.5 } }
optimizer = { name = "nadam", lookahead = 2, weight_decay = 0.01 }
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"train": 100, "eval": 40})


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_directions_and_slow_weights_resume_exactly(tmp_path: Path, steps: int) -> None:
    def stop(done: int, total: int | None) -> None:
        if done == steps + 1:
            raise KeyboardInterrupt

    whole = train(SMALL, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "interrupted", stop, device="cpu")
    resumed = train(SMALL, tmp_path / "interrupted", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "interrupted") == log_of(tmp_path / "whole")
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("whole", "interrupted")]
    for state in states:
        del state["seconds"]
    assert same_state(*states)
    assert "0.direction" in states[0]["memory"]["buffers"]
    assert not any("direction" in name for name in states[0]["weights"])
    assert all("lookahead_slow_buff" in entry for entry in states[0]["optimizer"]["state"].values())


def test_lookahead_goes_halfway_back() -> None:
    """Steps of −1 on one number: to −2, which becomes the slow weight, then to −4, and back to −3."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = Optimizer("sgd", learning_rate=1.0, momentum=0.0, lookahead=2)([weight])
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        seen.append(weight.item())
    assert seen == [-1, -2, -3, -3]


def test_nadam_is_that_of_torch() -> None:
    optimizer = Optimizer("nadam", learning_rate=0.01, weight_decay=0.1)([torch.nn.Parameter(torch.ones(2, 2))])
    assert isinstance(optimizer, torch.optim.NAdam)
    assert (optimizer.param_groups[0]["weight_decay"], optimizer.param_groups[0]["decoupled_weight_decay"]) == (0.1, True)


def test_sixty_steps_learn_with_a_finite_lipschitz_constant(tmp_path: Path) -> None:
    recipe = replace(SMALL, epochs=10, data=TrainingData("shapes", limit=100), batch_size=16)
    train(recipe, tmp_path, device="cpu")
    lines = log_of(tmp_path)
    assert len(lines) == 60
    assert all(math.isfinite(line["lipschitz"]) and line["lipschitz"] > 0 for line in lines)
    assert lines[0]["epsilon"] == pytest.approx(0.01)
    assert lines[-1]["epsilon"] == pytest.approx(0.2)
    assert max(line["certified_accuracy"] for line in lines) > 0
    assert sum(line["cross_entropy"] for line in lines[-6:]) < sum(line["cross_entropy"] for line in lines[:6])


def test_the_loss_may_be_evaluated_at_other_weights(tmp_path: Path) -> None:
    """AWP: the shift sees the Lipschitz constant, too, and leaves the directions of the step alone."""
    shifted = train(replace(SMALL, weight_shift=Awp(0.05)), tmp_path / "awp", device="cpu")
    still = train(replace(SMALL, weight_shift=Awp(0.0)), tmp_path / "still", device="cpu")
    plain = train(SMALL, tmp_path / "plain", device="cpu")
    assert torch.equal(weights_of(still.model), weights_of(plain.model))
    assert not torch.equal(weights_of(shifted.model), weights_of(plain.model))
    assert log_of(tmp_path / "awp")[0]["lipschitz"] != log_of(tmp_path / "plain")[0]["lipschitz"]


def test_the_card_states_what_the_written_weights_certify(tmp_path: Path) -> None:
    """With a tiny radius some decisions of few steps are certified; the share is that of the file, read back."""
    recipe = replace(SMALL, loss=GloroEmma(0.001), epochs=8)
    card = write_model(train(recipe, tmp_path, device="cpu"), recipe, tmp_path)
    assert card.kind == "certified"
    assert set(card.accuracy) == {"clean", "l2 0.001 pgd10", "linf 4/255 pgd10", "certified l2 0.001", "none", "swapped"}
    read = load_model(str(tmp_path / "small.safetensors"))
    data = load_dataset("shapes", split="eval", max_box_share=None)
    share = verified_accuracy(read, data, Lipschitz(), (0.001,)).accuracy(0.001)
    assert card.accuracy["certified l2 0.001"] == round(share, 4)
    assert 0 < share <= card.accuracy["l2 0.001 pgd10"] <= card.accuracy["clean"]


def test_the_recipe_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    recipe = read_recipe(path)
    assert recipe_from(recipe.as_table(), "table") == recipe
    shipped = read_recipe("tiny_liresnet")
    assert shipped.loss_name == "gloro_emma"
    assert shipped.threat == Threat("l2", 36 / 255)
    assert (shipped.mean, shipped.std) == ((0.5,) * 3, (1.0,) * 3)


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path) -> None:
    """The mean over the processes of a loss with K in it has the gradient of one process."""
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    run_in_two_processes(__file__, path, tmp_path / "two")
    train(read_recipe(path), tmp_path / "one", device="cpu")
    one, two = log_of(tmp_path / "one"), log_of(tmp_path / "two")
    assert len(one) == 4
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, rel=1e-4, abs=1e-4)


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 100
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
