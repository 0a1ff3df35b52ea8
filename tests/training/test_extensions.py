"""One file, one line: a toy of each part of a training step, registered through the tables alone, runs end to end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import (
    Ascent,
    Backing,
    FeatureDecay,
    FirstAndLast,
    ToyLoss,
    run_in_two_processes,
    same_state,
    toy_net,
    weights_of,
)

from locality.data.sources import shapes
from locality.training import loop
from locality.training.averaging import AVERAGES
from locality.training.export import write_model
from locality.training.loop import train
from locality.training.losses import LOSSES
from locality.training.recipe import read_recipe, recipe_from
from locality.training.regularisers import REGULARISERS
from locality.training.step_size import STEP_SIZES
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.zoo.load import load_model
from locality.zoo.nets import NETS

TEXT = """
name = "toys"
net = { name = "toy", width = 6 }
epochs = 3
batch_size = 10
data = { name = "shapes", limit = 20 }
loss = { name = "toy", scale = 3 }
regularisers = { feature_decay = { weight = 0.1, schedule = { name = "linear" } } }
weight_shift = { name = "ascent", size = 0.01 }
optimizer = { name = "sgd", learning_rate = 0.5 }
average = { name = "first_and_last" }
step_size = { name = "backing", factor = 0.25 }
"""


def register() -> None:
    """One line per part."""
    NETS["toy"] = toy_net
    LOSSES["toy"] = ToyLoss
    REGULARISERS["feature_decay"] = FeatureDecay
    WEIGHT_SHIFTS["ascent"] = Ascent
    AVERAGES["first_and_last"] = FirstAndLast
    STEP_SIZES["backing"] = Backing


@pytest.fixture
def recipe_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    tables: list[dict[str, Any]] = [NETS, LOSSES, REGULARISERS, WEIGHT_SHIFTS, AVERAGES, STEP_SIZES]
    before = [dict(table) for table in tables]
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 20, "train": 40})
    register()
    path = tmp_path / "toys.toml"
    path.write_text(TEXT, encoding="utf-8")
    yield path
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_toys_train_and_write_a_card(recipe_path: Path, tmp_path: Path) -> None:
    recipe = read_recipe(recipe_path)
    trained = train(recipe, tmp_path / "run", device="cpu")
    lines = log_of(tmp_path / "run")
    assert list(lines[0]) == [
        "step",
        "epoch",
        "loss",
        "fit",
        "scale",
        "feature_decay",
        "feature_decay_weight",
        "clean_accuracy",
        "learning_rate",
    ]
    for line in lines:
        assert line["loss"] == pytest.approx(
            3 * line["fit"] + line["feature_decay_weight"] * line["feature_decay"], rel=1e-5
        )
    # The step size shrinks to a quarter after each step whose loss was above the previous one's.
    size = 0.5
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        size *= 0.25 if line["loss"] > before["loss"] else 1
        assert after["learning_rate"] == size
    assert size < 0.5  # or the rule would not have been used
    card = write_model(trained, recipe, tmp_path / "run")
    assert card.run is not None
    assert recipe_from(card.run.recipe, "card") == recipe
    assert (card.training, card.architecture, card.options) == ("toy", "net:toy", {"width": 6})
    loaded = load_model(tmp_path / "run" / "toys.safetensors")
    images = torch.rand(2, 3, 64, 64)
    assert torch.allclose(loaded(images), trained.model(images), atol=1e-2)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_toys_resume_exactly(recipe_path: Path, tmp_path: Path, steps: int) -> None:
    """The average, the step size and the network's buffer that no checkpoint has all go on where they stood."""

    def stop(done: int, total: int | None) -> None:
        if done == steps + 1:
            raise KeyboardInterrupt

    recipe = read_recipe(recipe_path)
    whole = train(recipe, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "interrupted", stop, device="cpu")
    resumed = train(recipe, tmp_path / "interrupted", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "interrupted") == log_of(tmp_path / "whole")
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("whole", "interrupted")]
    for state in states:
        del state["seconds"]
    assert same_state(*states)
    assert set(states[0]["memory"]) == {"average", "step_size", "buffers"}
    assert float(states[0]["memory"]["buffers"]["5.memory"]) != 1
    assert not any("memory" in name for name in states[0]["weights"])
    # BatchNorm sees each batch once, though the shift evaluates the loss a second time.
    assert int(states[0]["weights"]["2.num_batches_tracked"]) == 6


@pytest.mark.slow
def test_two_processes_shift_weights_alike(recipe_path: Path, tmp_path: Path) -> None:
    """Over two processes a shift sees the mean gradient and the same noise, so the loss curve is that of one process."""
    text = TEXT.replace('"toy", width = 6', '"tiny_vit", width = 24, depth = 2, heads = 2').replace("0.5 }", "0.05 }")
    recipe_path.write_text(text, encoding="utf-8")
    run_in_two_processes(__file__, recipe_path, tmp_path / "two")
    train(read_recipe(recipe_path), tmp_path / "one", device="cpu")
    for one, two in zip(log_of(tmp_path / "one"), log_of(tmp_path / "two"), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], abs=1e-4)
        assert one["learning_rate"] == two["learning_rate"]


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    register()
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 40
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
