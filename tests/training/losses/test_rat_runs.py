"""Runs with RAT's losses: interrupted and resumed, combined with AWP, split over processes."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from toy_training import same_state, toy_net, weights_of

from locality.data.sources import shapes
from locality.training import loop
from locality.training.loop import train
from locality.training.recipe import read_recipe
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential

TESTS = Path(__file__).parents[2]
TEXT = """
name = "noisy"
net = {{ name = "{net}" }}
epochs = 3
batch_size = 8
data = {{ name = "shapes", limit = 16 }}
loss = {{ name = "{loss}", attack = {{ epsilon = 0.02, warm_up = 0.5 }}, {settings} }}
regularisers = {{ logit_squeezing = {{ weight = 0.01 }} }}
weight_shift = {{ {shift} }}
average = {{ name = "ema", decay = 0.9 }}
optimizer = {{ name = "sgd", learning_rate = 0.02 }}
"""
NO_SHIFT, AWP = 'name = "none"', 'name = "awp", size = 0.01'
LOSSES = [
    ("rat", 'noise = { sigma = 0.1, unit = "relative" }'),
    ("rat", "noise = { sigma = 0.05 }, antithetic = false"),
    ("rat_terms", "noise = { sigma = 0.05 }"),
    ("rat_labels", "eta = 0.3"),
    ("rat_labels", 'base = "at", order = 1'),
]


def plain_net(classes: int) -> nn.Module:
    """Without normalisation, so that a batch may be divided among processes."""
    return FeatureSequential(nn.Conv2d(3, 6, 16, 16), nn.ReLU(), nn.Flatten(), nn.Linear(96, classes))


def register() -> None:
    NETS.update({"toy": toy_net, "plain": plain_net})
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 40


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 40)
    register()
    yield
    for name in ("toy", "plain"):
        del NETS[name]


def recipe_file(folder: Path, **values: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(TEXT.format(**values), encoding="utf-8")
    return path


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("shift", [NO_SHIFT, AWP])
@pytest.mark.parametrize(("loss", "settings"), LOSSES)
def test_an_interrupted_run_ends_like_an_undisturbed_one(tmp_path: Path, loss: str, settings: str, shift: str) -> None:
    """Also where AWP moves the weights at which the loss is evaluated."""

    def stop(done: int, total: int | None) -> None:
        if done == 4:
            raise KeyboardInterrupt

    recipe = read_recipe(recipe_file(tmp_path, net="toy", loss=loss, settings=settings, shift=shift))
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
    # BatchNorm sees each of the six batches once, however many passes a step makes.
    assert int(states[0]["weights"]["2.num_batches_tracked"]) == 6


def test_the_log_has_the_terms(tmp_path: Path) -> None:
    recipe = read_recipe(recipe_file(tmp_path, net="toy", loss="rat_labels", settings="eta = 0.3", shift=NO_SHIFT))
    train(recipe, tmp_path / "run", device="cpu")
    for line in log_of(tmp_path / "run"):
        assert line["loss"] == pytest.approx(
            0.7 * line["cross_entropy"]
            + 0.3 * line["first_term"]
            + 0.15 * line["second_term"]
            + 6 * line["kl_divergence"]
            + 0.01 * line["logit_squeezing"],
            rel=1e-5,
        )


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "settings"), [LOSSES[0], LOSSES[3]])
def test_two_processes_make_the_steps_of_one(tmp_path: Path, loss: str, settings: str) -> None:
    """The noise is the same in both processes, and the soft labels are those of the whole batch.

    Three steps: later ones differ more, since rounding flips the sign of a small gradient in the attack now and then.
    """
    path = recipe_file(tmp_path, net="plain", loss=loss, settings=settings, shift=AWP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command = [*launch, "--master-port", str(port), __file__, str(path), str(tmp_path / "two")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    train(read_recipe(path), tmp_path / "one", device="cpu")
    one, two = (log_of(tmp_path / name)[:3] for name in ("one", "two"))
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, abs=3e-4)


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    register()
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
