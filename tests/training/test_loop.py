"""Runs of the loop: interrupted and resumed, split over processes, averaged, and the caller's state after them."""

import copy
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import update_bn
from toy_training import run_in_two_processes, same_state, weights_of

from locality.data.sources import shapes
from locality.files import locked
from locality.progress import Progress
from locality.training import loop, network
from locality.training.averaging import AVERAGES, AverageSettings, Ema, NoAverage, Swa
from locality.training.batches import TrainingImages
from locality.training.inner_attack import InnerAttack
from locality.training.loop import train
from locality.training.losses import LOSSES
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.standard import Standard
from locality.training.new_model import new_model
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, read_recipe
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.training.reports import Report
from locality.training.run_state import RunState
from locality.training.step import LossValue, NotFiniteError, TrainingBatch
from locality.training.step_size import PLANS, Cosine, Piecewise, StepSizeSettings
from locality.zoo.catalog import CHECKPOINTS
from locality.zoo.load import load_model
from locality.zoo.nets.forward_pass import ForwardPass

SMALL = Recipe(
    name="small",
    net=Net("shapes_cnn"),
    data=TrainingData("shapes", limit=48),
    epochs=2,
    batch_size=16,
    average=Ema(0.9),
    augmentation=Augmentation(flip=True, shift=2),
    loss=Adversarial(InnerAttack(0.02, warm_up=0.5)),
)
TEXT = """
name = "small"
net = {{ name = "{net}" }}
epochs = 2
batch_size = 16
data = {{ name = "shapes", limit = 48 }}
augmentation = {{ flip = true, shift = 2 }}
loss = {{ name = "{loss}", attack = {{ epsilon = 0.02, warm_up = 0.5 }} }}
optimizer = {{ name = "sgd", learning_rate = 0.02 }}
"""
# Writes its state after every step and dies of SIGKILL in the middle of the run, like a power cut.
KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from locality.data.sources import shapes
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


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_killed_run_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('average = { name = "ema", decay = 0.9 }\n' + TEXT.format(net="shapes_cnn", loss="at"), encoding="utf-8")
    killed = subprocess.run([sys.executable, "-c", KILLED, path, tmp_path / "killed"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with open(tmp_path / "killed" / "log.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 5, "loss": 99.0}\n{"step": 6, "lo')  # what a kill a moment later could have left
    steps: list[int] = []
    recipe = read_recipe(path)
    resumed = train(recipe, tmp_path / "killed", lambda done, total: steps.append(done), device="cpu")
    whole = train(recipe, tmp_path / "whole", device="cpu")
    # The state is written after the progress is reported, so step 4 is repeated.
    assert steps == [4, 5, 6]
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "whole")
    again = train(recipe, tmp_path / "whole", lambda done, total: pytest.fail("nothing is left to do"), device="cpu")
    assert torch.equal(weights_of(again.model), weights_of(whole.model))


class InterruptedRunError(Exception):
    """Raised in the middle of a run, in place of a kill."""


def interrupted_after(steps: int) -> Progress:
    def stop(done: int, total: int | None) -> None:
        if done == steps + 1:
            raise InterruptedRunError

    return stop


@pytest.mark.parametrize(
    ("average", "step_size"),
    [
        *((average(), Cosine(warm_up_steps=2)) for average in AVERAGES.values()),
        *((Swa(start=0.0), step_size()) for step_size in PLANS.values()),
        (Ema(0.5), Piecewise((0.5,))),
    ],
    ids=repr,
)
@pytest.mark.parametrize("steps", [2, 3])  # the end of an epoch, and the middle of one
def test_an_interrupted_run_ends_like_an_undisturbed_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    average: AverageSettings,
    step_size: StepSizeSettings,
    steps: int,
) -> None:
    """Three epochs of two steps; the state is written after every step, the one of the interruption excepted."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    recipe = replace(
        SMALL, data=TrainingData("shapes", limit=16), batch_size=8, epochs=3, average=average, step_size=step_size
    )
    with pytest.raises(InterruptedRunError):
        train(recipe, tmp_path / "interrupted", interrupted_after(steps), device="cpu")
    done: list[int] = []
    resumed = train(recipe, tmp_path / "interrupted", lambda step, total: done.append(step), device="cpu")
    assert done == list(range(steps + 1, 7))
    whole = train(recipe, tmp_path / "whole", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "interrupted") == log_of(tmp_path / "whole")


def test_swa_is_the_mean_of_the_epochs_with_statistics_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights: the mean of the states at the ends of epochs 2 and 3. BatchNorm: torch's own refresh, on clean images."""
    states: list[RunState] = []
    monkeypatch.setattr(loop, "write_state", lambda state, path: states.append(copy.deepcopy(state)))
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    recipe = replace(SMALL, epochs=3, average=Swa(start=0.5))
    trained = train(recipe, tmp_path, device="cpu")
    ends = [states[step].weights for step in (5, 8)]
    expected = new_model(recipe, trained.data)
    mean = {name: (value.double() + ends[1][name].double()) / 2 for name, value in ends[0].items()}
    expected.net.load_state_dict(mean)
    images = TrainingImages(trained.data, Augmentation(), 0)
    batches = [torch.stack([images[0, index].image for index in part]) for part in (range(16), range(16, 32), range(32, 48))]
    update_bn(batches, expected)
    for name, value in expected.net.state_dict().items():
        torch.testing.assert_close(trained.model.net.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    # By hand, for the first layer: the mean over the batches of the mean of its outputs.
    convolution, norm, _ = next(trained.model.net.children()).children()
    means = torch.stack([convolution(trained.model.normalised(batch)).mean((0, 2, 3)) for batch in batches]).mean(0)
    running_mean = trained.model.net.state_dict()["0.1.running_mean"]
    torch.testing.assert_close(running_mean, means, rtol=1e-3, atol=1e-4)
    assert not trained.model.training
    assert norm.momentum == 0.1
    # The average of the statistics, which are of attacked images at other weights, would be different.
    assert not torch.allclose(running_mean, mean["0.1.running_mean"].float(), atol=1e-3)


def test_a_setting_that_is_new_since_the_state_counts_as_its_default(tmp_path: Path) -> None:
    one = replace(SMALL, epochs=1)
    train(one, tmp_path, device="cpu")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    del state["recipe"]["weight_shift"], state["recipe"]["loss"]["attack"]["mode"]
    torch.save(state, tmp_path / "state.pt")
    train(one, tmp_path, lambda done, total: pytest.fail("nothing is left to do"), device="cpu")
    state["recipe"]["net"] = ["shapes_cnn"]  # as another version could have written it
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(ValueError, match=r"belongs to another recipe \(loss, net, weight_shift changed\)"):
        train(one, tmp_path, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["at", "trades", "rat_terms"])
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path, loss: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT.format(net="tiny_vit", loss=loss), encoding="utf-8")
    run_in_two_processes(__file__, path, tmp_path / "two")
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
        loss=Standard(),
        average=NoAverage(),
        augmentation=Augmentation(),
        optimizer=Optimizer(learning_rate=3e-3),
    )
    train(recipe, tmp_path, device="cpu")
    lines = log_of(tmp_path)
    assert lines[0]["loss"] > 1.9
    assert lines[-1]["loss"] < 1.0
    assert lines[-1]["learning_rate"] < 1e-6 < max(line["learning_rate"] for line in lines)


def test_attacks_run_in_eval_mode_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []
    original = network.FeatureModel.forward

    def spy(self: network.FeatureModel, images: Tensor) -> ForwardPass:
        modes.append(self.training)
        return original(self, images)

    monkeypatch.setattr(network.FeatureModel, "forward", spy)
    one = replace(SMALL, epochs=1)
    train(one, tmp_path / "eval", device="cpu")
    assert modes == [False, False, True] * 3  # two passes of the attack, then the one to train on
    modes.clear()
    trained = replace(one, loss=Adversarial(InnerAttack(0.02, mode="train")))
    train(trained, tmp_path / "train", device="cpu")
    assert modes == [True] * 9


def test_average_and_random_state(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    averaged = train(SMALL, tmp_path / "averaged", device="cpu")
    last = train(replace(SMALL, average=NoAverage()), tmp_path / "last", device="cpu")
    assert torch.equal(before, torch.get_rng_state())
    # The average lies between the first and the last weights, so it differs from the last.
    assert not torch.equal(weights_of(averaged.model), weights_of(last.model))
    assert log_of(tmp_path / "averaged") == log_of(tmp_path / "last")
    assert not averaged.model.training


def test_a_run_may_start_from_a_model(tmp_path: Path) -> None:
    shipped = load_model("shapes_cnn")
    untouched = replace(SMALL, epochs=0, start="shapes_cnn", average=NoAverage())
    assert torch.equal(weights_of(train(untouched, tmp_path / "none", device="cpu").model), weights_of(shipped))
    from_name = train(replace(SMALL, start="shapes_cnn"), tmp_path / "name", device="cpu")
    train(
        replace(SMALL, start="shapes_cnn", loss=Standard(), augmentation=Augmentation()),
        tmp_path / "plain",
        device="cpu",
    )
    assert log_of(tmp_path / "plain")[0]["clean_accuracy"] == 1.0  # it has not forgotten anything
    # The same weights from a file.
    for ending in (".safetensors", ".json"):
        (tmp_path / f"own{ending}").write_bytes((CHECKPOINTS / f"shapes_cnn{ending}").read_bytes())
    from_file = train(replace(SMALL, start=str(tmp_path / "own.safetensors")), tmp_path / "file", device="cpu")
    assert torch.equal(weights_of(from_file.model), weights_of(from_name.model))
    # A resumed run does not go back to its start.
    again = train(replace(SMALL, start="shapes_cnn"), tmp_path / "name", device="cpu")
    assert torch.equal(weights_of(again.model), weights_of(from_name.model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net": Net("shapes_vit")}, r"`start`: shapes_cnn is not a shapes_vit for 10 classes: .*Missing key"),
        ({"mean": (0.5, 0.5, 0.5)}, r"`start`: shapes_cnn has mean \(0.45, 0.45, 0.45\) .*give the recipe the same"),
        ({"start": "shapes_cn"}, "shapes_cnn"),
    ],
)
def test_a_start_that_does_not_fit(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **({"start": "shapes_cnn"} | change)), tmp_path)


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match=r"state.pt` is not the state of a run.* delete it to start over"):
        train(one, tmp_path, device="cpu")
    for place in (300, -1):  # in a tensor or a key, and in the hash itself
        content = bytearray((tmp_path / "started/state.pt").read_bytes())
        content[place] ^= 1
        (tmp_path / "state.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"state.pt` is not the state of a run, or is damaged"):
            train(started, tmp_path, device="cpu")
    with pytest.raises(ValueError, match="`batch_size` must be at most the number of training images, 48, got 64"):
        train(replace(one, batch_size=64), tmp_path / "other", device="cpu")


def test_one_run_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    one = replace(SMALL, epochs=1)
    with locked(tmp_path), pytest.raises(ValueError, match="is being written by another run: wait for it, or pass another"):
        train(one, tmp_path, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]  # of the run that holds it

    def another(done: int, total: int | None) -> None:
        with pytest.raises(ValueError, match="is being written by another run"), locked(tmp_path / "new"):
            pass

    train(one, tmp_path / "new", another, device="cpu")


def test_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(SMALL, epochs=1)
    train(one, tmp_path, device="cpu")
    path = tmp_path / "state.pt"
    written = path.read_bytes()
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 200)  # 48 of 200 are other images than 48 of 100
    with pytest.raises(ValueError, match=r"state.pt` belongs to other data .* or choose another --out"):
        train(one, tmp_path, device="cpu")
    assert path.read_bytes() == written


def test_mistakes_are_reported_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`device` must be cpu, or omitted .* got 'cuda:1': .*CUDA_VISIBLE_DEVICES"):
        train(SMALL, tmp_path / "a", device="cuda:1")
    with pytest.raises(ValueError, match=r"`loss.attack.epsilon` must be at most 1 for linf"):
        train(replace(SMALL, loss=Adversarial(InnerAttack(4.0))), tmp_path / "a", device="cpu")
    with pytest.raises(ValueError, match=r"`augmentation.shift` must be less than the side of an image, .* 64×64, got 64"):
        train(replace(SMALL, augmentation=Augmentation(shift=64)), tmp_path / "a", device="cpu")
    assert not (tmp_path / "a").exists()
    train(replace(SMALL, epochs=1, augmentation=Augmentation(shift=63)), tmp_path / "b", device="cpu")


def test_a_loss_that_diverges_is_an_error(tmp_path: Path) -> None:
    wild = replace(SMALL, loss=Standard(), optimizer=Optimizer("sgd", learning_rate=1e30))
    with pytest.raises(ValueError, match=r"`cross_entropy` is .* at step \d: lower `learning_rate`"):
        train(wild, tmp_path, device="cpu")


@dataclass(frozen=True)
class FailingLoss:
    """Cross-entropy until the step `fails_at`, then with a term, or only with a gradient, that is not a number."""

    fails_at: int
    only_gradient: bool = False

    def __call__(self, batch: TrainingBatch) -> LossValue:
        clean = batch.forward(batch.images)
        fit = cross_entropy(clean.logits, batch.labels)
        odd = torch.zeros(())
        if batch.moment.step + 1 == self.fails_at:
            # √0 has no derivative; times 0, only its gradient is not a number.
            odd = ((clean.logits[0, 0] * 0).sqrt() * 0) if self.only_gradient else clean.logits.sum() * torch.nan
        return LossValue(fit + odd, {"fit": fit, "odd": odd}, clean=clean)


@pytest.mark.parametrize(("only_gradient", "term"), [(False, "odd"), (True, "gradient")])
def test_nan_keeps_the_state_of_the_last_good_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_gradient: bool, term: str
) -> None:
    """It stops between two lines of the log, and leaves what a run that was interrupted one step earlier leaves."""
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 10)
    monkeypatch.setitem(LOSSES, "failing", FailingLoss)
    recipe = replace(SMALL, data=TrainingData("shapes", limit=80), loss=FailingLoss(4, only_gradient), epochs=1)
    with pytest.raises(NotFiniteError, match=f"`{term}` is nan at step 4: lower `learning_rate`") as caught:
        train(recipe, tmp_path / "nan", device="cpu")
    assert (caught.value.term, caught.value.step) == (term, 4)
    good = replace(recipe, loss=FailingLoss(99, only_gradient))

    def stop(done: int, total: int | None) -> None:
        if done == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(good, tmp_path / "good", stop, device="cpu")
    state, expected = (torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("nan", "good"))
    for one in (state, expected):
        del one["seconds"], one["recipe"]
    assert state["step"] == 3
    assert same_state(state, expected)  # BatchNorm's statistics included
    assert all(value.isfinite().all() for value in state["weights"].values())


def test_a_state_with_infinite_weights_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    wild = replace(SMALL, loss=Standard(), optimizer=Optimizer("sgd", learning_rate=1e38))
    with pytest.raises(NotFiniteError) as caught:
        train(wild, tmp_path, device="cpu")
    state = torch.load(tmp_path / "state.pt", weights_only=True) if (tmp_path / "state.pt").exists() else None
    assert caught.value.step > 1
    assert state is None or all(value.isfinite().all() for value in state["weights"].values())


def test_ctrl_c_saves_the_step_under_way(tmp_path: Path) -> None:
    """SIGINT comes in the middle of step 4; the state of step 4 is saved, and the resumed run ends as if undisturbed."""

    def stop(report: Report) -> None:
        if report.logged["step"] == 4:
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "stopped", device="cpu", listeners=[stop])
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.load(tmp_path / "stopped/state.pt", weights_only=True)["step"] == 4
    done: list[int] = []
    resumed = train(SMALL, tmp_path / "stopped", lambda step, total: done.append(step), device="cpu")
    assert done == [5, 6]
    whole = train(SMALL, tmp_path / "whole", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "stopped") == log_of(tmp_path / "whole")
    assert (resumed.was_finished, train(SMALL, tmp_path / "whole", device="cpu").was_finished) == (False, True)

    def impatient(report: Report) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one interrupts at once")

    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "impatient", device="cpu", listeners=[impatient])
    assert not (tmp_path / "impatient/state.pt").exists()


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 100
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
