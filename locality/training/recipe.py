"""A recipe: everything that decides the outcome of a training run, read from a TOML file and checked before the run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from torch import nn

from locality.data.kinds import check_name
from locality.errors import ArgumentError, Problem, unknown_choice
from locality.toml_settings import read_toml, settings_from
from locality.training.averaging import AVERAGES, AverageSettings, NoAverage
from locality.training.losses import LOSSES
from locality.training.losses.standard import Standard
from locality.training.monitor_settings import MonitorSettings
from locality.training.optimizer import Optimizer
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
from locality.training.step import Loss, Regulariser, WeightShift
from locality.training.step_size import STEP_SIZES, OneCycle, StepSizeSettings
from locality.training.weight_shifts import WEIGHT_SHIFTS
from locality.training.weight_shifts.no_shift import NoShift
from locality.types import Threat
from locality.zoo.architectures import is_function
from locality.zoo.nets import NETS

MAX_SIZE = 1_024  # of training images: larger ones are a typing error
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
class Net:
    """A network of `NETS` and its options; `net = { name = "tiny_vit", depth = 6 }` in TOML."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.name not in NETS:
            return [problem_of(unknown_choice("name", self.name, NETS))]
        _typed_options(self.name, self.options, "", problems)
        return problems


@dataclass(frozen=True)
class TrainingData:
    """The images to train on: the `train` split of a data set."""

    name: str
    limit: int | None = None  # maximum number of images, balanced over the classes
    size: int | None = None  # side that images are resized to, the model's input size; None: as the network takes them

    def problems(self) -> list[Problem]:
        problems = [] if self.limit is None else positive("limit", self.limit)
        if self.size is not None and not 1 <= self.size <= MAX_SIZE:
            problems.append(Problem("size", f"must be a number of pixels from 1 to {MAX_SIZE:,}, got {self.size}"))
        try:
            check_name(self.name)
        except ArgumentError as error:
            problems.append(problem_of(error, "name"))
        return problems


@dataclass(frozen=True)
class Augmentation:
    """Random changes of each image."""

    flip: bool = False  # mirror half of the images
    shift: int = 0  # by up to this many pixels in each direction
    colour: float = 0.0  # strength of the changes of brightness and contrast
    cutout: int = 0  # side of a square, at a random place, that gets the image's mean colour

    def problems(self) -> list[Problem]:
        return [problem for name, value in vars(self).items() for problem in at_least_0(name, value)]


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
    monitor: MonitorSettings | None = None  # what is measured at the ends of epochs, besides the log

    @property
    def loss_name(self) -> str:
        """The name of the loss in `LOSSES`."""
        return name_in(LOSSES, self.loss)

    @property
    def threat(self) -> Threat | None:
        """What the model is trained against; None where the loss names nothing."""
        threat: Threat | None = getattr(self.loss, "threat", None)
        return threat

    def as_table(self) -> dict[str, Any]:
        """The recipe as plain values, all of them stated; `recipe_from` reads it back."""
        table = table_of(self)
        table["net"] = {"name": self.net.name, **self.net.options}
        return table

    def problems(self) -> list[Problem]:
        problems = [
            *positive("batch_size", self.batch_size),
            *at_least_0("epochs", self.epochs),
            *at_least_0("seed", self.seed),
        ]
        if self.seed >= 2**32:
            problems.append(Problem("seed", f"must be below 2³², got {self.seed}"))
        if self.start is not None and is_function(self.start):
            problems.append(Problem("start", f"must be a model or a checkpoint, not code to run, got {self.start!r}"))
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
    return recipe_from(read_toml(file), str(file))


def recipe_from(table: Mapping[str, Any], source: str) -> Recipe:
    """The recipe in a table, as a TOML file or a model's card holds it; `source` names it in the error."""
    problems: list[Problem] = []
    plain = {key: value for key, value in table.items() if key != "regularisers"}
    if isinstance(table.get("net"), Mapping):
        plain["net"] = _with_options_apart(table["net"], problems)
    fallback = {"name": "recipe", "net": Net("shapes_cnn"), "data": TrainingData("shapes"), "epochs": 0}
    settings = read_settings(Recipe, plain, "", problems, **fallback)
    regularisers = _regularisers(table.get("regularisers", {}), problems)
    recipe = Recipe(**vars(settings) | {"regularisers": regularisers})
    wrong = {problem.where for problem in problems}
    problems += [problem for problem in problems_in(recipe) if problem.where not in wrong]
    if problems:
        raise RecipeError(source, problems)
    return recipe


def check_recipe(recipe: Recipe) -> None:
    """Raise a RecipeError if the recipe cannot run."""
    problems = problems_in(recipe)
    unknown = sorted(set(recipe.regularisers) - set(REGULARISERS))
    problems += [problem_of(unknown_choice("regularisers", name, REGULARISERS)) for name in unknown]
    if problems:
        raise RecipeError(recipe.name, problems)


def new_net(recipe: Recipe, classes: int) -> nn.Module:
    """The recipe's network, initialised from torch's random numbers."""
    try:
        return NETS[recipe.net.name](classes, **recipe.net.options)
    except ArgumentError as error:
        raise error.renamed(f"net.{error.argument}") from None


def check_augmentation(recipe: Recipe, height: int, width: int) -> None:
    """Raise if images of this size cannot be shifted as far as the recipe says, or have no room for its cutout.

    What a shift moves in is a mirrored edge, so it must be less than the side.
    """
    pixels = {
        "shift": (recipe.augmentation.shift, "a few pixels"),
        "cutout": (recipe.augmentation.cutout, "a quarter of it"),
    }
    for name, (value, usual) in pixels.items():
        if value >= min(height, width):
            expected = f"less than the side of an image, which is {height}×{width}"
            raise ArgumentError(f"augmentation.{name}", expected, value, f"{usual} is usual")


def _with_options_apart(table: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The table of a net with its options, which TOML has beside the name, in a table of their own."""
    options = {key: value for key, value in table.items() if key != "name"}
    if table.get("name") in list(NETS):  # a list, since what TOML has there may not be hashable
        options = _typed_options(table["name"], options, "net", problems)
    return {key: table[key] for key in table if key == "name"} | {"options": options}


def _typed_options(name: str, options: Mapping[str, Any], where: str, problems: list[Problem]) -> dict[str, Any]:
    """The options of a net, checked against the keyword arguments of its function."""
    function = NETS[name]
    hints = get_type_hints(function)
    keywords = [
        (parameter.name, hints[parameter.name], field(default=parameter.default))
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    settings = settings_from(make_dataclass("Options", keywords), options, where, problems)
    return {key: getattr(settings, key) for key in options if hasattr(settings, key)}


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
