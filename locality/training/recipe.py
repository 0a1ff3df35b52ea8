"""A recipe: everything that decides the outcome of a training run, read from a TOML file and checked beforehand."""

from __future__ import annotations

import difflib
import math
import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from locality.errors import ArgumentError
from locality.types import Norm, Threat

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class DataPart:
    """The photographs to train on: a data set's name, its `train` split, and how many."""

    name: str
    limit: int | None = None


@dataclass(frozen=True)
class AugmentationPart:
    """Random changes of each image: mirrored or not, shifted by up to `shift` pixels, light and contrast by `colour`."""

    flip: bool = False
    shift: int = 0
    colour: float = 0.0


@dataclass(frozen=True)
class LossPart:
    """What is minimised. `epsilon` and what follows it are of the attack inside; `beta` is of TRADES."""

    name: str = "standard"
    norm: Literal["linf", "l2"] = "linf"
    epsilon: float = 0.0
    steps: int = 2
    step_size: float = 0.7  # in units of epsilon
    warm_up: float = 0.0  # share of the run over which epsilon grows to its full size
    attack_mode: Literal["eval", "train"] = "eval"  # of BatchNorm while the attack runs
    beta: float = 6.0
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class OptimizerPart:
    """Steps, and their size over the run: "one_cycle" rises for 30 % of it and falls to nothing."""

    name: Literal["sgd", "adamw"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # of matrices and kernels; biases and norms are left alone
    momentum: float = 0.9  # sgd
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    clip_norm: float | None = None


@dataclass(frozen=True)
class Recipe:
    """A training run."""

    name: str
    net: str
    data: DataPart
    epochs: int  # 0 leaves the weights as they were drawn, or as `start` has them
    start: str | None = None  # a model to go on from, of the same net: a name or a checkpoint; None draws weights anew
    batch_size: int = 64  # over all processes together
    seed: int = 0
    ema: float = 0.0  # decay of the averaged weights; 0 keeps the last ones
    precision: Literal["no", "bf16", "fp16"] = "no"
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.25, 0.25, 0.25)
    augmentation: AugmentationPart = field(default_factory=AugmentationPart)
    loss: LossPart = field(default_factory=LossPart)
    optimizer: OptimizerPart = field(default_factory=OptimizerPart)
    regularisers: dict[str, float] = field(default_factory=dict)  # name ↦ weight
    evaluate_epsilon: float = 4 / 255  # of the PGD that the card reports

    def as_table(self) -> dict[str, Any]:
        """The recipe as plain values, as it goes into the card."""
        table = asdict(self)
        if self.start is None:
            del table["start"]  # as if written before there was this key: older states and cards stay valid
        return table


def read_recipe(path: str | Path) -> Recipe:
    """The recipe in a file, or the one that ships under a name.

    >>> read_recipe("shapes_cnn").loss.name
    'standard'
    """
    found = Path(path)
    if not found.exists() and (RECIPES / f"{path}.toml").exists():
        found = RECIPES / f"{path}.toml"
    if not found.is_file():
        names = sorted(file.stem for file in RECIPES.glob("*.toml"))
        raise ValueError(f"`recipe` must be a TOML file or one of {', '.join(names)}, got {str(path)!r}")
    try:
        table = tomllib.loads(found.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"`{found}` is not a TOML file: {problem}") from None
    recipe: Recipe = _built(Recipe, table, str(found))
    check_recipe(recipe)
    return recipe


def check_recipe(recipe: Recipe) -> None:
    """Raise if the recipe cannot be run as it is."""
    from locality.training.losses import LOSSES, REGULARISERS
    from locality.zoo.nets import NETS

    _known("net", recipe.net, list(NETS))
    _known("loss.name", recipe.loss.name, list(LOSSES))
    for name in recipe.regularisers:
        _known("regularisers", name, list(REGULARISERS))
    if recipe.loss.name != "standard" and recipe.loss.epsilon <= 0:
        raise ValueError(f'`loss.epsilon` must be above 0 for {recipe.loss.name!r}, got {recipe.loss.epsilon}: say "4/255"')
    if not recipe.name or set(recipe.name) & set("/\\\0") or recipe.name.startswith("."):
        raise ValueError(f"`name` must be good for a file's name, got {recipe.name!r}")
    _check_numbers(recipe)
    budgets: dict[str, tuple[float, Norm]] = {"evaluate_epsilon": (recipe.evaluate_epsilon, "linf")}
    if recipe.loss.name != "standard":
        budgets["loss.epsilon"] = recipe.loss.epsilon, recipe.loss.norm
    for name, (epsilon, norm) in budgets.items():
        try:
            Threat(norm, epsilon)
        except ArgumentError as error:
            raise error.renamed(name) from None


def check_shift(recipe: Recipe, height: int, width: int) -> None:
    """Raise if images of this size cannot be shifted as far as the recipe says: what moves in is a mirrored edge."""
    if recipe.augmentation.shift >= min(height, width):
        raise ValueError(
            f"`augmentation.shift` must be less than the side of an image, got {recipe.augmentation.shift} for images of "
            f"{height}×{width}: a few pixels are usual"
        )


def _check_numbers(recipe: Recipe) -> None:
    """Raise if a number is out of its range; comparisons are written so that nan is, too."""
    positive = [
        ("batch_size", recipe.batch_size),
        ("optimizer.learning_rate", recipe.optimizer.learning_rate),
        ("optimizer.clip_norm", 1.0 if recipe.optimizer.clip_norm is None else recipe.optimizer.clip_norm),
        ("loss.steps", recipe.loss.steps),
        ("loss.step_size", recipe.loss.step_size),
        *(("std", value) for value in recipe.std),
    ]
    for name, number in positive:
        if not 0 < number < math.inf:
            raise ValueError(f"`{name}` must be above 0 and finite, got {number}")
    at_least_0 = {
        "epochs": recipe.epochs,
        "seed": recipe.seed,
        "augmentation.shift": recipe.augmentation.shift,
        "augmentation.colour": recipe.augmentation.colour,
        "loss.beta": recipe.loss.beta,
        "optimizer.weight_decay": recipe.optimizer.weight_decay,
    }
    for name, number in at_least_0.items():
        if not 0 <= number < math.inf:
            raise ValueError(f"`{name}` must be at least 0 and finite, got {number}")
    below_1 = {
        "ema": recipe.ema,
        "loss.label_smoothing": recipe.loss.label_smoothing,
        "optimizer.momentum": recipe.optimizer.momentum,
    }
    for name, number in below_1.items():
        if not 0 <= number < 1:
            raise ValueError(f"`{name}` must be at least 0 and below 1, got {number}")
    if recipe.seed >= 2**32:
        raise ValueError(f"`seed` must be below 2³², got {recipe.seed}")
    if not 0 <= recipe.loss.warm_up <= 1:
        raise ValueError(f"`loss.warm_up` must be a share from 0 to 1, got {recipe.loss.warm_up}")


def _known(name: str, given: str, names: list[str]) -> None:
    if given not in names:
        near = difflib.get_close_matches(given, names, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`{name}` must be one of {', '.join(names)}, got {given!r}{hint}")


def _built(kind: Any, table: dict[str, Any], where: str) -> Any:
    """A dataclass from a table, every key known and of the right type."""
    known = {entry.name: entry for entry in fields(kind)}
    hints = get_type_hints(kind)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else f": it may have {', '.join(known)}"
            raise ValueError(f"`{where}` has an unknown key {key!r}{hint}")
    for entry in known.values():
        if entry.name not in table and entry.default is MISSING and entry.default_factory is MISSING:
            raise ValueError(f"`{where}` must have the key {entry.name!r}")
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in table.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, options = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        if isinstance(value, dict):
            return _built(kind, value, where)
    elif origin is Literal:
        if value in options:
            return value
        raise ValueError(f"`{where}` must be one of {', '.join(map(str, options))}, got {value!r}")
    elif origin in (Union, UnionType):  # only `… | None` occurs
        return _value(next(option for option in options if option is not NoneType), value, where)
    elif origin is tuple:
        if isinstance(value, list) and len(value) == len(options):
            return tuple(_value(options[0], part, where) for part in value)
    elif origin is dict:
        if isinstance(value, dict):
            return {key: _value(options[1], part, f"{where}.{key}") for key, part in value.items()}
    elif kind is float:
        number = _number(value)
        if number is not None:
            return number
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    expected = getattr(kind, "__name__", str(kind)) if not is_dataclass(kind) else "a table"
    raise ValueError(f"`{where}` must be {expected}, got {value!r}")


def _number(value: Any) -> float | None:
    """A number, also written as a fraction in quotes: "4/255"."""
    if isinstance(value, str):
        try:
            return float(Fraction(value.replace(" ", "")))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
