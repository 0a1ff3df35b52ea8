"""The recipe of the control of a run with `step_size = { name = "wci" }`: the same mean learning rate, without WCI."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from locality.errors import ArgumentError
from locality.training.recipe import Recipe, recipe_from
from locality.training.schedules import Moment
from locality.training.step_size import CurvatureControl, EqualMean
from locality.zoo.model_card import read_card


def control_recipe(run: Path | str) -> str:
    """The control of a finished run as TOML: its recipe with the step size `equal_mean`, at the mean size of the run.

    Until `start` both runs are the same; from there on their learning rates have the same mean.
    """
    folder = Path(run)
    card = read_card(folder / f"{folder.name}.json")
    recipe = recipe_from({} if card.run is None else card.run.recipe, str(folder))
    control = recipe.step_size
    if not isinstance(control, CurvatureControl):
        raise ArgumentError("run", 'the folder of a run with step_size = { name = "wci" }', str(folder))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    mean = mean_size(recipe, control, [(line["step"], line["learning_rate"]) for line in lines])
    equal = replace(recipe, name=f"{recipe.name}_control", step_size=EqualMean(mean, control.plan, control.start))
    return toml_text(equal.as_table())


def mean_size(recipe: Recipe, control: CurvatureControl, rates: list[tuple[int, float]]) -> float:
    """The mean size of the steps from `start` on, in units of the learning rate; `rates` are (step, rate) of a log.

    A log has a line at the end of each epoch, and the factor of the plan changes only there. So each step has the factor of
    the next line.
    """
    steps, plan = rates[-1][0], control.plan(None)
    sizes: list[float] = []
    for step, rate in rates:
        planned = [plan.size(Moment.of(number, steps, recipe.epochs)) for number in range(len(sizes), step)]
        factor = rate / (recipe.optimizer.learning_rate * planned[-1])
        sizes += [factor * size for size in planned]
    after = sizes[math.ceil(control.start * steps) :]
    return math.fsum(after) / len(after)


def toml_text(table: Mapping[str, Any]) -> str:
    """A table as TOML, one line per key.

    >>> print(toml_text({"name": "a", "data": {"name": "shapes", "limit": 3}, "mean": [0.5, 1e-05]}), end="")
    name = "a"
    data = { name = "shapes", limit = 3 }
    mean = [0.5, 1e-05]
    """
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_value(part)}' for key, part in value.items())} }}" if value else "{}"
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
