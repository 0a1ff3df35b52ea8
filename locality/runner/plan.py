"""A suite cut into units of work: model × measurement × block of images, each under a key made of all it depends on."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal

from locality.data.dataset import ImageDataset
from locality.data.defaults import default_data
from locality.progress import Progress
from locality.runner.provenance import PACKAGES
from locality.runner.suite_file import ModelChoice, Suite, SuiteError, option_problems
from locality.runner.suite_images import block_hash, chosen_images, forget_images, opened_source, told_before, unit_size
from locality.runner.suite_models import PlannedModel, described, loaded, with_counterparts
from locality.scores.layer_randomisation import REFERENCE
from locality.zoo.load import load_model

Kind = Literal["locality", "robust", "faithfulness", "sanity", "searches", "gallery"]


@dataclass(frozen=True)
class Part:
    """One measurement of a suite: which images, how many in a unit, and the settings that decide its numbers."""

    name: str  # "locality", "robust 1", "searches paper"
    kind: Kind
    limit: int | None
    block: int | None
    settings: str  # JSON
    place: int = 0  # among the suite's attacks or searches
    models: tuple[str, ...] = ()  # none: all


@dataclass(frozen=True)
class Unit:
    """The images from `first` to before `last` of a part's choice, measured for one model."""

    model: str
    part: str
    first: int
    last: int
    images_sha256: str
    key: str

    def __len__(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        return f"{self.part} {self.first}–{self.last - 1}"


@dataclass(frozen=True)
class Task:
    """A unit with all that a process needs to measure it; `piece` images at a time where a whole block was too much."""

    suite: Suite
    model: PlannedModel
    part: Part
    unit: Unit
    device: str
    threads: int
    versions: tuple[tuple[str, str], ...]
    piece: int | None = None


@dataclass(frozen=True)
class Plan:
    """All units of a suite, in the order that results have."""

    suite: Suite
    models: tuple[PlannedModel, ...]
    units: tuple[Unit, ...]
    device: str  # cpu, cuda …
    versions: tuple[tuple[str, str], ...]
    data_sha256: tuple[str, ...]  # of each model's images

    @functools.cached_property
    def parts(self) -> dict[str, Part]:
        return {part.name: part for part in parts_of(self.suite)}

    @functools.cached_property
    def by_name(self) -> dict[str, PlannedModel]:
        return {model.name: model for model in self.models}

    def task(self, unit: Unit, threads: int) -> Task:
        return Task(self.suite, self.by_name[unit.model], self.parts[unit.part], unit, self.device, threads, self.versions)


def parts_of(suite: Suite) -> tuple[Part, ...]:
    """The measurements that the suite asks for. A setting of one part does not touch the keys of the others."""
    settings = asdict(suite.settings)
    maps = {name: settings[name] for name in ("methods", "search", "target", "seed")}
    parts = [Part("locality", "locality", None, suite.block, _json(settings | {"similarity": suite.similarity}))]

    def add(name: str, kind: Kind, asked: Any, block: int | None, more: dict[str, Any], place: int = 0) -> None:
        # Which images and which models does not matter to a unit beyond the images and the model it is of.
        own = {key: value for key, value in asdict(asked).items() if key not in ("limit", "models", "names")}
        parts.append(Part(name, kind, asked.limit, block, _json(own | more), place, asked.models))

    for place, attack in enumerate(suite.robust):
        add(f"robust {place + 1}", "robust", attack, attack.batch_size, {"seed": suite.seed}, place)
    others: tuple[tuple[Kind, Any], ...] = (("faithfulness", suite.faithfulness), ("sanity", suite.sanity))
    for kind, asked in others:
        if asked is not None:
            add(kind, kind, asked, suite.block, maps | {"methods": asked.methods or suite.methods})
    for place, name in enumerate(suite.searches.names if suite.searches else ()):
        add(f"searches {name}", "searches", suite.searches, suite.block, {"search": name, "seed": suite.seed}, place)
    if suite.gallery:
        parts.append(Part("gallery", "gallery", suite.gallery, suite.block, _json(maps)))
    return tuple(parts)


def make_plan(
    suite: Suite,
    problems: Sequence[str] = (),
    device: str = "cpu",
    download: bool = False,
    progress: Progress = lambda done, total: None,
) -> Plan:
    """The units of the suite, after every model and every image set was opened once.

    SuiteError lists all that is missing or wrong here, together with the `problems` found while reading.
    """
    forget_images()
    found = list(problems)
    broken_data = _data_problem(suite, found)
    models: list[PlannedModel] = []
    for done, choice in enumerate(suite.models):
        progress(done, len(suite.models))
        if any(f"`{choice.source}`" in problem for problem in problems):
            continue  # told already
        try:
            models.append(_opened(suite, choice, download, broken_data))
        except Exception as error:  # a factory of the user's may raise anything
            kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
            found.append(f"{choice.name}: {kind}{error}")
    if found:
        raise SuiteError(suite.name, tuple(dict.fromkeys(found)))
    loaded.cache_clear()
    versions = installed_versions()
    planned = with_counterparts(tuple(models), suite)
    units = [unit for model in planned for part in parts_of(suite) for unit in _units(suite, part, model, device, versions)]
    hashes = tuple(
        _digest([unit.images_sha256 for unit in units if (unit.model, unit.part) == (model.name, "locality")])
        for model in planned
    )
    progress(len(suite.models), len(suite.models))
    return Plan(suite, planned, tuple(units), device, versions, hashes)


@functools.cache
def installed_versions() -> tuple[tuple[str, str], ...]:
    """The versions that numbers depend on; another one measures anew."""
    return tuple((name, version(name)) for name in (*PACKAGES, "pyautoattack"))


def images_of(suite: Suite, part: Part, model: PlannedModel) -> ImageDataset:
    """The images that a part measures."""
    with told_before():
        return chosen_images(suite.data, model.data, model.spec, part.limit)


def _data_problem(suite: Suite, problems: list[str]) -> bool:
    """Whether the suite's data cannot be opened; told once, not once for every model."""
    wrong = option_problems(suite.data)
    problems += wrong
    if wrong or not suite.data.name:
        return bool(wrong)
    try:
        opened_source(suite.data.name, suite.data.seed, suite.data.options)
    except (ValueError, TypeError, OSError) as error:
        problems.append(f"data: {error}")
        return True
    return False


def _opened(suite: Suite, choice: ModelChoice, download: bool, broken_data: bool) -> PlannedModel:
    model = load_model(choice.source, arch=choice.arch, num_classes=choice.num_classes, download=download)
    data = suite.data.name or default_data(model.spec)
    planned = described(choice, model, data)
    if not broken_data:
        chosen_images(suite.data, data, model.spec, None)
    return planned


def _units(suite: Suite, part: Part, model: PlannedModel, device: str, versions: tuple[tuple[str, str], ...]) -> list[Unit]:
    if part.models and model.name not in part.models:
        return []
    data = images_of(suite, part, model)
    # Statistics of BatchNorms that are drawn anew are taken over this many images, whichever unit they are of.
    reference = block_hash(data, 0, min(len(data), REFERENCE)) if part.kind == "sanity" else ""
    size = part.block or unit_size(model.spec)
    units = []
    for first in range(0, len(data), size):
        last = min(first + size, len(data))
        images = block_hash(data, first, last)
        subject = (model.name, model.fingerprint, repr(model.spec))
        depends = [part.kind, part.settings, subject, images, reference, device, versions]
        key = _digest(depends)[:32]
        units.append(Unit(model.name, part.name, first, last, images, key))
    return units


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
