"""What a recipe is made of besides its exchangeable parts: the network, the images, their augmentation, fine-tuning."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import torch
from torch import nn

from locality.data.kinds import check_name
from locality.errors import ArgumentError, ModelError, Problem, unknown_choice
from locality.toml_settings import settings_from
from locality.training.data_options import option_problems
from locality.training.schedules import Moment
from locality.training.settings import at_least_0, from_0_to_1, positive, problem_of
from locality.zoo.architectures import build, check_library_net
from locality.zoo.nets import NETS

if TYPE_CHECKING:
    from locality.training.recipe import Recipe

LIBRARIES = ("timm:", "torchvision:")
WRITTEN = "timm:NAME or torchvision:NAME"
GENERATED = ("shapes", "photos")  # data without a path
MAX_SIZE = 1_024  # of training images: larger ones are a typing error


@dataclass(frozen=True)
class Net:
    """A network of `NETS` and its options, or one of timm or torchvision.

    In TOML: `net = "timm:resnet18"`, `net = { name = "tiny_vit", depth = 6 }`.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether it is one of `NETS`."""
        return not self.name.startswith(LIBRARIES)

    @property
    def architecture(self) -> str:
        """The architecture as cards name it."""
        return f"net:{self.name}" if self.is_own else self.name

    def without_weights(self) -> nn.Module:
        """The network for two classes, to look at its layers; those of locality have no memory for weights."""
        if not self.is_own:
            return build(self.architecture, 2)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            return NETS[self.name](2, **self.options)

    def problems(self) -> list[Problem]:
        if not self.is_own:
            return self._library_problems()
        problems: list[Problem] = []
        if self.name not in NETS:
            return [problem_of(unknown_choice("name", self.name, NETS, also=WRITTEN))]
        _typed_options(self.name, self.options, "", problems)
        return problems

    def _library_problems(self) -> list[Problem]:
        """Whether the library has the network; of a tagged name such as timm:resnet18.a1_in1k, that is a start."""
        if self.options:
            return [Problem("", f"must have no options for {self.name}, got {', '.join(self.options)}")]
        try:
            check_library_net(self.name)
        except ModelError as error:
            return [Problem("name", f"is unknown: {error}")]
        return []


@dataclass(frozen=True)
class TrainingData:
    """The images to train on: the `train` split of a data set."""

    name: str
    limit: int | None = None  # maximum number of images, balanced over the classes
    size: int | None = None  # side that images are resized to, the model's input size; None: as the network takes them
    options: dict[str, Any] = field(default_factory=dict)  # of `load_dataset`: in TOML beside the name, as those of a net

    def as_table(self) -> dict[str, Any]:
        """The table that TOML has."""
        own = {"name": self.name, "limit": self.limit, "size": self.size}
        return {key: value for key, value in own.items() if value is not None} | self.options

    def problems(self) -> list[Problem]:
        problems = [] if self.limit is None else positive("limit", self.limit)
        if self.size is not None and not 1 <= self.size <= MAX_SIZE:
            problems.append(Problem("size", f"must be a number of pixels from 1 to {MAX_SIZE:,}, got {self.size}"))
        try:
            check_name(self.name)
        except ArgumentError as error:
            return [*problems, problem_of(error, "name")]
        return problems + option_problems(self.name, self.options)

    def problems_here(self) -> list[Problem]:
        """Whether there are such data on this machine."""
        kind, _, place = self.name.partition(":")
        if not place or kind in GENERATED or Path(place).expanduser().exists():
            return []
        return [Problem("data.name", f"must name data that exist, but there is no file or folder {place!r}")]


@dataclass(frozen=True)
class Augmentation:
    """Random changes of each image."""

    flip: bool = False  # mirror half of the images
    shift: int = 0  # by up to this many pixels in each direction
    colour: float = 0.0  # strength of the changes of brightness and contrast
    cutout: int = 0  # side of a square, at a random place, that gets the image's mean colour
    zoom: float = 0.0  # larger or smaller, by a factor of up to 1 + zoom
    turn: float = 0.0  # by up to this many degrees in each direction

    def problems(self) -> list[Problem]:
        return [problem for name, value in vars(self).items() for problem in at_least_0(name, value)]


@dataclass(frozen=True)
class FineTuning:
    """How the weights of a `start` are trained on: carefully in all layers before the head."""

    body_rate: float = 0.1  # learning rate of the layers before the head, as a share of `learning_rate`; 0: they stay
    head_epochs: int = 0  # first epochs, in which the head alone is trained
    batch_norm: Literal["frozen", "train"] = "frozen"  # frozen: BatchNorm keeps the start's statistics

    def problems(self) -> list[Problem]:
        return from_0_to_1("body_rate", self.body_rate) + at_least_0("head_epochs", self.head_epochs)

    def problems_with(self, recipe: Recipe) -> list[Problem]:
        return [] if recipe.start else [Problem("", "needs `start`, the model whose weights are trained on")]

    def trains_body(self, moment: Moment) -> bool:
        """Whether the layers before the head move in this step."""
        return self.body_rate > 0 and moment.epoch >= self.head_epochs


def net_table(table: Mapping[str, Any] | str, problems: list[Problem]) -> dict[str, Any]:
    """The table of a net with its options, which TOML has beside the name, in a table of their own."""
    if isinstance(table, str):
        return {"name": table, "options": {}}
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
