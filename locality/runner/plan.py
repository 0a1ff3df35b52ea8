"""A suite cut into units of work: model × part × block of images, each under a key made of all it depends on."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from locality.curvature.training_run import TrainingImages, trained_on
from locality.data.dataset import ImageDataset
from locality.data.defaults import default_data
from locality.errors import DataError, Problem
from locality.files import source_hash
from locality.progress import Progress, no_progress
from locality.results.schema import Schema
from locality.runner.measurement import Measurement, Part, as_json
from locality.runner.measurements import MEASUREMENTS
from locality.runner.plan_problems import data_is_broken, grouped_parts, model_has, region_problems, surrogate_problems
from locality.runner.provenance import PACKAGES, SOURCES
from locality.runner.suite import ModelChoice, Suite
from locality.runner.suite_file import SuiteError
from locality.runner.suite_images import (
    block_hash,
    chosen_images,
    forget_images,
    no_class_warnings,
    training_images,
    unit_size,
)
from locality.runner.suite_models import PlannedModel, described, loaded, with_counterparts
from locality.zoo.load import load_model


@dataclass(frozen=True)
class Unit:
    """The images from `first` to before `last` of a part, measured for one model."""

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
    """A unit with all that a process needs to measure it, or a piece of it after a crash.

    `parts` has the unit's own part first, then those measured along with it; `measurements` is parallel to it, so that a
    measurement that a user has added reaches other processes, too.
    """

    suite: Suite
    model: PlannedModel
    parts: tuple[Part, ...]
    measurements: tuple[Measurement, ...]
    unit: Unit
    device: str
    threads: int
    versions: tuple[tuple[str, str], ...]
    surrogate: PlannedModel | None = None
    only: tuple[int, int] | None = None  # of a piece: its images, from the first to before the last

    def __len__(self) -> int:
        return len(self.images)

    @property
    def images(self) -> range:
        """The indices of the images to measure."""
        return range(*self.only) if self.only else range(self.unit.first, self.unit.last)

    @property
    def part(self) -> Part:
        return self.parts[0]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods whose maps any part of the unit needs."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.methods))

    @property
    def schemas(self) -> dict[str, Schema]:
        """The tables that the unit gives."""
        return {name: schema for measurement in self.measurements for name, schema in measurement.tables.items()}


@dataclass(frozen=True)
class Plan:
    """All units of a suite, in the order of the results."""

    suite: Suite
    models: tuple[PlannedModel, ...]
    units: tuple[Unit, ...]
    device: str  # cpu, cuda …
    versions: tuple[tuple[str, str], ...]
    data_sha256: tuple[str, ...]  # of each model's images

    @functools.cached_property
    def parts(self) -> dict[str, Part]:
        """The parts that have units, by name."""
        named = {group[0].name: group[0] for groups in self._groups.values() for group in groups.values()}
        return {name: named[name] for name in dict.fromkeys(unit.part for unit in self.units)}

    @functools.cached_property
    def _groups(self) -> dict[bool, dict[str, tuple[Part, ...]]]:
        """The groups of parts on data with and without regions, by the name of their first part."""
        return {has: {group[0].name: group for group in grouped_parts(self.suite, has)} for has in (True, False)}

    @functools.cached_property
    def by_name(self) -> dict[str, PlannedModel]:
        return {model.name: model for model in self.models}

    def images(self, model: str) -> int:
        """Images that a model is measured on."""
        return max((unit.last for unit in self.units if unit.model == model), default=0)

    def to_json(self) -> dict[str, Any]:
        """What is measured, and where the numbers come from, as plain values."""
        hashes = zip(self.models, self.data_sha256, strict=True)
        return {
            "suite": self.suite.name,
            "data": {model.name: model.data for model in self.models},
            "n": {model.name: self.images(model.name) for model in self.models},
            "provenance": {"versions": dict(self.versions), "data_sha256": {model.name: sha for model, sha in hashes}},
        }

    def task(self, unit: Unit, threads: int) -> Task:
        model = self.by_name[unit.model]
        parts = self._groups[model.has_regions][unit.part]
        measurements = tuple(MEASUREMENTS[part.measurement] for part in parts)
        surrogate = self.by_name[parts[0].surrogate] if parts[0].surrogate else None
        return Task(self.suite, model, parts, measurements, unit, self.device, threads, self.versions, surrogate)


def make_plan(
    suite: Suite,
    problems: Sequence[Problem] = (),
    device: str = "cpu",
    download: bool = False,
    progress: Progress = no_progress,
    trust_first: bool = False,
) -> Plan:
    """The units of the suite, after every model and every data set was opened once.

    SuiteError lists everything that is missing or wrong, together with the `problems` found while reading the suite.
    """
    forget_images()
    found = list(problems)
    broken_data = data_is_broken(suite, found)
    known_as_broken = {problem.where for problem in problems}
    models: list[PlannedModel] = []
    for done, choice in enumerate(suite.models):
        progress(done, len(suite.models))
        if choice.name in known_as_broken:
            continue
        try:
            models.append(_opened(suite, choice, download, trust_first, broken_data))
            found += [] if models[-1].has_regions else region_problems(suite, models[-1].data)
        except Exception as error:  # a factory of the user's may raise anything
            kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
            found.append(Problem(choice.name, f"cannot be measured: {kind}{error}"))
    found += surrogate_problems(suite, models)
    if found:
        raise SuiteError(suite.name, tuple(dict.fromkeys(found)))
    loaded.cache_clear()
    versions = installed_versions()
    planned = with_counterparts(tuple(models), suite)
    units = [
        unit
        for model in planned
        for group in grouped_parts(suite, model.has_regions)
        for unit in _units(suite, group, model, planned, device, versions)
    ]
    hashes = tuple(_data_hash([unit for unit in units if unit.model == model.name]) for model in planned)
    progress(len(suite.models), len(suite.models))
    return Plan(suite, planned, tuple(units), device, versions, hashes)


@functools.cache
def installed_versions() -> tuple[tuple[str, str], ...]:
    """The versions of packages that numbers depend on, and a hash of our own sources; they are part of every key."""
    packages = tuple((name, version(name)) for name in (*PACKAGES, "pyautoattack"))
    return (*packages, (SOURCES, source_hash()[:16]))


def images_of(suite: Suite, part: Part, model: PlannedModel) -> ImageDataset:
    """The images that a part measures."""
    with no_class_warnings():
        if part.split != "train":
            return chosen_images(suite.data, model.data, model.spec, part.limit, part.split == "test")
        images = TrainingImages(part.train) if part.train else trained_on(model.card)
        if images is None:
            raise DataError(f"`{part.measurement}.train` must be given: no card says what {model.name} was trained on")
        return training_images(suite.data, images, model.spec, part.limit)


def _opened(suite: Suite, choice: ModelChoice, download: bool, trust_first: bool, broken_data: bool) -> PlannedModel:
    model = load_model(choice.source, **choice.loading, download=download, trust_first_download=trust_first)
    data = suite.data.name or default_data(model.spec)
    planned = described(choice, model, data)
    for parts in grouped_parts(suite):
        if parts[0].split == "train" and model_has(parts[0], planned):
            images_of(suite, parts[0], planned)
    if broken_data:
        return planned
    return replace(planned, has_regions=chosen_images(suite.data, data, model.spec, None).has_regions)


def _units(
    suite: Suite,
    parts: tuple[Part, ...],
    model: PlannedModel,
    models: Sequence[PlannedModel],
    device: str,
    versions: tuple[tuple[str, str], ...],
) -> list[Unit]:
    part, *along = parts
    if not model_has(part, model):
        return []
    data = images_of(suite, part, model)
    reference = block_hash(data, 0, min(len(data), part.reference)) if part.reference else ""
    size = part.block or unit_size(model.spec)
    units = []
    for first in range(0, len(data), size):
        last = min(first + size, len(data))
        images = block_hash(data, first, last)
        depends: list[Any] = [part.measurement, part.numbers, _subject(model), images, reference, device, versions]
        depends += [[other.measurement, other.numbers] for other in along]
        depends += [_subject(other) for other in models if other.name == part.surrogate]
        units.append(Unit(model.name, part.name, first, last, images, _digest(depends)[:32]))
    return units


def _subject(model: PlannedModel) -> tuple[str, ...]:
    """What identifies a model in the key of a unit."""
    return (model.name, model.fingerprint, repr(model.probe), repr(model.spec))


def _data_hash(units: Sequence[Unit]) -> str:
    """A hash of all images that are measured for a model: those of the part with the most images."""
    by_part: dict[str, list[Unit]] = {}
    for unit in units:
        by_part.setdefault(unit.part, []).append(unit)
    largest = max(by_part.values(), key=lambda several: sum(map(len, several)), default=[])
    return _digest([unit.images_sha256 for unit in largest])


def _digest(value: Any) -> str:
    return hashlib.sha256(as_json(value).encode()).hexdigest()
