"""The monitor: what it measures, that it changes no bit of the training, and how it resumes."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax
from toy_training import toy_net, weights_of

from locality.curvature.attacked_losses import attacked_split
from locality.data.sources import shapes
from locality.training import loop
from locality.training.averaging import Ema, Swa
from locality.training.batches import TrainingImages
from locality.training.inner_attack import InnerAttack
from locality.training.loop import train
from locality.training.losses.adversarial import Adversarial
from locality.training.monitor import open_monitor
from locality.training.monitor_settings import MonitorSettings
from locality.training.new_model import new_model
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, read_recipe, recipe_from
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.training.reports import Report
from locality.training.step_size import CurvatureControl, Piecewise
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential

TESTS = Path(__file__).parents[1]
MONITOR = MonitorSettings(images=20, steps=3, probes=2)
# Two steps per epoch.
SMALL = Recipe(
    name="small",
    net=Net("toy"),
    data=TrainingData("shapes", limit=40),
    epochs=3,
    batch_size=20,
    average=Ema(0.9),
    augmentation=Augmentation(flip=True, shift=2),
    loss=Adversarial(InnerAttack(0.02)),
    optimizer=Optimizer("sgd", learning_rate=0.1),
    monitor=MONITOR,
)


def plain_net(classes: int) -> nn.Module:
    """Piecewise linear in each layer, with BatchNorm."""
    return FeatureSequential(
        nn.AvgPool2d(16), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes)
    )


def unnormalised_net(classes: int) -> nn.Module:
    """Without batch statistics, which are those of each process."""
    return FeatureSequential(nn.AvgPool2d(16), nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 40, "train": 60})
    monkeypatch.setitem(NETS, "toy", plain_net)


def lines_of(folder: Path, name: str = "monitor") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def interrupted_after(steps: int) -> Callable[[int, int | None], None]:
    def stop(done: int, total: int | None) -> None:
        if done == steps + 1:
            raise InterruptedError

    return stop


def test_the_monitor_changes_no_bit(tmp_path: Path) -> None:
    with_monitor = train(SMALL, tmp_path / "with", device="cpu")
    without = train(replace(SMALL, monitor=None), tmp_path / "without", device="cpu")
    assert torch.equal(weights_of(with_monitor.model), weights_of(without.model))
    assert lines_of(tmp_path / "with", "log") == lines_of(tmp_path / "without", "log")
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("with", "without")]
    for name, value in states[0]["weights"].items():
        assert torch.equal(value, states[1]["weights"][name])
    assert not (tmp_path / "without/monitor.jsonl").exists()


def test_networks_with_buffers_of_their_own_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that remembers what it has seen in training must not remember what the monitor shows it."""
    monkeypatch.setitem(NETS, "toy", toy_net)
    recipe = replace(SMALL, monitor=replace(MONITOR, method="probed"))
    train(recipe, tmp_path / "with", device="cpu")
    train(replace(recipe, monitor=None), tmp_path / "without", device="cpu")
    one, other = (
        torch.load(tmp_path / name / "state.pt", weights_only=True)["memory"]["buffers"] for name in ("with", "without")
    )
    assert torch.equal(one["5.memory"], other["5.memory"])
    assert float(one["5.memory"]) != 1


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "step_size", [Piecewise(), CurvatureControl(Piecewise((0.3,)), start=0.3, multiple=0.5)], ids=["planned", "wci"]
)
def test_an_interrupted_run_measures_the_same(tmp_path: Path, steps: int, step_size: Any) -> None:
    recipe = replace(SMALL, step_size=step_size)
    with pytest.raises(InterruptedError):
        train(recipe, tmp_path / "interrupted", interrupted_after(steps), device="cpu")
    with open(tmp_path / "interrupted/monitor.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 6, "wci": 99.0}\n{"step": 6, "wc')  # what a kill a moment later could have left
    resumed = train(recipe, tmp_path / "interrupted", device="cpu")
    whole = train(recipe, tmp_path / "whole", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert lines_of(tmp_path / "interrupted") == lines_of(tmp_path / "whole")
    assert lines_of(tmp_path / "interrupted", "log") == lines_of(tmp_path / "whole", "log")
    assert [line["step"] for line in lines_of(tmp_path / "whole")] == [2, 4, 6]


def attacked(model: nn.Module, images: Tensor, labels: Tensor, radius: float, steps: int) -> Tensor:
    """PGD from the images themselves, to see roughly how large the loss becomes."""
    points = images.clone()
    for _ in range(steps):
        points.requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(model(points), labels), points)
        points = (points + radius / 4 * gradient.sign()).clamp(images - radius, images + radius).clamp(0, 1).detach()
    return points


def test_what_is_measured(tmp_path: Path) -> None:
    """At the end of the run the weights are known, and every number can be computed again."""
    recipe = replace(SMALL, monitor=replace(MONITOR, method="exact", steps=10))
    train(recipe, tmp_path, device="cpu")
    *_, line = lines_of(tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    data = train(recipe, tmp_path, device="cpu").data
    model = new_model(recipe, data).eval()
    model.net.load_state_dict(state["weights"])  # the current weights, not their average
    assert (line["step"], line["epoch"], line["share"]) == (6, 3, 1.0)
    assert line["learning_rate"] == lines_of(tmp_path, "log")[-1]["learning_rate"]
    images, labels = TrainingImages(data, Augmentation(), 0).balanced(20)
    assert labels.bincount().tolist() == [2] * 10
    with torch.no_grad():
        logits = model(images).double()
    assert line["train_loss"] == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-5)
    assert line["train_error"] == pytest.approx(float((logits.argmax(1) != labels).float().mean()))
    # Another start ends at nearly the same loss; an attack that stops early, or none, would not.
    points = attacked(model, images, labels, 0.02, 10)
    robust = float(cross_entropy(model(points), labels).detach())
    assert line["train_robust_loss"] == pytest.approx(robust, rel=2e-3)
    assert line["train_robust_loss"] > line["train_loss"] + 0.01
    assert line["loss_gap"] == line["eval_robust_loss"] - line["train_robust_loss"]
    assert line["error_gap"] == line["eval_robust_error"] - line["train_robust_error"]
    weights = [model.net.get_parameter(name) for name in ("1.weight", "5.weight")]
    assert [layer["norm"] for layer in line["layers"]] == pytest.approx(
        [float(weight.detach().norm()) for weight in weights]
    )
    assert line["squared_norm"] == pytest.approx(sum(float(weight.detach().square().sum()) for weight in weights), rel=1e-5)
    traces = [layer["trace"] for layer in line["layers"]]
    assert line["trace"] == pytest.approx(sum(traces))
    assert line["wci"] == pytest.approx(sum(layer["norm"] * layer["trace"] ** 0.5 for layer in line["layers"]))
    assert line["wci"] <= line["upper"]
    assert line["wci_error"] == 0.0  # of exact traces
    # The last layer's trace, from all layers' and in closed form, is ‖z‖² σ(p).
    assert line["top_trace"] == pytest.approx(traces[-1], rel=1e-4)
    with torch.no_grad():
        seen = model.forward_pass(points)
        lengths, shares = seen.features.square().sum(1), softmax(seen.logits, 1)
    assert line["squared_features"] == pytest.approx(float(lengths.mean()), rel=1e-2)
    assert line["top_trace"] == pytest.approx(float((lengths * (1 - shares.square().sum(1))).mean()), rel=1e-2)
    errors = [float(values.var() / 20) for values in monitored_values(recipe, model, line)]
    assert line["loss_gap_error"] == pytest.approx(sum(errors) ** 0.5, rel=1e-5)
    share = line["train_robust_error"], line["eval_robust_error"]
    assert line["error_gap_error"] == pytest.approx(sum(one * (1 - one) / 19 for one in share) ** 0.5)
    # 20 + 20 images × 10 steps, and a backward pass per class for the 20 training images.
    assert line["gradients"] == 40 * 10 + 20 * 10
    assert line["epoch_gradients"] == 40 * 3  # two steps of the attack, and the gradient of the weights


def monitored_values(recipe: Recipe, model: Any, line: dict[str, Any]) -> list[Tensor]:
    """The robust losses of both splits, image by image."""
    monitor = open_monitor(recipe, model, images_of(train_data(), 0))
    assert monitor is not None
    splits = [attacked_split(model, split, monitor.threat, 10).losses.robust_loss for split in (monitor.train, monitor.eval)]
    assert [float(one.mean()) for one in splits] == [line["train_robust_loss"], line["eval_robust_loss"]]
    return splits


@pytest.mark.parametrize(
    ("gradients", "change", "images"),
    [
        (12_000, {}, 60),  # AT-2 on 4,000 images
        (12_000, {"every": 2}, 120),
        (550_000, {}, 256),
        (120, {}, 16),
        (12_000, {"method": "exact"}, 36),  # a backward pass for each of ten classes
        (12_000, {"method": "probed"}, 48),
    ],
)
def test_by_default_the_monitor_takes_a_small_share_of_an_epoch(gradients: int, change: dict[str, Any], images: int) -> None:
    settings = MonitorSettings(**change)
    assert settings.affordable_images(gradients, 10) == images
    if images not in (16, 256):
        cost = images * settings.gradients_per_image(10)
        assert 0.9 < cost / (0.06 * gradients * settings.every) <= 1


def test_the_cost_that_is_planned_is_the_cost_that_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locality.training.monitor_settings.FEWEST", 2)
    recipe = replace(SMALL, epochs=1, data=TrainingData("shapes", limit=60), monitor=MonitorSettings(every=1, steps=1))
    monkeypatch.setattr("locality.training.monitor_settings.SHARE", 0.5)
    train(recipe, tmp_path, device="cpu")
    (line,) = lines_of(tmp_path)
    assert line["train_images"] == line["eval_images"] == 22  # 90 gradients at 4 per image
    assert line["gradients"] == 22 * recipe_settings(recipe).gradients_per_image(10)
    assert line["epoch_gradients"] == 60 * 3


def recipe_settings(recipe: Recipe) -> MonitorSettings:
    assert recipe.monitor is not None
    return recipe.monitor


def test_every_few_epochs_and_the_average(tmp_path: Path) -> None:
    every = replace(SMALL, epochs=5, monitor=replace(MONITOR, every=2))
    train(every, tmp_path / "every", device="cpu")
    assert [line["epoch"] for line in lines_of(tmp_path / "every")] == [2, 4]
    trained = train(replace(SMALL, monitor=replace(MONITOR, average=True)), tmp_path / "average", device="cpu")
    train(SMALL, tmp_path / "current", device="cpu")
    averaged, current = (lines_of(tmp_path / name)[-1] for name in ("average", "current"))
    assert averaged["train_loss"] != current["train_loss"]
    images, labels = TrainingImages(trained.data, Augmentation(), 0).balanced(20)
    with torch.no_grad():
        assert averaged["train_loss"] == pytest.approx(float(cross_entropy(trained.model(images), labels)), rel=1e-5)
    with pytest.raises(ValueError, match=r"`monitor.average` must be false for an average whose BatchNorm statistics"):
        train(replace(SMALL, average=Swa(), monitor=replace(MONITOR, average=True)), tmp_path / "swa", device="cpu")
    assert not (tmp_path / "swa").exists()


def test_listeners_hear_every_line(tmp_path: Path) -> None:
    reports: list[Report] = []
    train(SMALL, tmp_path, device="cpu", listeners=[reports.append])
    assert [dict(report.logged) for report in reports] == lines_of(tmp_path, "log")
    assert [report.measured and dict(report.measured) for report in reports] == lines_of(tmp_path)
    assert all(0 < report.monitor_seconds < report.seconds for report in reports)


def test_undefined_is_null(tmp_path: Path) -> None:
    """A single probe has no standard error."""
    train(replace(SMALL, epochs=1, monitor=replace(MONITOR, probes=1)), tmp_path, device="cpu")
    text = (tmp_path / "monitor.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text
    (line,) = lines_of(tmp_path)
    assert line["wci_error"] is None
    assert line["layers"][0]["error"] is None
    assert line["wci"] > 0


def test_recipes_without_a_monitor_are_as_before() -> None:
    plain = replace(SMALL, monitor=None)
    assert "monitor" not in plain.as_table()
    assert recipe_from(plain.as_table(), "state").monitor is None
    assert recipe_from(SMALL.as_table(), "state") == SMALL
    table = plain.as_table() | {"monitor": {}}
    assert recipe_from(table, "text").monitor == MonitorSettings()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"monitor": replace(MONITOR, every=0, images=0)},
            r"2 problems: `monitor.every` .*; `monitor.images` must be above 0",
        ),
        ({"monitor": replace(MONITOR, epsilon=4.0)}, r"`monitor.epsilon` must be at most 1 for linf"),
        ({"monitor": None, "step_size": CurvatureControl()}, r"`step_size` needs a table \[monitor\], which measures WCI"),
        ({"net": Net("shapes_vit", {"width": 12, "depth": 1, "heads": 2})}, r"sampled"),
    ],
)
def test_mistakes_are_reported_before_the_run(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **change), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


TEXT = """
name = "two"
net = { name = "unnormalised" }
epochs = 4
batch_size = 20
data = { name = "shapes", limit = 40 }
loss = { name = "at", attack = { epsilon = 0.02 } }
optimizer = { name = "sgd", learning_rate = 0.2 }
step_size = { name = "wci", plan = { name = "constant" }, start = 0.25, multiple = 0.2 }
monitor = { images = 20, steps = 2, probes = 2 }
"""


@pytest.mark.slow
def test_two_processes_follow_one_curvature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main process measures, and the step sizes of both follow: the curves are those of one process."""
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    command = [*launch, "--master-port", str(port), __file__, str(path), str(tmp_path / "two")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    monkeypatch.setitem(NETS, "unnormalised", unnormalised_net)
    train(read_recipe(path), tmp_path / "one", device="cpu")
    for name, columns in (("log", ("loss", "learning_rate")), ("monitor", ("wci", "eval_robust_loss", "learning_rate"))):
        one, two = lines_of(tmp_path / "one", name), lines_of(tmp_path / "two", name)
        assert [line["step"] for line in one] == [line["step"] for line in two] == [2, 4, 6, 8]
        for left, right in zip(one, two, strict=True):
            for column in columns:
                assert left[column] == pytest.approx(right[column], rel=1e-4)
    rates = [line["learning_rate"] for line in lines_of(tmp_path / "one", "log")]
    assert rates[:2] == [0.2, 0.2]  # nothing is known before the first measurement after `start`
    assert max(rates[2:]) < 0.1  # or equality would say little
    # What each process ended with, to the last bit.
    first, second = (torch.load(tmp_path / f"two/process{rank}.pt", weights_only=True) for rank in (0, 1))
    assert torch.equal(first, second)


def test_the_same_images_whatever_the_seed_of_the_run() -> None:
    """Runs of several seeds are compared on the same images; fewer images are among them."""
    data = train_data()
    monitors = [open_monitor(replace(SMALL, seed=seed), new_model(SMALL, data), images_of(data, seed)) for seed in (0, 1)]
    one, other = monitors
    assert one is not None
    assert other is not None
    assert torch.equal(one.train[0], other.train[0])
    assert torch.equal(one.eval[0], other.eval[0])
    assert one.eval[1].bincount().tolist() == [2] * 10
    few = images_of(data, 0).balanced(10)[0]
    assert all(any(torch.equal(image, known) for known in one.train[0]) for image in few)


def train_data() -> Any:
    from locality.data.dataset import load_dataset

    return load_dataset("shapes", split="train", limit=40)


def images_of(data: Any, seed: int) -> TrainingImages:
    return TrainingImages(data, SMALL.augmentation, seed)


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    NETS["unnormalised"] = unnormalised_net
    shapes.DEFAULT_COUNT.update({"eval": 40, "train": 60})
    out = Path(sys.argv[2])
    torch.save(weights_of(train(read_recipe(sys.argv[1]), out, device="cpu").model), out / f"process{os.environ['RANK']}.pt")
