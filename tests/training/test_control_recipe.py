"""The control of a run with curvature control: the same mean learning rate, exactly."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from locality.data.sources import shapes
from locality.training import loop
from locality.training.control_recipe import control_recipe, mean_size, toml_text
from locality.training.export import write_model
from locality.training.loop import train
from locality.training.monitor_settings import MonitorSettings
from locality.training.optimizer import Optimizer
from locality.training.recipe import Recipe, read_recipe, recipe_from
from locality.training.recipe_parts import Net, TrainingData
from locality.training.schedules import Moment
from locality.training.step_size import Cosine, CurvatureControl, EqualMean, Piecewise

CONTROLLED = Recipe(
    name="controlled",
    net=Net("shapes_cnn"),
    data=TrainingData("shapes", limit=40),
    epochs=4,
    batch_size=10,
    optimizer=Optimizer("sgd", learning_rate=0.05),
    step_size=CurvatureControl(Piecewise((0.5,)), multiple=0.4),
    monitor=MonitorSettings(images=10, steps=1, probes=2),
)


def rates_of(folder: Path) -> list[float]:
    return [json.loads(line)["learning_rate"] for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_run_and_its_control_have_the_same_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "DEFAULT_COUNT", {"eval": 20, "train": 40})
    folder = tmp_path / CONTROLLED.name
    write_model(train(CONTROLLED, folder, device="cpu"), CONTROLLED, folder)
    (tmp_path / "control.toml").write_text(control_recipe(folder), encoding="utf-8")
    control = read_recipe(tmp_path / "control.toml")
    assert isinstance(control.step_size, EqualMean)
    assert replace(control, name="controlled", step_size=CONTROLLED.step_size) == CONTROLLED
    monkeypatch.setattr(loop, "STEPS_BETWEEN_LINES", 1)
    train(control, tmp_path / "control", device="cpu")
    train(CONTROLLED, tmp_path / "again", device="cpu")  # with a line for every step
    before, after = rates_of(tmp_path / "again"), rates_of(tmp_path / "control")
    assert len(before) == len(after) == 16
    assert before[:8] == after[:8] == [0.05] * 8
    assert sum(before[8:]) == pytest.approx(sum(after[8:]), rel=1e-12)
    assert before[8:] != after[8:]
    assert max(before[12:]) < 0.005  # the control was at work after its first measurement
    write_model(train(control, tmp_path / control.name, device="cpu"), control, tmp_path / control.name)
    with pytest.raises(ValueError, match=r'`run` must be the folder of a run with step_size = \{ name = "wci" \}'):
        control_recipe(tmp_path / control.name)


def test_the_mean_of_a_plan_that_changes_at_every_step() -> None:
    control = CurvatureControl(Cosine(), start=0.5)
    recipe = replace(CONTROLLED, epochs=2, step_size=control)
    plan = [Cosine().plan(Moment.of(step, 8, 2)) for step in range(8)]
    rates = [(4, 0.05 * plan[3]), (8, 0.05 * 0.5 * plan[7])]  # a line per epoch
    assert mean_size(recipe, control, rates) == pytest.approx(0.5 * sum(plan[4:]) / 4)


@pytest.mark.parametrize("name", ["tiny_resnet_trades", "shapes_vit_robust", "tiny_resnet_l2"])
def test_recipes_survive_toml(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe_from(tomllib.loads(toml_text(recipe.as_table())), "text") == recipe
