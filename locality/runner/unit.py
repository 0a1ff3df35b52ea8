"""One unit of work: what is measured about a block of images with one model, as tables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import nn

from locality.data.dataset import ImageDataset, stack
from locality.errors import DataError
from locality.runner.measurement import Block, Tables
from locality.runner.plan import Task, images_of, installed_versions
from locality.runner.suite_images import block_hash
from locality.runner.suite_models import loaded, loaded_surrogate
from locality.types import Sample


@dataclass(frozen=True, eq=False)
class Measured:
    """The result of a unit: tables by name, what could not be measured, and warnings."""

    tables: Tables
    faults: tuple[tuple[str, str], ...] = ()  # ids of images with commas, problem
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    threads: int = 0
    pieces: int = 1  # more after a crash

    @staticmethod
    def nothing(ids: Sequence[str], problem: str) -> Measured:
        """A unit that could not be measured at all."""
        return Measured({}, ((", ".join(ids), problem),))


@dataclass
class _Collected:
    """Tables and faults of a unit, piece by piece."""

    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)  # problem ↦ ids

    def add(self, tables: Tables) -> None:
        for name, table in tables.items():
            if len(table):
                self.tables.setdefault(name, []).append(table)

    def fail(self, image_id: str, error: Exception) -> None:
        self.faults.setdefault(sentence(error), []).append(image_id)

    def result(self) -> tuple[Tables, tuple[tuple[str, str], ...]]:
        tables = {name: pd.concat(pieces, ignore_index=True) for name, pieces in self.tables.items()}
        return tables, tuple((", ".join(ids), problem) for problem, ids in self.faults.items())


@dataclass(frozen=True, eq=False)
class _Opened:
    """A task with its model and its images."""

    task: Task
    model: nn.Module
    data: ImageDataset
    decoded: dict[int, Sample]  # the images that can be read, by their index in `data`

    def measure(self, samples: list[Sample]) -> Tables:
        return block_tables(self.task, self.model, self.data, samples, self.decoded)


def measure(task: Task) -> Measured:
    """The unit's tables. It never raises: an error is a fault of the images it occurred for.

    An image that cannot be read is left out, and the others are measured together. If that fails, halves are tried, then
    halves of halves, so that one bad image, or a block too large for memory, costs as little as possible.
    """
    start = time.perf_counter()
    collected = _Collected()
    with torch_threads(task.threads), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            opened = _opened(task, collected)
        except Exception as error:
            return Measured.nothing(unit_ids(task), sentence(error))
        samples = list(opened.decoded.values())
        if samples:
            _in_halves(opened.measure, samples, collected)
    notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)))
    return Measured(*collected.result(), notes, time.perf_counter() - start, task.threads)


def block_tables(
    task: Task, model: nn.Module, data: ImageDataset, samples: Sequence[Sample], decoded: dict[int, Sample]
) -> Tables:
    """The tables of all parts of the unit for some of its images, which share their maps."""
    surrogate = None if task.surrogate is None else loaded_surrogate(task.surrogate, task.device)
    block = Block(model, task.model.name, task.suite, task.part, data, stack(samples), task.methods, surrogate, decoded)
    tables: Tables = {}
    for part, measurement in zip(task.parts, task.measurements, strict=True):
        tables |= measurement.rows(block.of(part))
    return tables


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads inside the block; sums over another number of threads round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def stopped(task: Task, minutes: float) -> Measured:
    """The result of a unit that took too long."""
    return Measured.nothing(unit_ids(task), f"stopped after {minutes:g} minutes (--unit-minutes)")


def smaller(task: Task) -> tuple[Task, ...]:
    """The halves of a task whose process crashed; none for a single image."""
    images = task.images
    if len(images) < 2:
        return ()
    middle = images.start + len(images) // 2
    return tuple(replace(task, only=span) for span in ((images.start, middle), (middle, images.stop)))


def whole_units(results: Iterable[tuple[Task, Measured]]) -> Iterator[tuple[Task, Measured]]:
    """The results with the pieces of each unit joined; such a unit has a note that says so."""
    pieces: dict[str, list[tuple[Task, Measured]]] = {}
    for task, measured in results:
        if task.only is None:
            yield task, measured
            continue
        several = pieces.setdefault(task.unit.key, [])
        several.append((task, measured))
        if sum(len(piece) for piece, _ in several) == len(task.unit):
            yield replace(task, only=None), _joined(pieces.pop(task.unit.key))


def _joined(pieces: list[tuple[Task, Measured]]) -> Measured:
    pieces.sort(key=lambda piece: piece[0].images.start)
    collected = _Collected()
    for _, measured in pieces:
        collected.add(measured.tables)
        for ids, problem in measured.faults:
            collected.faults.setdefault(problem, []).append(ids)
    unit = pieces[0][0].unit
    mark = f"{unit} was measured in {len(pieces)} pieces after its process crashed: numbers may round differently"
    notes = tuple(dict.fromkeys([mark, *(note for _, measured in pieces for note in measured.notes)]))
    seconds = sum(measured.seconds for _, measured in pieces)
    threads = max(measured.threads for _, measured in pieces)
    return Measured(*collected.result(), notes, seconds, threads, len(pieces))


def unit_ids(task: Task) -> list[str]:
    """The ids of the task's images, or their indices if the data cannot be opened."""
    images = task.images
    try:
        data = images_of(task.suite, task.part, task.model)
        ids: list[str] = data.source.manifest.images["id"].iloc[data.indices[images.start : images.stop]].tolist()
    except Exception:
        return [f"images {images.start} to {images.stop - 1}"]
    return ids


def sentence(error: Exception) -> str:
    """An error as one line."""
    text = " ".join(str(error).split()) or "no reason given"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _opened(task: Task, collected: _Collected) -> _Opened:
    """The model and the images that can be read; raises where they are not the ones that were planned."""
    here = installed_versions()
    if here != task.versions:
        differing = [
            f"{name} {planned}, not {installed}"
            for (name, installed), (_, planned) in zip(here, task.versions, strict=True)
            if installed != planned
        ]
        raise ValueError(f"this machine must have the versions of the plan: {', '.join(differing)}")
    model = loaded(task.model, task.device)
    data = images_of(task.suite, task.part, task.model)
    decoded: dict[int, Sample] = {}
    for index in task.images:
        try:
            decoded[index] = data[index]
        except (DataError, OSError) as error:
            collected.fail(str(data.source.manifest.images["id"].iloc[int(data.indices[index])]), error)
    images_sha256 = block_hash(data, task.unit.first, task.unit.last)
    if images_sha256 != task.unit.images_sha256:
        raise ValueError(f"`{data.name}` must hold the same images on every machine and until the end: run again")
    return _Opened(task, model, data, decoded)


def _in_halves(measure: Callable[[list[Sample]], Tables], samples: list[Sample], collected: _Collected) -> None:
    try:
        collected.add(measure(samples))
        return
    except Exception as error:
        if len(samples) == 1:
            collected.fail(samples[0].id, error)
            return
    # Outside the handler: the error's traceback holds the tensors that did not fit.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    middle = len(samples) // 2
    for half in (samples[:middle], samples[middle:]):
        _in_halves(measure, half, collected)
