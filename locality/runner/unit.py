"""One unit of work: what is measured about some images with one model, as tables."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import nn

from locality.data.dataset import stack
from locality.errors import DataError
from locality.runner.measurements import MEASUREMENTS, Subject
from locality.runner.plan import Task, images_of, installed_versions
from locality.runner.suite_images import block_hash
from locality.runner.suite_models import loaded
from locality.types import Sample

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a unit gave: tables by name, what could not be measured, and warnings on the way."""

    tables: Tables
    faults: tuple[tuple[str, str], ...] = ()  # ids of images with commas, problem
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    threads: int = 0

    @staticmethod
    def nothing(ids: Sequence[str], problem: str) -> Measured:
        """A unit of which nothing is left."""
        return Measured({}, ((", ".join(ids), problem),))


@dataclass
class _Kept:
    """Tables and faults as they come in, piece by piece."""

    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)  # problem ↦ ids

    def add(self, tables: Tables) -> None:
        for name, table in tables.items():
            self.tables.setdefault(name, []).append(table)

    def fail(self, image_id: str, error: Exception) -> None:
        self.faults.setdefault(sentence(error), []).append(image_id)


def measure(task: Task) -> Measured:
    """The unit's tables. It never raises: what goes wrong is a fault of the images it went wrong for.

    An image that cannot be read is left out and the rest measured together. Where the rest fails, halves are tried, then
    halves of halves, so that one bad image, or a block too large for memory, costs as little as it can.
    """
    start = time.perf_counter()
    kept = _Kept()
    with torch_threads(task.threads), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            subject, samples = _opened(task, kept)
        except Exception as error:
            return Measured.nothing(unit_ids(task), sentence(error))
        part = MEASUREMENTS[task.part.kind]
        size = task.piece or max(1, len(samples))
        for first in range(0, len(samples), size):
            _in_halves(lambda some: part(subject, stack(some)), samples[first : first + size], kept)
    tables = {name: pd.concat(parts, ignore_index=True) for name, parts in kept.tables.items()}
    faults = tuple((", ".join(ids), problem) for problem, ids in kept.faults.items())
    notes = tuple(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)))
    return Measured(tables, faults, notes, time.perf_counter() - start, task.threads)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """torch works with so many threads inside the block; sums over threads round differently with another number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def smaller(task: Task) -> Task | None:
    """The task in pieces of a quarter, for a unit whose process died; None after the second death."""
    return None if task.piece is not None else replace(task, piece=max(1, math.ceil(len(task.unit) / 4)))


def unit_ids(task: Task) -> list[str]:
    """The ids of the unit's images, as far as they can be had."""
    try:
        data = images_of(task.suite, task.part, task.model)
        ids: list[str] = data.source.manifest.images["id"].iloc[data.indices[task.unit.first : task.unit.last]].tolist()
    except Exception:
        return [f"images {task.unit.first} to {task.unit.last - 1}"]
    return ids


def sentence(error: Exception) -> str:
    """An error as one line."""
    text = " ".join(str(error).split()) or "no reason given"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _opened(task: Task, kept: _Kept) -> tuple[Subject, list[Sample]]:
    """The model and the images that can be read; raises where they are not the ones that were planned."""
    here = installed_versions()
    if here != task.versions:
        differing = [
            f"{name} {there}, not {mine}"
            for (name, mine), (_, there) in zip(here, task.versions, strict=True)
            if mine != there
        ]
        raise ValueError(f"this machine must have the versions of the plan: {', '.join(differing)}")
    model: nn.Module = loaded(task.model, task.device)
    data = images_of(task.suite, task.part, task.model)
    if block_hash(data, task.unit.first, task.unit.last) != task.unit.images_sha256:
        raise ValueError(
            f"`{data.name}` must hold the same images on every machine and until the end, got others: run again"
        )
    samples = []
    for place in range(task.unit.first, task.unit.last):
        try:
            samples.append(data[place])
        except (DataError, OSError) as error:
            kept.fail(str(data.source.manifest.images["id"].iloc[int(data.indices[place])]), error)
    return Subject(model, task.model.name, task.suite, task.part, data), samples


def _in_halves(part: Callable[[list[Sample]], Tables], samples: list[Sample], kept: _Kept) -> None:
    try:
        kept.add(part(samples))
        return
    except Exception as error:
        if len(samples) == 1:
            kept.fail(samples[0].id, error)
            return
    # Outside the handler: the error's traceback holds the tensors that did not fit.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    middle = len(samples) // 2
    for half in (samples[:middle], samples[middle:]):
        _in_halves(part, half, kept)
