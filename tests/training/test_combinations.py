"""Losses, regularisers, weight shifts and averages together: without effect where they should have none, and resumed."""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toy_training import ToyLoss, run_in_two_processes, same_state, weights_of

from locality.data.sources import shapes
from locality.training import loop
from locality.training.averaging import Ema
from locality.training.inner_attack import InnerAttack
from locality.training.loop import train
from locality.training.losses import LOSSES
from locality.training.losses.adversarial import Adversarial
from locality.training.losses.alp import Alp
from locality.training.losses.centroid import CentroidCe, CentroidEmma
from locality.training.losses.mart import Mart
from locality.training.losses.trades import Trades
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, RecipeError, check_recipe, read_recipe, recipe_from
from locality.training.recipe_parts import Net, TrainingData
from locality.training.regularisers.centroids import Pull, Push
from locality.training.regularisers.l2 import L2
from locality.training.regularisers.s2o import S2o
from locality.training.regularisers.trh import Trh
from locality.training.schedules import Linear, Moment, Multistep
from locality.training.step import Loss, Regulariser, WeightShift
from locality.training.weight_shifts.awp import Awp, Awpt
from locality.training.weight_shifts.sam import Sam
from locality.zoo.nets import NETS
from locality.zoo.nets.forward_pass import FeatureSequential

ATTACK = InnerAttack(0.02, steps=1, step_size=1.0)
LOSS: dict[str, Loss] = {
    "at": Adversarial(ATTACK),
    "trades": Trades(ATTACK, stop_clean=True),
    "alp": Alp(ATTACK),
    "mart": Mart(ATTACK),
}
PENALTY: dict[str, Regulariser] = {"trh": Trh(0.0), "l2": L2(0.0), "s2o": S2o(0.0)}
SHIFT: dict[str, WeightShift] = {"awp": Awp(0.0), "awpt": Awpt(0.0), "sam": Sam(0.0), "asam": Sam(0.0, adaptive=True)}
# Two steps.
PLAIN = Recipe(
    name="combined",
    net=Net("shapes_cnn"),
    data=TrainingData("shapes", limit=16),
    epochs=1,
    batch_size=8,
    optimizer=Optimizer("sgd", learning_rate=0.1),
)
TEXT = """
name = "small"
net = { name = "tiny_vit", width = 24, depth = 2, heads = 2 }
epochs = 2
batch_size = 8
data = { name = "shapes", limit = 16 }
optimizer = { name = "sgd", learning_rate = 0.02 }
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    monkeypatch.setitem(shapes.DEFAULT_COUNT, "train", 40)


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("loss", LOSS)
def test_weight_0_and_size_0_change_no_bit(tmp_path: Path, loss: str) -> None:
    base = replace(PLAIN, loss=LOSS[loss])
    plain = weights_of(train(base, tmp_path / "plain", device="cpu").model)
    for name, penalty in PENALTY.items():
        run = train(replace(base, regularisers={name: penalty}), tmp_path / name, device="cpu")
        assert torch.equal(weights_of(run.model), plain), name
        assert log_of(tmp_path / name)[0][f"{name}_weight"] == 0
    for name, shift in SHIFT.items():
        run = train(replace(base, weight_shift=shift), tmp_path / name, device="cpu")
        assert torch.equal(weights_of(run.model), plain), name


@pytest.mark.parametrize("loss", [CentroidCe(), CentroidEmma(epsilon=0.1)], ids=repr)
def test_weight_0_of_the_regularisers_of_centroids_changes_no_bit(tmp_path: Path, loss: Loss) -> None:
    """`push` makes steps of power iteration, which must not move those of the loss."""
    net = Net("centroid_net", {"depth": 1, "width": 4, "dimension": 8, "features": 4})
    base = replace(PLAIN, net=net, loss=loss)
    plain = train(base, tmp_path / "plain", device="cpu")
    parts: dict[str, tuple[Regulariser, Regulariser]] = {"pull": (Pull(0.0), Pull(0.5)), "push": (Push(0.0), Push(0.5))}
    for name, (without, with_effect) in parts.items():
        run = train(replace(base, regularisers={name: without}), tmp_path / name, device="cpu")
        assert torch.equal(weights_of(run.model), weights_of(plain.model)), name
        states = [torch.load(tmp_path / folder / "state.pt", weights_only=True) for folder in ("plain", name)]
        assert same_state(states[0]["memory"]["buffers"], states[1]["memory"]["buffers"])
        assert states[0]["memory"]["buffers"]
        assert log_of(tmp_path / name)[0][f"{name}_weight"] == 0
        moved = train(replace(base, regularisers={name: with_effect}), tmp_path / f"{name} 0.5", device="cpu")
        assert not torch.equal(weights_of(moved.model), weights_of(plain.model)), name


@pytest.mark.parametrize("loss", ["at", "mart"])
def test_every_combination_runs_and_moves(tmp_path: Path, loss: str) -> None:
    """Each regulariser with each shift; each changes the weights of the run that has one of them less."""
    penalties: dict[str, Regulariser] = {"trh": Trh(0.05, bias=True), "l2": L2(0.01), "s2o": S2o(0.3)}
    shifts: dict[str, WeightShift] = {"awp": Awp(0.05), "awpt": Awpt(0.05), "sam": Sam(0.1), "asam": Sam(0.5, True)}
    base = replace(PLAIN, loss=LOSS[loss], epochs=1, data=TrainingData("shapes", limit=8))
    runs = {}
    for name, shift in itertools.product(penalties, shifts):
        recipe = replace(base, regularisers={name: penalties[name]}, weight_shift=shifts[shift])
        runs[name, shift] = weights_of(train(recipe, tmp_path / f"{name} {shift}", device="cpu").model)
        assert runs[name, shift].isfinite().all()
    for one, other in itertools.combinations(runs, 2):
        assert not torch.equal(runs[one], runs[other]), (one, other)
    line = log_of(tmp_path / "trh awp")[0]
    assert line["trh"] > 0
    assert line["trh_squared_features"] > 0
    assert line["trh_head_norm"] > 0


@pytest.mark.parametrize(("loss", "shift"), [("at", Awp(0.05, 0.5)), ("mart", Awpt(0.05)), ("alp", Sam())])
def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, shift: WeightShift) -> None:
    def stop(done: int, total: int | None) -> None:
        if done == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    recipe = replace(
        PLAIN,
        epochs=2,
        loss=LOSS[loss],
        regularisers={"trh": Trh(0.05, Linear()), "l2": L2(0.01), "s2o": S2o(0.1)},
        weight_shift=shift,
        average=Ema(0.5),
    )
    whole = train(recipe, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "interrupted", stop, device="cpu")
    resumed = train(recipe, tmp_path / "interrupted", device="cpu")
    assert torch.equal(weights_of(resumed.model), weights_of(whole.model))
    assert log_of(tmp_path / "interrupted") == log_of(tmp_path / "whole")


def test_batchnorm_sees_each_batch_once(tmp_path: Path) -> None:
    shifts: tuple[WeightShift, ...] = (Awp(0.05), Sam())
    for loss, shift in itertools.product(("at", "trades"), shifts):
        recipe = replace(PLAIN, loss=LOSS[loss], weight_shift=shift, regularisers={"s2o": S2o(0.1)})
        model = train(recipe, tmp_path / f"{loss} {type(shift).__name__}", device="cpu").model
        assert int(model.net.state_dict()["0.1.num_batches_tracked"]) == 2


def test_schedules_of_trh() -> None:
    """λ(t) at t/T of 0, 0.05, 0.1, 0.3, 0.5 and 1."""
    steps = [Moment.of(step, 100, 1) for step in (0, 5, 10, 30, 50, 100)]
    assert [Linear()(moment) for moment in steps] == pytest.approx([0, 0.05, 0.1, 0.3, 0.5, 1])
    assert [Multistep()(moment) for moment in steps] == [0.01, 0.01, 0.1, 0.1, 1, 1]


def headless(classes: int) -> nn.Module:
    return FeatureSequential(nn.AvgPool2d(16), nn.Flatten(), nn.LazyLinear(classes), nn.Softplus())


def test_what_cannot_be_combined_is_listed_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETS, "headless", headless)
    monkeypatch.setitem(LOSSES, "toy", ToyLoss)
    recipe = replace(
        PLAIN,
        net=Net("headless"),
        loss=ToyLoss(),
        regularisers={"trh": Trh(0.1), "s2o": S2o(0.1), "l2": L2(0.1)},
        weight_shift=Awpt(),
    )
    with pytest.raises(RecipeError) as caught:
        train(recipe, tmp_path / "none", device="cpu")
    head = "needs a network whose head is a linear layer, but that of headless is Softplus"
    assert [(problem.where, problem.text) for problem in caught.value.problems] == [
        ("weight_shift", head),
        ("regularisers.trh", head),
        ("regularisers.trh", "needs a loss with a trace, which ToyLoss does not have"),
        ("regularisers.s2o", "needs a loss that names the part that is fitted to labels, which ToyLoss does not"),
    ]
    assert not (tmp_path / "none").exists()
    check_recipe(replace(recipe, regularisers={"l2": L2(0.1)}, weight_shift=Awp()))


def test_every_part_is_read_and_written_back() -> None:
    recipe = replace(
        PLAIN,
        loss=Alp(ATTACK, 0.3, "logits", stop_clean=True),
        regularisers={"trh": Trh(5e-4, Multistep(), bias=True), "l2": L2(1e-3), "s2o": S2o(0.1, label_share=0.3)},
        weight_shift=Sam(0.5, adaptive=True),
    )
    assert recipe_from(recipe.as_table(), "table") == recipe


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        'loss = { name = "at", attack = { epsilon = 0.02 } }\nweight_shift = { name = "awp" }\n'
        "regularisers = { trh = { weight = 0.05 }, l2 = { weight = 0.001 } }",
        'loss = { name = "mart", attack = { epsilon = 0.02 } }\nweight_shift = { name = "awpt" }\n'
        "regularisers = { s2o = { weight = 0.5 } }",
        'loss = { name = "alp", attack = { epsilon = 0.02 } }\nweight_shift = { name = "sam" }\n'
        "regularisers = { trh = { weight = 0.05 } }",
        'loss = { name = "fast_at", attack = { epsilon = 0.02 } }\naverage = { name = "ema", decay = 0.9 }\n'
        'regularisers = { logit_squeezing = { weight = 0.05 } }\nstep_size = { name = "cosine", warm_up_steps = 2 }',
        'loss = { name = "standard" }\naverage = { name = "swa", start = 0.0 }\n'
        'step_size = { name = "equal_mean", plan = { name = "constant" }, start = 0.5, mean = 0.3 }',
    ],
    ids=[
        "at, awp, trh, l2",
        "mart, awpt, s2o",
        "alp, sam, trh",
        "fast_at, ema, squeezing, cosine",
        "standard, swa, equal_mean",
    ],
)
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path, parts: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT + parts, encoding="utf-8")
    run_in_two_processes(__file__, path, tmp_path / "two")
    train(read_recipe(path), tmp_path / "one", device="cpu")
    one, two = log_of(tmp_path / "one"), log_of(tmp_path / "two")
    assert len(one) == 4
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, rel=1e-4, abs=1e-4)
    states = [torch.load(tmp_path / name / "state.pt", weights_only=True) for name in ("one", "two")]
    averages = [state["memory"].get("average") or {} for state in states]
    for (name, first), second in zip(_tensors(averages[0]), dict(_tensors(averages[1])).values(), strict=True):
        assert torch.allclose(first.float(), second.float(), atol=1e-4), name
    assert bool(dict(_tensors(averages[0]))) == ("average" in parts)


def _tensors(state: Any, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """The tensors in a state, by their places."""
    if isinstance(state, torch.Tensor):
        return [(name, state)]
    return (
        [pair for key, value in state.items() for pair in _tensors(value, f"{name}.{key}")]
        if isinstance(state, dict)
        else []
    )


if __name__ == "__main__":  # one of several processes
    torch.set_num_threads(1)
    loop.STEPS_BETWEEN_LINES = 1
    shapes.DEFAULT_COUNT["train"] = 40
    train(read_recipe(sys.argv[1]), Path(sys.argv[2]), device="cpu")
