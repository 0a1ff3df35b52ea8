"""Runs of the loop: cut and resumed, split over processes, averaged, and what they leave of the caller's state."""

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from locality.data.sources import shapes
from locality.training import loop
from locality.training.loop import train
from locality.training.recipe import AugmentationPart, DataPart, LossPart, OptimizerPart, Recipe, read_recipe
from locality.zoo.catalog import CHECKPOINTS
from locality.zoo.load import load_model

SMALL = Recipe(
    name="small",
    net="shapes_cnn",
    data=DataPart("shapes", limit=48),
    epochs=2,
    batch_size=16,
    ema=0.9,
    augmentation=AugmentationPart(flip=True, shift=2),
    loss=LossPart("at", epsilon=0.02, warm_up=0.5),
)
TEXT = """
name = "small"
net = "{net}"
epochs = 2
batch_size = 16
data = {{ name = "shapes", limit = 48 }}
augmentation = {{ flip = true, shift = 2 }}
loss = {{ name = "{loss}", epsilon = 0.02, warm_up = 0.5 }}
optimizer = {{ name = "sgd", learning_rate = 0.02 }}
"""
# Writes its state after every step and dies of SIGKILL in the middle of the run, like a power cut.
KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from locality.data import shapes
from locality.training import loop
from locality.training.recipe import read_recipe
shapes.DEFAULT_COUNT["train"] = 100
torch.set_num_threads(1)
loop.SECONDS_BETWEEN_STATES = 0.0
loop.STEPS_BETWEEN_LINES = 1
def stop(done, total):
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
loop.train(read_recipe(sys.argv[1]), Path(sys.argv[2]), stop, device="cpu")
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 100)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten().float() for value in model.state_dict().values()])


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_killed_run_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("ema = 0.9\n" + TEXT.format(net="shapes_cnn", loss="at"), encoding="utf-8")
    killed = subprocess.run([sys.executable, "-c", KILLED, path, tmp_path / "cut"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with open(tmp_path / "cut" / "log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 5, "loss": 99.0}\n{"step": 6, "lo')  # what a kill a moment later could have left
    steps: list[int] = []
    recipe = read_recipe(path)
    resumed = train(recipe, tmp_path / "cut", lambda done, total: steps.append(done), device="cpu")
    whole = train(recipe, tmp_path / "whole", device="cpu")
    # The state is written after the progress is told, so step 4 is done again.
    assert steps == [4, 5, 6]
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert log_of(tmp_path / "cut") == log_of(tmp_path / "whole")
    again = train(recipe, tmp_path / "whole", lambda done, total: pytest.fail("nothing is left to do"), device="cpu")
    assert torch.equal(weights(again.model), weights(whole.model))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["at", "trades"])
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT.format(net="tiny_vit", loss=loss), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command = [*launch, "--master-port", str(port), __file__, str(path), str(tmp_path / "two")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, ran.stderr
    train(read_recipe(path), tmp_path / "one", device="cpu")
    one, two = log_of(tmp_path / "one"), log_of(tmp_path / "two")
    assert [line["step"] for line in one] == [line["step"] for line in two] == [1, 2, 3, 4, 5, 6]
    for left, right in zip(one, two, strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-4)
    assert one[0]["loss"] != pytest.approx(one[-1]["loss"], abs=1e-2)  # or equality would say little


def test_training_learns(tmp_path: Path) -> None:
    recipe = replace(
        SMALL,
        epochs=12,
        loss=LossPart(),
        ema=0.0,
        augmentation=AugmentationPart(),
        optimizer=OptimizerPart(learning_rate=3e-3),
    )
    train(recipe, tmp_path, device="cpu")
    lines = log_of(tmp_path)
    assert lines[0]["loss"] > 1.9
    assert lines[-1]["loss"] < 1.0
    assert lines[-1]["learning_rate"] < 1e-6 < max(line["learning_rate"] for line in lines)


def test_attacks_run_in_eval_mode_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    original = loop.perturbed

    def spy(model: nn.Module, *rest: object) -> torch.Tensor:
        modes.append(model.training)
        return original(model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "perturbed", spy)
    one = replace(SMALL, epochs=1)
    train(one, tmp_path / "eval", device="cpu")
    train(replace(one, loss=replace(one.loss, attack_mode="train")), tmp_path / "train", device="cpu")
    assert modes == [False] * 3 + [True] * 3


def test_average_and_random_state(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    averaged = train(SMALL, tmp_path / "averaged", device="cpu")
    last = train(replace(SMALL, ema=0.0), tmp_path / "last", device="cpu")
    assert torch.equal(before, torch.get_rng_state())
    # The average lies between the first and the last weights, so it differs from the last.
    assert not torch.equal(weights(averaged.model), weights(last.model))
    assert log_of(tmp_path / "averaged") == log_of(tmp_path / "last")
    assert not averaged.model.training


def test_a_run_may_start_from_a_model(tmp_path: Path) -> None:
    shipped = load_model("shapes_cnn")
    untouched = replace(SMALL, epochs=0, start="shapes_cnn", ema=0.0)
    assert torch.equal(weights(train(untouched, tmp_path / "none", device="cpu").model), weights(shipped))
    from_name = train(replace(SMALL, start="shapes_cnn"), tmp_path / "name", device="cpu")
    train(
        replace(SMALL, start="shapes_cnn", loss=LossPart(), augmentation=AugmentationPart()),
        tmp_path / "plain",
        device="cpu",
    )
    assert log_of(tmp_path / "plain")[0]["accuracy"] == 1.0  # it knows what it knew
    # The same weights from a file.
    for ending in (".safetensors", ".json"):
        (tmp_path / f"own{ending}").write_bytes((CHECKPOINTS / f"shapes_cnn{ending}").read_bytes())
    from_file = train(replace(SMALL, start=str(tmp_path / "own.safetensors")), tmp_path / "file", device="cpu")
    assert torch.equal(weights(from_file.model), weights(from_name.model))
    # What is gone on with has long left the start.
    again = train(replace(SMALL, start="shapes_cnn"), tmp_path / "name", device="cpu")
    assert torch.equal(weights(again.model), weights(from_name.model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net": "shapes_vit"}, r"`start`: shapes_cnn is not a shapes_vit for 10 classes: .*Missing key"),
        ({"mean": (0.5, 0.5, 0.5)}, r"`start`: shapes_cnn has mean \(0.45, 0.45, 0.45\) .*give the recipe the same"),
        ({"start": "shapes_cn"}, "shapes_cnn"),
    ],
)
def test_a_start_that_does_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **({"start": "shapes_cnn"} | change)), tmp_path)


def test_what_cannot_go_on(tmp_path: Path) -> None:
    one = replace(SMALL, epochs=1)
    train(one, tmp_path, device="cpu")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(seed changed\)"):
        train(replace(one, seed=1), tmp_path, device="cpu")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(start changed\)"):
        train(replace(one, start="shapes_cnn"), tmp_path, device="cpu")
    started = replace(one, start="shapes_cnn")
    train(started, tmp_path / "started", device="cpu")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(start changed\)"):
        train(one, tmp_path / "started", device="cpu")
    (tmp_path / "state.pt").write_bytes(b"not a state")
    with pytest.raises(ValueError, match=r"state.pt` is not the state of a run.* delete it to begin anew"):
        train(one, tmp_path, device="cpu")
    with pytest.raises(ValueError, match="only 48 images"):
        train(replace(one, batch_size=64), tmp_path / "other", device="cpu")


def test_other_data_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(SMALL, epochs=1)
    train(one, tmp_path, device="cpu")
    path = tmp_path / "state.pt"
    written = path.read_bytes()
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 200)  # 48 of 200 are other images than 48 of 100
    with pytest.raises(ValueError, match=r"state.pt` belongs to other data .* or choose another --out"):
        train(one, tmp_path, device="cpu")
    assert path.read_bytes() == written
    # States of before the fingerprint was kept go on as they did.
    state = torch.load(path, weights_only=True)
    del state["data"]
    torch.save(state, path)
    train(one, tmp_path, lambda done, total: pytest.fail("nothing is left to do"), device="cpu")


def test_what_is_said_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`device` must be cpu, or left out .* got 'cuda:1': .*CUDA_VISIBLE_DEVICES"):
        train(SMALL, tmp_path / "a", device="cuda:1")
    with pytest.raises(ValueError, match=r"`loss.epsilon` must be at most 1 for linf"):
        train(replace(SMALL, loss=LossPart("at", epsilon=4.0)), tmp_path / "a", device="cpu")
    with pytest.raises(
        ValueError, match=r"`augmentation.shift` must be less than the side of an image, got 64 for .* 64×64"
    ):
        train(replace(SMALL, augmentation=AugmentationPart(shift=64)), tmp_path / "a", device="cpu")
    assert not (tmp_path / "a").exists()
    train(replace(SMALL, epochs=1, augmentation=AugmentationPart(shift=63)), tmp_path / "b", device="cpu")


def test_a_loss_that_blows_up_is_an_error(tmp_path: Path) -> None:
    wild = replace(SMALL, loss=LossPart(), optimizer=OptimizerPart("sgd", learning_rate=1e30))
    with pytest.raises(ValueError, match=r"the loss is .* lower `learning_rate`"):
        train(wild, tmp_path, device="cpu")


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 100
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
