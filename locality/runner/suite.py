"""What a suite consists of: models, data, and the measurements with their settings. Every class is frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from locality.robustness import Attack
from locality.runner.evaluate import METHODS, Settings
from locality.types import Channels, Norm, Region
from locality.zoo.load import known_card
from locality.zoo.model_card import ModelCard
from locality.zoo.trainings import UNKNOWN

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelChoice:
    """One model. What the catalog does not know about a model of one's own may be said here."""

    name: str  # as results show it
    load: str = ""  # what `load_model` takes; the name if empty
    arch: str | None = None
    num_classes: int | None = None
    family: str | None = None  # models of one family are twins, the standard one first
    training: str | None = None  # an id of zoo.trainings.TRAININGS
    norm: Norm | None = None  # of the attack trained against
    epsilon: float | None = None

    @property
    def source(self) -> str:
        return self.load or self.name


@dataclass(frozen=True)
class DataChoice:
    """The images: a name of `load_dataset`, or that of each model's own classes where it is empty."""

    name: str = ""
    limit: int | None = None
    seed: int = 0  # draws which images
    max_box_share: float = 0.8
    region: Region = "box"
    skip_bad: bool = False
    options: tuple[tuple[str, Any], ...] = ()  # of the source: boxes, count, cue_levels …


@dataclass(frozen=True)
class RobustPart:
    """Accuracy under one attack; AutoAttack draws its random numbers for `batch_size` images together."""

    norm: Norm = "linf"
    epsilon: float = 4 / 255
    attack: Attack = "paper"
    limit: int | None = None
    batch_size: int = 32
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class FaithfulnessPart:
    """INFD under several noises and the completeness gap; the suite's methods unless others are named."""

    methods: tuple[str, ...] = ()
    limit: int | None = None
    samples: int = 100
    sigma: float = 0.03
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class SanityPart:
    """Maps before and after layers are drawn anew, `layers_at_once` from the top."""

    methods: tuple[str, ...] = ()
    limit: int = 16
    layers_at_once: int = 5
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchesPart:
    """Boundary searches side by side on the same images: distance, success, evaluations, time."""

    names: tuple[str, ...] = ("fast", "paper")
    limit: int = 64
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """Everything that a benchmark measures: accuracy and locality always, the rest where it is asked for.

    `models` of a part names those that it is measured for; none means all.
    """

    name: str
    models: tuple[ModelChoice, ...]
    data: DataChoice = field(default_factory=DataChoice)
    methods: tuple[str, ...] = METHODS
    search: str = "fast"  # "none": no boundary, and no method that needs one
    target: Literal["predicted", "label"] = "predicted"
    channels: Channels = "all"
    rho: float = 0.0
    seed: int = 0  # of whatever is random in methods, searches and attacks
    block: int | None = None  # images of one unit of work; by the size of the images if not given
    gallery: int = 0  # images whose maps are kept for pictures
    similarity: bool = False
    robust: tuple[RobustPart, ...] = ()
    faithfulness: FaithfulnessPart | None = None
    sanity: SanityPart | None = None
    searches: SearchesPart | None = None
    pairs: Pairs = ()  # (model, the standard model it is compared with), where the families do not say it

    @property
    def settings(self) -> Settings:
        return Settings(
            self.methods, None if self.search == "none" else self.search, self.target, self.channels, self.rho, self.seed
        )


def card_of(choice: ModelChoice) -> ModelCard | None:
    """The card of the model: the catalog's, or the one beside its checkpoint, unless `arch` says to ignore that."""
    return None if choice.arch else known_card(choice.source)


def trained(choice: ModelChoice) -> str:
    """The training id that the suite gives for the model, else that of its card.

    >>> trained(ModelChoice("shapes_cnn_robust")), trained(ModelChoice("ours", "ours.safetensors"))
    ('at', 'unknown')
    """
    card = card_of(choice)
    return choice.training or (UNKNOWN if card is None else card.training)
