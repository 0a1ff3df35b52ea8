"""What a suite consists of: models, data, and the measurements with their settings. Every class is frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from locality.runner.explain_batch import METHODS, Settings
from locality.types import Channels, Interpolation, Norm, Region, TargetName
from locality.zoo.load import known_card
from locality.zoo.model_card import ModelCard
from locality.zoo.trainings import UNKNOWN

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelChoice:
    """One model. For a model that is not in the catalog, the suite may say how it was trained."""

    name: str  # as in the results
    load: str = ""  # what `load_model` takes; the name if empty
    arch: str | None = None
    num_classes: int | None = None
    # This and the next seven as `load_model` takes them.
    input_size: int | tuple[int, int] | None = None  # height, width; one number for a square
    resize: int | None = None
    interpolation: Interpolation | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    classes: str | tuple[str, ...] | None = None  # a file with one class per line, or the classes
    multi_label: str | int | None = None  # one label of a multi-label network
    trust_code: bool = False  # of a TorchScript or torch.export file
    family: str | None = None  # robust models are compared with the standard one of their family
    training: str | None = None  # an id of zoo.trainings.TRAININGS
    norm: Norm | None = None  # of the threat trained against
    epsilon: float | None = None
    expect_accuracy: float | None = None  # an accuracy far below it is a warning; None: that of its card

    @property
    def source(self) -> str:
        return self.load or self.name

    @property
    def loading(self) -> dict[str, Any]:
        """The arguments of `load_model`, the name excepted."""
        names = ("arch", "num_classes", "input_size", "resize", "interpolation", "mean", "std", "classes")
        return {name: getattr(self, name) for name in (*names, "multi_label", "trust_code")}


@dataclass(frozen=True)
class DataChoice:
    """The images: a name that `load_dataset` takes; if empty, the data set of each model's classes."""

    name: str = ""
    limit: int | None = None
    seed: int = 0  # for the choice of images
    max_box_share: float = 0.8
    region: Region = "box"
    skip_bad: bool = False
    options: tuple[tuple[str, Any], ...] = ()  # of the source: boxes, count, cue_levels …


@dataclass(frozen=True)
class Suite:
    """Everything that a benchmark measures.

    `measurements` maps a name in MEASUREMENTS to its settings: one, or several for a measurement that is made several times.
    """

    name: str
    models: tuple[ModelChoice, ...]
    data: DataChoice = field(default_factory=DataChoice)
    methods: tuple[str, ...] = METHODS
    search: str = "fast"  # "none": no boundary, and no method that needs one
    target: TargetName = "predicted"
    channels: Channels = "all"
    rho: float = 0.0
    seed: int = 0  # for random numbers in methods, searches and attacks
    block: int | None = None  # images per unit of work; None: by the size of the images
    pairs: Pairs = ()  # (robust model, standard model), in addition to those of one family
    measurements: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return Settings(
            self.methods, None if self.search == "none" else self.search, self.target, self.channels, self.rho, self.seed
        )

    def requested(self, measurement: str) -> tuple[Any, ...]:
        """The settings of a measurement; none where the suite does not ask for it."""
        return tuple(self.measurements.get(measurement, ()))

    def located(self, measurement: str) -> Iterator[tuple[str, Any]]:
        """The settings of a measurement, each with its key in the TOML file: "searches", "robust[1]"."""
        several = self.requested(measurement)
        for index, settings in enumerate(several):
            yield measurement if len(several) == 1 else f"{measurement}[{index}]", settings

    def as_table(self) -> dict[str, Any]:
        """The suite as plain values, with the keys of the TOML file."""
        table = asdict(self)
        measurements: dict[str, Any] = table.pop("measurements")
        return table | measurements


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
