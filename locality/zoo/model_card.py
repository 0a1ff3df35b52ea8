"""`ModelCard`: everything that is known about a model, in one record.

The catalog is a table of cards. `locality train` writes one as `NAME.json` beside `NAME.safetensors`. A benchmark plans
with one per model. This module does not import torch.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from locality.errors import ArgumentError, ModelError, Problem
from locality.files import write_atomically
from locality.toml_settings import read_json, settings_from
from locality.types import NORMS, ModelSpec, Threat
from locality.zoo.trainings import UNKNOWN, KindOrUnknown, kind_of, title_of

CHECKPOINT_SUFFIXES = {".safetensors", ".pth", ".pt", ".pt2", ".ckpt", ".bin", ".tar", ".pkl"}
# What a card that a person writes may leave out: `spec` alone is needed, and of that not every field.
OPTIONAL = {"architecture": "", "parameters": 0, "data": ""}
BUILT_HERE = ("net:", "timm:", "torchvision:")  # architectures that a card may name: none of them runs the reader's code


@dataclass(frozen=True)
class Address:
    """Weights to fetch. Without a published checksum, the first download needs trust; its own is stored for later ones."""

    url: str
    file: str  # its name in the cache
    checksum: str | None = None  # "sha256:" and at least its first 8 hexadecimal digits


@dataclass(frozen=True)
class Package:
    """Weights inside a Python package. Its tensors have other names than the network's and are matched by their order."""

    module: str
    file: str
    checksum: str


@dataclass(frozen=True)
class WeightFile:
    """Weights in a file on this machine, such as those that ship with locality."""

    path: str
    checksum: str


@dataclass(frozen=True)
class Seed:
    """No weights: the architecture's own initialisation with this seed."""

    seed: int


Weights = Address | Package | WeightFile | Seed


@dataclass(frozen=True)
class AttackedAccuracy:
    """Share of images that are classified correctly under an attack."""

    threat: Threat
    attack: str  # "autoattack", "pgd10"
    share: float

    def __str__(self) -> str:
        return f"{self.threat} {self.attack}"


@dataclass(frozen=True)
class TrainingRun:
    """How a model was trained with locality."""

    data_hash: str  # of the manifest trained on
    recipe: dict[str, Any] = field(hash=False)
    seed: int
    minutes: float
    versions: dict[str, str] = field(hash=False)  # of Python and the packages used


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """One model: what it expects of its images, where its weights are, how it was trained and how accurate it is.

    `accuracy` maps a measurement to the share of correct images: "clean", a variant of the data ("swapped"), or an attack,
    written as `accuracy_name` does it ("linf 4/255 autoattack"). A robust accuracy means nothing without its attack.
    """

    spec: ModelSpec  # its classes may be empty where `data` names them ("imagenet")
    architecture: str  # "timm:NAME", "torchvision:NAME", "net:NAME" or "package.module:function"; "": not stated
    options: dict[str, Any] = field(default_factory=dict, hash=False)  # of the architecture: depth, width
    weights: Weights | None = None  # None: whatever the model was loaded with
    parameters: int
    data: str  # trained on: "imagenet", "cifar10", "shapes", "tiny-imagenet"
    training: str = UNKNOWN  # an id of TRAININGS, or of a loss that was added to this installation
    threat: Threat | None = None  # trained against
    accuracy: dict[str, float] = field(default_factory=dict, hash=False)
    licence: str = ""
    paper: str = ""
    note: str = ""
    run: TrainingRun | None = None

    def __post_init__(self) -> None:
        for measurement, share in self.accuracy.items():
            if not 0 <= share <= 1:
                raise ArgumentError(f"accuracy.{measurement}", "a share between 0 and 1", share)
        if not all(map(math.isfinite, self.spec.mean)) or not all(0 < deviation < math.inf for deviation in self.spec.std):
            raise ArgumentError("spec", "finite means and positive standard deviations", (self.spec.mean, self.spec.std))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> KindOrUnknown:
        """Standard, robust, certified, random or unknown."""
        return kind_of(self.training)

    @property
    def trained(self) -> str:
        """The training and its threat, as tables print them.

        >>> from locality.zoo.catalog import find_card
        >>> find_card("vit_b16_robust").trained, find_card("resnet50_l2_3").trained
        ('AT ℓ∞ 4/255', 'AT ℓ2 3')
        """
        return f"{title_of(self.training)}{'' if self.threat is None else f' {self.threat}'}"

    @property
    def clean(self) -> float | None:
        """Share of unperturbed images that are classified correctly."""
        return self.accuracy.get("clean")

    @property
    def attacked(self) -> tuple[AttackedAccuracy, ...]:
        """Every accuracy under attack."""
        parsed = ((attack_in(measurement), share) for measurement, share in self.accuracy.items())
        return tuple(AttackedAccuracy(*attack, share) for attack, share in parsed if attack is not None)

    @property
    def robust(self) -> AttackedAccuracy | None:
        """The accuracy under the threat that the model was trained for, else the first one under attack."""
        return next((one for one in self.attacked if one.threat == self.threat), next(iter(self.attacked), None))


def accuracy_name(threat: Threat, attack: str) -> str:
    """The key of an accuracy under attack.

    >>> accuracy_name(Threat("linf", 4 / 255), "pgd10")
    'linf 4/255 pgd10'
    """
    return f"{threat.norm} {threat.radius_text} {attack}"


def certified_name(threat: Threat) -> str:
    """The key of a certified accuracy: the share of images that are classified correctly, provably so within the radius.

    >>> certified_name(Threat("l2", 36 / 255))
    'certified l2 36/255'
    """
    return f"certified {threat.norm} {threat.radius_text}"


def attack_in(measurement: str) -> tuple[Threat, str] | None:
    """The threat and the attack that a key of `accuracy` names, or None where it names none.

    >>> attack_in("l2 0.5 pgd100"), attack_in("swapped")
    ((Threat(norm='l2', radius=0.5), 'pgd100'), None)
    """
    norm, _, rest = measurement.partition(" ")
    radius, _, attack = rest.partition(" ")
    return (Threat.parse(f"{norm} {radius}"), attack) if norm in NORMS and attack else None


def card_path(weights: Path) -> Path:
    """Where the card of a file of weights is.

    >>> card_path(Path("runs/mine.safetensors")).name, card_path(Path("best.v2.pth.tar")).name
    ('mine.json', 'best.v2.json')
    """
    name = weights
    while name.suffix in CHECKPOINT_SUFFIXES:
        name = name.with_suffix("")
    return weights.with_name(f"{name.name}.json")


def plain_card(card: ModelCard) -> dict[str, Any]:
    """The card as plain values, without those that are not known."""
    table = {name: value for name, value in asdict(card).items() if value not in (None, "", {})}
    return table | {"spec": {name: value for name, value in table["spec"].items() if value is not None}}


def write_card(card: ModelCard, path: Path) -> None:
    """Write the card of a file of weights as JSON, atomically."""
    if not isinstance(card.weights, WeightFile):
        raise ArgumentError("card", "the card of a file of weights", card.weights)
    table = plain_card(card)
    # The weights are beside their card, wherever both are moved to; only their hash is recorded.
    table["weights"] = {"sha256": card.weights.checksum.removeprefix("sha256:")}
    write_atomically(path, json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_card(path: Path) -> ModelCard:
    """The card at `path`, whose weights are beside it; an invalid card is an error that lists all problems.

    A card that a person writes needs `spec` alone: what it leaves out has its default, and the name is the file's. Without
    the `sha256` of the weights, they are not verified.
    """
    table = _table_in(path)
    problems: list[Problem] = []
    digest = _digest(table.pop("weights", {"sha256": ""}), problems)
    weights = WeightFile(str(path.with_suffix(".safetensors")), f"sha256:{digest}")
    if isinstance(table.get("spec"), dict):
        table["spec"] = {"name": path.stem} | table["spec"]
    try:
        card = settings_from(ModelCard, OPTIONAL | table, "", problems)
    except ValueError as error:  # of a value that has the right type, but makes no sense
        raise _not_a_card(path, str(error)) from None
    if card is not None and card.architecture and not card.architecture.startswith(BUILT_HERE):
        expected = " or ".join(f"{start}NAME" for start in BUILT_HERE)
        problems.append(Problem("architecture", f"must be {expected}, got {card.architecture!r}"))
    if card is None or problems:
        raise _not_a_card(path, "; ".join(map(str, problems)))
    made: ModelCard = replace(card, weights=weights)
    return made


def is_card(path: Path) -> bool:
    """Whether the file is meant to be a card: a JSON object with a table `spec`. Other programs write JSON files, too."""
    try:
        return path.is_file() and isinstance(_table_in(path).get("spec"), dict)
    except ModelError:
        return False


def _table_in(path: Path) -> dict[str, Any]:
    try:
        table = read_json(path, parse_constant=_refuse_constant)
    except ValueError as error:
        raise _not_a_card(path, str(error) or type(error).__name__) from None
    if not isinstance(table, dict):
        raise _not_a_card(path, "it must hold one JSON object")
    return table


def _digest(value: object, problems: list[Problem]) -> str:
    digest = value.get("sha256") if isinstance(value, dict) and set(value) == {"sha256"} else None
    if isinstance(digest, str) and len(digest) in (0, 64) and set(digest) <= set("0123456789abcdef"):
        return digest
    problems.append(Problem("weights", f"must be a table with the `sha256` of the weights, got {value!r}"))
    return ""


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _not_a_card(path: Path, reason: str) -> ModelError:
    return ModelError(f"`{path}` is not a model card of this version ({reason}): correct it, or remove it and pass --arch")
