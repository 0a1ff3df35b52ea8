"""What a plan costs before it is run: evaluations of each part, and the time here from a short calibration."""

from __future__ import annotations

import heapq
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset, stack
from locality.errors import DataError
from locality.model_calls import open_model
from locality.progress import Progress, no_progress
from locality.runner.local_engine import default_processes, run_locally
from locality.runner.plan import Plan, Task, Unit, images_of
from locality.runner.run import Machine
from locality.runner.suite_models import loaded
from locality.runner.unit import Measured, block_tables, sentence, torch_threads, unit_ids
from locality.runner.work import Work, method_work, single_method_work
from locality.types import Sample

BUDGET = 3.0  # seconds that the calibration of one model and part may take
PATIENCE = 4.0  # budgets that a single image may take; beyond, nominal numbers are used
TIMED_IMAGES = 8  # that a gradient and a forward pass are timed with


@dataclass(frozen=True)
class Speed:
    """The cost of one image: evaluations and seconds, measured with some images, or nominal where `images` is 0."""

    work: Work
    seconds: float
    images: int
    opening: float  # seconds to load the model


@dataclass(frozen=True)
class Cost:
    """What is left of one part or of one model."""

    name: str
    units: int  # planned
    kept: int  # finished before
    images: int  # left, one per unit that needs it
    gradients: float
    forwards: float
    seconds: float | None  # of one process; None if no part of it could be calibrated
    more: bool  # some of it could not be calibrated, and its time is not included
    nominal: bool  # some evaluations were not measured


@dataclass(frozen=True, eq=False)
class Estimate:
    """The cost of a plan. `left` are the units that are not finished.

    A part in `failed` could not be calibrated: its evaluations are nominal, and its time is not in the sums.
    """

    plan: Plan
    left: tuple[Unit, ...]
    speeds: dict[tuple[str, str], Speed]  # (model, part)
    failed: dict[tuple[str, str], str]  # (model, part) ↦ why
    processes: int
    seconds: float  # until the last unit is finished
    calibration: float  # seconds

    def work_of(self, units: Sequence[Unit]) -> Work:
        """Evaluations of these units, in total."""
        return sum((self.speeds[unit.model, unit.part].work.times(len(unit)) for unit in units), Work())

    def seconds_of(self, units: Sequence[Unit]) -> float:
        """Seconds of one process for these units."""
        return sum(self.speeds[unit.model, unit.part].seconds * len(unit) for unit in units)

    def parts(self) -> list[Cost]:
        """One per part of the suite."""
        return [self._cost(name, "part", name) for name in self.plan.parts]

    def models(self) -> list[Cost]:
        """One per model."""
        return [self._cost(model.name, "model", model.name) for model in self.plan.models]

    def _cost(self, name: str, field: str, value: str) -> Cost:
        units = [unit for unit in self.left if getattr(unit, field) == value]
        planned = sum(getattr(unit, field) == value for unit in self.plan.units)
        work, unknown = self.work_of(units), [(unit.model, unit.part) in self.failed for unit in units]
        seconds = None if units and all(unknown) else self.seconds_of(units)
        nominal = any(not self.speeds[unit.model, unit.part].images for unit in units)
        counts = planned, planned - len(units), sum(map(len, units))
        return Cost(name, *counts, work.gradients, work.forwards, seconds, any(unknown), nominal)

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain values."""
        return {
            **self.plan.to_json(),
            "parts": [asdict(cost) for cost in self.parts()],
            "models": [asdict(cost) for cost in self.models()],
            "seconds": self.seconds,
            "processes": self.processes,
            "failed": [{"model": model, "part": part, "reason": reason} for (model, part), reason in self.failed.items()],
        }

    def method_gradients(self) -> tuple[int, dict[str, float], float]:
        """Images left in the first part with maps, gradients per image of each of its methods, and those they share."""
        part = next((part for part in self.plan.parts.values() if part.methods), None)
        if part is None:
            return 0, {}, 0.0
        images = sum(len(unit) for unit in self.left if unit.part == part.name)
        gradients = {name: single_method_work(name).gradients for name in part.methods}
        return images, gradients, sum(gradients.values()) - method_work(part.methods).gradients


def nominal_work(task: Task) -> Work:
    """Evaluations per image of a unit's parts, as far as they are known without a model."""
    works = (measurement.work(task.suite, part) for part, measurement in zip(task.parts, task.measurements, strict=True))
    return sum(works, Work())


def estimate(
    plan: Plan,
    machine: Machine,
    left: Sequence[Unit],
    budget: float = BUDGET,
    progress: Progress = no_progress,
) -> Estimate:
    """The cost of the units that are left, calibrated for every model and part, in as many processes as the run will use."""
    start = time.perf_counter()
    processes = 1 if machine.processes == 0 else machine.processes or default_processes(machine.threads, machine.devices)
    first: dict[tuple[str, str], Unit] = {}
    for unit in left:
        first.setdefault((unit.model, unit.part), unit)
    # Processes slow each other down, so at least as many calibrate at once as will run at once.
    copies = math.ceil(processes / max(1, len(first)))
    tasks = [plan.task(unit, machine.threads) for unit in first.values() for _ in range(copies)]
    calibrated: dict[tuple[str, str], list[Speed]] = {}
    faults: dict[tuple[str, str], str] = {}
    work = Calibration(budget)
    for done, (task, speed) in enumerate(run_locally(tasks, machine.processes, machine.threads, machine.devices, work), 1):
        progress(done, len(tasks))
        key = task.unit.model, task.unit.part
        if isinstance(speed, Speed):
            calibrated.setdefault(key, []).append(speed)
        else:
            faults[key] = speed.faults[0][1]
    speeds = {key: replace(several[0], seconds=_mean(several)) for key, several in calibrated.items()}
    # The run would list faults and continue; so does its estimate.
    failed = {key: reason for key, reason in faults.items() if key not in speeds}
    speeds |= {key: Speed(nominal_work(plan.task(first[key], machine.threads)), 0.0, 0, 0.0) for key in failed}
    seconds = _makespan(left, speeds, min(processes, max(1, len(left))))
    return Estimate(plan, tuple(left), speeds, failed, processes, seconds, time.perf_counter() - start)


@dataclass(frozen=True)
class Calibration:
    """Measures the speed of a task's model and part with a few of its images, as many as the budget allows."""

    budget: float

    def __call__(self, task: Task) -> Speed | Measured:
        """The speed, or a `Measured` with the fault: an exception would only end the process."""
        try:
            with torch_threads(task.threads):
                return self._speed(task)
        except Exception as error:
            return Measured.nothing(unit_ids(task), sentence(error))

    def _speed(self, task: Task) -> Speed:
        start = time.perf_counter()
        loaded.cache_clear()
        model = loaded(task.model, task.device)
        opening = time.perf_counter() - start
        data = images_of(task.suite, task.part, task.model)
        nominal = nominal_work(task)
        readable = _readable(data, task.unit.first)
        samples = list(itertools.islice(readable, min(len(task.unit), TIMED_IMAGES)))
        if not samples:
            raise DataError(f"none of the {len(data) - task.unit.first:,} images of {data.name} can be read")
        gradient, forward = _evaluation_seconds(model, stack(samples).images.to(task.device), len(task.unit))
        expected = nominal.gradients * gradient + nominal.forwards * forward
        if expected > PATIENCE * self.budget:
            return Speed(nominal, expected, 0, opening)
        affordable = int(self.budget / expected) if expected else len(task.unit)
        count = max(1, min(len(task.unit), affordable))
        samples = [*samples, *itertools.islice(readable, max(0, count - len(samples)))][:count]
        count = len(samples)
        counted = Counted(model)

        def run(some: list[Sample]) -> float:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                block_tables(task, counted, data, some, {})
            return time.perf_counter() - begin

        if count > 1:
            run(samples[:1])  # loads what is loaded at first use
        counted.tally.forwards = counted.tally.gradients = 0
        seconds = run(samples)
        work = Work(counted.tally.gradients, counted.tally.forwards).times(1 / count)
        # A few images use the network less well than a whole unit will.
        alone, _ = _evaluation_seconds(model, stack(samples).images.to(task.device), count)
        return Speed(work, min(1.0, gradient / alone) * seconds / count, count, opening)


class Tally:
    """Numbers of images evaluated; copies of a model share one."""

    gradients = 0
    forwards = 0

    def __deepcopy__(self, memo: object) -> Tally:
        return self


class Counted(nn.Module):
    """A model that counts the images it evaluates, those with a gradient separately.

    A pass whose pixels need no gradient is a forward pass, and every backward pass to its weights is a gradient.

    >>> import torch
    >>> counted = Counted(nn.Flatten())
    >>> _ = counted(torch.rand(5, 3, 2, 2)), counted(torch.rand(2, 3, 2, 2, requires_grad=True))
    >>> counted.tally.forwards, counted.tally.gradients
    (5, 2)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.tally = model, Tally()
        if hasattr(model, "abstains"):
            self.abstains = model.abstains

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        if images.requires_grad:
            self.tally.gradients += len(images)
        else:
            self.tally.forwards += len(images)
            if logits.requires_grad:
                logits.register_hook(lambda gradient: self.count(len(gradient)))
        return logits

    def count(self, gradients: int) -> None:
        """Count gradients of weights."""
        self.tally.gradients += gradients


def _readable(data: ImageDataset, first: int) -> Iterator[Sample]:
    """The images from `first` on, except for those that a run would list as faults."""
    for index in range(first, len(data)):
        try:
            yield data[index]
        except (DataError, OSError):
            continue


def _mean(speeds: Sequence[Speed]) -> float:
    return sum(speed.seconds for speed in speeds) / len(speeds)


def _evaluation_seconds(model: nn.Module, images: Tensor, together: int) -> tuple[float, float]:
    """Seconds per image of a gradient and of a forward pass, of `together` images; the first call warms up."""
    with open_model(model, images) as calls:
        # Images beyond one chunk take as long, each.
        batch = images[torch.arange(min(together, calls.chunk)) % len(images)]

        def timed(call: Callable[[], object]) -> float:
            call()
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) / len(batch)

        return timed(lambda: calls.gradient(batch, lambda logits: logits.amax(1))), timed(lambda: calls.logits(batch))


def _makespan(units: Sequence[Unit], speeds: dict[tuple[str, str], Speed], processes: int) -> float:
    """Seconds until all units are done if the first free process takes the next one, including the loading of models."""
    free: list[tuple[float, str]] = [(0.0, "")] * processes
    for unit in units:
        speed = speeds[unit.model, unit.part]
        at, model = heapq.heappop(free)
        opening = speed.opening if model != unit.model else 0.0
        heapq.heappush(free, (at + opening + speed.seconds * len(unit), unit.model))
    return max(at for at, _ in free)
