"""A recipe: everything that decides the outcome of a training run, read from a TOML file and checked before the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from locality.errors import ArgumentError, Problem, unknown_choice
from locality.toml_settings import read_toml
from locality.training.averaging import AVERAGES, AverageSettings, NoAverage
from locality.training.data_options import data_table
from locality.training.losses import LOSSES
from locality.training.losses.standard import Standard
from locality.training.monitor_settings import MonitorSettings
from locality.training.optimizer import Optimizer
from locality.training.recipe_parts import Augmentation, FineTuning, Net, TrainingData, net_table
from locality.training.regularisers import REGULARISERS
from locality.training.settings import (
    at_least_0,
    chosen_from,
    name_in,
    path,
    positive,
    problem_of,
    problems_in,
    read_settings,
    table_of,
)
from locality.training.start import start_input, start_net, start_problems, start_problems_here
from locality.training.step import Loss, Regulariser, WeightShift
from locality.training.step_size import STEP_SIZES, OneCycle, StepSizeSettings
from locality.training.validation import Validation
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.training.weight_shifts.no_shift import NoShift
from locality.types import Threat

IN_MEMORY = "in memory"  # in place of the names of a network, data and start that are given in memory
RECIPES = Path(__file__).parent / "recipes"


class RecipeError(ValueError):
    """A recipe that cannot run; `problems` lists every reason."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name, self.problems = name, tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"`{name}` is not a valid recipe, {count}: {'; '.join(map(str, problems))}")

    def __reduce__(self) -> tuple[type[RecipeError], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.name, self.problems)


@dataclass(frozen=True)
class Recipe:
    """A training run."""

    name: str
    net: Net
    data: TrainingData
    epochs: int  # 0 keeps the initial weights, random or those of `start`
    start: str | None = None  # the model to start from, of the same net: a name or a checkpoint; None: random weights
    batch_size: int = 64  # over all processes together
    seed: int = 0
    precision: Literal["no", "bf16", "fp16"] = "no"
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.25, 0.25, 0.25)
    augmentation: Augmentation = field(default_factory=Augmentation)
    loss: Loss = field(default=Standard(), metadata=chosen_from(LOSSES))
    regularisers: dict[str, Regulariser] = field(default_factory=dict)  # by the names of REGULARISERS
    weight_shift: WeightShift = field(default=NoShift(), metadata=chosen_from(WEIGHT_SHIFTS))
    optimizer: Optimizer = field(default_factory=Optimizer)
    step_size: StepSizeSettings = field(default=OneCycle(), metadata=chosen_from(STEP_SIZES))
    average: AverageSettings = field(default=NoAverage(), metadata=chosen_from(AVERAGES))
    evaluate_epsilon: float = 4 / 255  # of the ℓ∞ attack whose accuracy every card reports
    validation: Validation | None = None  # a held-out part that chooses the best epoch; None: the last epoch is kept
    monitor: MonitorSettings | None = None  # what is measured at the ends of epochs, besides the log
    fine_tuning: FineTuning | None = None  # how the weights of `start` are trained on; None: as random ones are

    @property
    def loss_name(self) -> str:
        """The name of the loss in `LOSSES`."""
        return name_in(LOSSES, self.loss)

    @property
    def threat(self) -> Threat | None:
        """What the model is trained against; None where the loss names nothing."""
        threat: Threat | None = getattr(self.loss, "threat", None)
        return threat

    @property
    def keeps_statistics(self) -> bool:
        """Whether BatchNorm keeps the statistics of the start."""
        return self.fine_tuning is not None and self.fine_tuning.batch_norm == "frozen"

    def as_table(self) -> dict[str, Any]:
        """The recipe as plain values, all of them stated; `recipe_from` reads it back."""
        table = table_of(self)
        table["net"] = {"name": self.net.name, **self.net.options}
        table["data"] = self.data.as_table()
        return table

    def problems(self) -> list[Problem]:
        problems = [
            *positive("batch_size", self.batch_size),
            *at_least_0("epochs", self.epochs),
            *at_least_0("seed", self.seed),
        ]
        if self.seed >= 2**32:
            problems.append(Problem("seed", f"must be below 2³², got {self.seed}"))
        problems += [] if self.start is None else start_problems(self.start)
        if not self.name or set(self.name) & set("/\\\0") or self.name.startswith("."):
            problems.append(Problem("name", f"must be usable as a file name, got {self.name!r}"))
        if not all(0 < value < float("inf") for value in self.std):
            problems.append(Problem("std", f"must be above 0 and finite, got {self.std}"))
        try:
            Threat("linf", self.evaluate_epsilon)
        except ArgumentError as error:
            problems.append(problem_of(error, "evaluate_epsilon"))
        return problems + self._combination_problems()

    def _combination_problems(self) -> list[Problem]:
        """What the parts have against the rest of the recipe: each may have a method `problems_with(recipe)`."""
        parts: dict[str, Any] = {
            "loss": self.loss,
            "weight_shift": self.weight_shift,
            "step_size": self.step_size,
            "average": self.average,
            "fine_tuning": self.fine_tuning,
            "validation": self.validation,
            **{path("regularisers", name): part for name, part in self.regularisers.items()},
        }
        return [
            Problem(path(where, problem.where), problem.text)
            for where, part in parts.items()
            if hasattr(part, "problems_with")
            for problem in part.problems_with(self)
        ]


def read_recipe(source: str | Path) -> Recipe:
    """The recipe in a TOML file, or the one that ships under a name; RecipeError lists everything that is wrong with it.

    >>> read_recipe("shapes_cnn").loss_name
    'standard'
    """
    file = Path(source)
    if not file.is_file() and (RECIPES / f"{source}.toml").exists():
        file = RECIPES / f"{source}.toml"
    if not file.is_file():
        names = sorted(shipped.stem for shipped in RECIPES.glob("*.toml"))
        raise unknown_choice("recipe", str(source), names, also="a TOML file")
    return recipe_from(read_toml(file), str(file), here=True)


def recipe_from(table: Mapping[str, Any], source: str, here: bool = False) -> Recipe:
    """The recipe in a table, as a TOML file or a model's card holds it; `source` names it in the error.

    A recipe to run `here` must find its data and its start on this machine.
    """
    problems: list[Problem] = []
    plain = {key: value for key, value in table.items() if key != "regularisers"}
    if isinstance(table.get("net"), Mapping | str):
        plain["net"] = net_table(table["net"], problems)
    if isinstance(table.get("data"), Mapping):
        plain["data"] = data_table(table["data"], problems)
    plain |= _from_start(plain, problems)
    fallback = {"name": "recipe", "net": Net("shapes_cnn"), "data": TrainingData("shapes"), "epochs": 0}
    settings = read_settings(Recipe, plain, "", problems, **fallback)
    regularisers = _regularisers(table.get("regularisers", {}), problems)
    recipe = Recipe(**vars(settings) | {"regularisers": regularisers})
    wrong = {problem.where for problem in problems}
    further = problems_in(recipe) + (problems_here(recipe) if here else [])
    problems += [problem for problem in further if problem.where not in wrong]
    if problems:
        raise RecipeError(source, problems)
    return recipe


def problems_here(recipe: Recipe) -> list[Problem]:
    """What the recipe needs and this machine does not have."""
    of_start = [] if recipe.start is None or start_problems(recipe.start) else start_problems_here(recipe.start, recipe.net)
    return of_start + recipe.data.problems_here()


def check_recipe(recipe: Recipe, in_memory: bool = False) -> None:
    """Raise a RecipeError if the recipe cannot run. Network and data that are given `in_memory` are not named by it."""
    problems = problems_in(recipe) + problems_here(recipe)
    if in_memory:
        problems = [problem for problem in problems if not problem.where.startswith(("net", "data", "start"))]
    unknown = sorted(set(recipe.regularisers) - set(REGULARISERS))
    problems += [problem_of(unknown_choice("regularisers", name, REGULARISERS)) for name in unknown]
    if problems:
        raise RecipeError(recipe.name, problems)


def _from_start(table: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """What a recipe leaves out and its `start` says: the network, and the mean and deviation that its pixels get."""
    start, named = table.get("start"), table.get("net")
    if not isinstance(start, str) or {"net", "mean", "std"} <= set(table) or (named is not None and problems):
        return {}
    given = Net(**named) if isinstance(named, Mapping) and isinstance(named.get("name"), str) else None
    if given is not None and given.problems():
        return {}
    wrong = start_problems(start) or start_problems_here(start, given)
    if wrong:
        if "net" in table:
            return {}  # the start's problems are listed with the recipe's own
        problems += [problem for problem in wrong if problem.where == "net"]
        return {"net": {"name": "shapes_cnn"}}  # a stand-in, so that the net is not said to be missing, too
    net = given or start_net(start)
    if net is None:
        return {}
    seen = start_input(start, net)
    filled = {"net": {"name": net.name, "options": net.options}, "mean": list(seen.mean), "std": list(seen.std)}
    return {key: value for key, value in filled.items() if key not in table}


def _regularisers(table: Any, problems: list[Problem]) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        problems.append(Problem("regularisers", f"must be a table, got {table!r}"))
        return {}
    read = {}
    for name, settings in table.items():
        where = path("regularisers", name)
        if name not in REGULARISERS:
            problems.append(problem_of(unknown_choice("regularisers", name, REGULARISERS)))
        elif not isinstance(settings, Mapping):
            problems.append(Problem(where, f"must be a table such as {{ weight = 0.01 }}, got {settings!r}"))
        else:
            read[name] = read_settings(REGULARISERS[name], settings, where, problems)
    return {name: regulariser for name, regulariser in read.items() if regulariser is not None}
