"""Validation: which images are held out, which epoch is kept, when a run stops, and that a resumed run ends the same."""

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_training import run_in_two_processes, weights_of

from locality.data.dataset import ImageDataset, load_dataset
from locality.data.sources import shapes
from locality.errors import ArgumentError
from locality.training import loop
from locality.training.averaging import Ema, Swa
from locality.training.batches import TrainingImages
from locality.training.inner_attack import InnerAttack
from locality.training.loop import train
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.alp import Alp
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, RecipeError, read_recipe
from locality.training.recipe_parts import Augmentation, Net, TrainingData
from locality.training.run_state import RunState
from locality.training.schedules import Moment
from locality.training.step_size import Constant
from locality.training.validation import BestEpoch, Validation, best_epoch, held_out_part
from locality.types import Threat
from locality.zoo.load import load_model

RECIPE = Recipe(
    name="watched",
    net=Net("shapes_cnn"),
    data=TrainingData("shapes", limit=60),
    epochs=4,
    batch_size=16,
    average=Ema(0.5),
    step_size=Constant(),
    optimizer=Optimizer(learning_rate=3e-3),
    validation=Validation(share=0.2),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 100)


def measured_lines(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "best_epoch" in line]


def scripted(monkeypatch: pytest.MonkeyPatch, accuracies: list[float]) -> None:
    """The held-out images have these accuracies, one per measurement."""
    left = iter(accuracies)

    def measure(self: BestEpoch, model: torch.nn.Module) -> dict[str, float]:
        return {"accuracy": next(left), "loss": 1.0}

    monkeypatch.setattr(BestEpoch, "measure", measure)


def uneven() -> ImageDataset:
    """20 images of one class, 3 of another, one of a third."""
    data = load_dataset("shapes", split="train")
    labels = data.manifest.images["label"].to_numpy()
    places = [np.flatnonzero(labels == label)[:count] for label, count in ((0, 9), (1, 3), (2, 1))]
    return data.take(np.sort(np.concatenate(places)))


def test_a_share_of_each_class_is_held_out() -> None:
    data = uneven()
    kept, held = held_out_part(data, 0.3)
    assert list(kept.counts().values()) == [6, 2, 1]  # a class of one image keeps it
    assert list(held.counts().values()) == [3, 1]
    ids = [set(part.manifest.images["id"]) for part in (data, kept, held)]
    assert (ids[1] | ids[2], ids[1] & ids[2]) == (ids[0], set())
    # Which they are depends neither on the other classes nor on the order of the images.
    alone = data.take(np.flatnonzero(data.manifest.images["label"].to_numpy() == 0)[::-1].copy())
    assert set(held_out_part(alone, 0.3)[1].manifest.images["id"]) <= ids[2]
    with pytest.raises(ArgumentError, match="`validation` must be left out for classes of one image each"):
        held_out_part(data.take(np.array([0])), 0.3)


def test_the_numbers_are_those_of_the_averaged_model_on_the_held_out_images(tmp_path: Path) -> None:
    trained = train(replace(RECIPE, epochs=1), tmp_path, device="cpu")
    assert trained.held_out is not None
    assert len(trained.data) + len(trained.held_out) == 60
    (line,) = measured_lines(tmp_path)
    batch = trained.held_out.batch(range(len(trained.held_out)))
    with torch.no_grad():
        logits = trained.model(batch.images)
    assert line["validation_accuracy"] == pytest.approx(float((logits.argmax(1) == batch.labels).float().mean()))
    assert line["validation_loss"] == pytest.approx(float(cross_entropy(logits, batch.labels)), rel=1e-5)


def test_the_best_epoch_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [0.3, 0.6, 0.6, 0.5])
    states: list[RunState] = []
    monkeypatch.setattr(loop, "write_state", lambda state, path: states.append(copy.deepcopy(state)))
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    best = train(RECIPE, tmp_path / "best", device="cpu")
    assert best.best is not None
    assert (best.best.epoch, best.best.stops) == (2, False)
    assert [line["best_epoch"] for line in measured_lines(tmp_path / "best")] == [1, 2, 2, 2]
    # Those of the average after step 6, the last one of epoch 2.
    kept = states[5].memory["average"]["mean"]
    assert all(torch.equal(kept[name], value) for name, value in best.model.net.state_dict().items())
    last = states[-1].memory["average"]["mean"]
    assert not torch.equal(last["6.weight"], kept["6.weight"])


def test_a_run_stops_when_its_patience_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = replace(RECIPE, epochs=6, validation=Validation(share=0.2, patience=2))
    scripted(monkeypatch, [0.3, 0.6, 0.5, 0.4])
    steps: list[int] = []
    run = train(patient, tmp_path, lambda done, total: steps.append(done), device="cpu")
    assert run.best is not None
    assert (run.best.epoch, run.best.stops, steps[-1], run.was_finished) == (2, True, 12, False)
    again = train(patient, tmp_path, lambda done, total: pytest.fail("it stopped"), device="cpu")
    assert again.was_finished
    assert torch.equal(weights_of(again.model), weights_of(run.model))


@pytest.mark.parametrize(("epochs", "patience", "measured"), [(5, None, [2, 4, 5]), (5, 1, [2, 4])])
def test_every_second_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, patience: int | None, measured: list[int]
) -> None:
    scripted(monkeypatch, [0.3, 0.2, 0.1])
    train(replace(RECIPE, epochs=epochs, validation=Validation(0.2, every=2, patience=patience)), tmp_path, device="cpu")
    assert [line["epoch"] for line in measured_lines(tmp_path)] == measured


@pytest.mark.parametrize("by", ["accuracy", "loss", "attacked_accuracy"])
def test_what_counts_as_better(by: str) -> None:
    worse = {"accuracy": 0.5, "loss": 1.0, "attacked_accuracy": 0.2, "attacked_loss": 2.0}
    better = dict(worse) | ({by: 0.6} if by != "loss" else {by: 0.9})
    tied = dict(worse) | {"loss": 0.9, "attacked_loss": 1.9}
    for first, second, epoch in ((worse, better, 2), (better, worse, 1), (worse, worse, 1), (worse, tied, 2)):
        given = iter([first, second])
        best = BestEpoch(Validation(by=by), None, Threat("linf", 0.1))  # type: ignore[arg-type]
        best.measure = lambda model, given=given: next(given)  # type: ignore[method-assign, misc]
        run = SimpleNamespace(
            accelerator=SimpleNamespace(is_main_process=True, num_processes=1),
            network=SimpleNamespace(model=load_model("shapes_cnn")),
        )
        run.average = SimpleNamespace(result=run.network.model.net.state_dict)
        for number in range(2):
            best(Moment(number, 2, number, 2), run)  # type: ignore[arg-type]
        assert best.epoch == epoch


def test_accuracy_under_attack_is_lower() -> None:
    data = load_dataset("shapes", split="train", limit=40)
    images = TrainingImages(data, Augmentation(), 0)
    numbers = BestEpoch(Validation(by="attacked_accuracy"), images, Threat("linf", 4 / 255)).measure(
        load_model("shapes_cnn")
    )
    assert numbers["attacked_accuracy"] < 0.5 < numbers["accuracy"]
    assert numbers["attacked_loss"] > numbers["loss"]


def test_alp_is_not_judged_by_few_steps_alone() -> None:
    data = load_dataset("shapes", split="train", limit=20)
    for loss, steps in ((Alp(InnerAttack(0.02)), 100), (Adversarial(InnerAttack(0.02)), 10)):
        best = best_epoch(replace(RECIPE, loss=loss), data, None)
        assert best is not None
        assert best.steps == steps


class InterruptedRunError(Exception):
    """Raised in the middle of a run, in place of a kill."""


def stop_at(step: int) -> Callable[[int, int | None], None]:
    def stop(done: int, total: int | None) -> None:
        if done == step:
            raise InterruptedRunError

    return stop


@pytest.mark.parametrize("step", [4, 8])
def test_an_interrupted_run_ends_like_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The first epoch is the best one, and the third ends the run: both are known after the interruption."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    recipe = replace(RECIPE, epochs=5, validation=Validation(share=0.2, by="loss", patience=2))
    recipe = replace(recipe, optimizer=Optimizer("sgd", learning_rate=1.0))
    with pytest.raises(InterruptedRunError):
        train(recipe, tmp_path / "cut", stop_at(step), device="cpu")
    resumed = train(recipe, tmp_path / "cut", device="cpu")
    whole = train(recipe, tmp_path / "whole", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    logs = [(tmp_path / name / "log.jsonl").read_text(encoding="utf-8") for name in ("cut", "whole")]
    assert logs[0] == logs[1]
    assert (resumed.best, whole.best) != (None, None)
    assert resumed.best is not None
    assert whole.best is not None
    assert (resumed.best.epoch, resumed.best.rank, resumed.best.stops) == (
        whole.best.epoch,
        whole.best.rank,
        whole.best.stops,
    )


def test_validation_changes_no_bit_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    robust = replace(RECIPE, loss=Adversarial(InnerAttack(0.02)), epochs=2)
    watched = train(robust, tmp_path / "watched", device="cpu")
    part = held_out_part(load_dataset("shapes", split="train", limit=60), 0.2)[0]
    monkeypatch.setattr(loop, "beginning", _beginning_with(part))
    plain = train(replace(robust, validation=None), tmp_path / "plain", device="cpu")
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("watched", "plain")]
    for key in ("weights", "optimizer"):
        assert repr(states[0][key]) == repr(states[1][key])
    assert len(watched.data) == len(plain.data)


def _beginning_with(part: ImageDataset) -> Callable[[Recipe], Any]:
    from locality.training.new_model import Beginning, new_model

    return lambda recipe: Beginning(part, lambda: new_model(recipe, part), lambda model: "random weights")


def test_what_cannot_be_combined() -> None:
    wrong = replace(RECIPE, average=Swa(), validation=Validation(share=1.0, every=0, patience=0))
    with pytest.raises(RecipeError) as caught:
        train(wrong, Path("nowhere"))
    assert sorted(problem.where for problem in caught.value.problems) == [
        "validation",
        "validation.every",
        "validation.patience",
        "validation.share",
    ]


TEXT = """
name = "two"
net = { name = "tiny_vit", depth = 1, width = 24 }
epochs = 3
batch_size = 16
data = { name = "shapes", limit = 60 }
validation = { share = 0.2, by = "loss", patience = 1 }
optimizer = { name = "sgd", learning_rate = 0.02 }
"""


@pytest.mark.slow
def test_two_processes_choose_the_same_epoch_as_one(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT, encoding="utf-8")
    run_in_two_processes(__file__, path, tmp_path / "two")
    train(read_recipe(path), tmp_path / "one", device="cpu")
    one, two = measured_lines(tmp_path / "one"), measured_lines(tmp_path / "two")
    assert len(one) == 3
    for left, right in zip(one, two, strict=True):
        assert left["best_epoch"] == right["best_epoch"]
        assert left["validation_loss"] == pytest.approx(right["validation_loss"], abs=1e-4)


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 100
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
