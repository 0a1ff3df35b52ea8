"""What a plan will cost before it is run: evaluations of each method, and the time here from a short calibration.

An evaluation is one image through the network once (a forward pass), or there and back (a gradient). Their number depends on
neither machine nor load; what one costs is measured.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from locality.data.dataset import ImageDataset, stack
from locality.errors import DataError
from locality.model_calls import open_model
from locality.progress import Progress
from locality.runner.local_engine import default_processes, run_locally
from locality.runner.measurements import COMPARED, MEASUREMENTS, Subject
from locality.runner.plan import Part, Plan, Task, Unit, images_of
from locality.runner.run import Machine
from locality.runner.suite_file import Suite
from locality.runner.suite_models import loaded
from locality.runner.unit import Measured, sentence, torch_threads, unit_ids
from locality.types import Sample

POINTS = 20  # of a path, both ends included
BUDGET = 3.0  # seconds that the calibration of one model and part may take
PATIENCE = 4.0  # budgets that a single image may take; beyond, nominal numbers are used
SANITY_STEPS = 10  # of a network nobody looked at


@dataclass(frozen=True)
class Work:
    """Evaluations for one image."""

    gradients: float = 0.0
    forwards: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.gradients + other.gradients, self.forwards + other.forwards)

    def times(self, factor: float) -> Work:
        return Work(self.gradients * factor, self.forwards * factor)


# What is known without looking at a model. Searches and attacks stop early where they succeed: these are usual numbers for
# the first and upper ends for the second.
SEARCH_WORK = {"fast": Work(20, 7), "thorough": Work(600, 100), "paper": Work(1001, 14), "autopgd": Work(400, 20)}
OTHER_SEARCH_WORK = Work(100, 10)
ATTACK_WORK = {"paper": Work(203, 15), "standard": Work(1903, 5000), "pgd20": Work(22, 15), "cw20": Work(22, 15)}
METHOD_WORK = {
    "SM": Work(1),
    "InputXGradient": Work(1),
    "IG": Work(POINTS),
    "BSM": Work(1),
    "BIG": Work(POINTS),
    "SmoothGrad": Work(50),
    "AGI": Work(300),
}
OTHER_METHOD_WORK = Work(POINTS)


@dataclass(frozen=True)
class Speed:
    """What one image of a part costs one model: evaluations and seconds, measured on some images or nominal (0 of them)."""

    work: Work
    seconds: float
    images: int
    opening: float  # seconds to load the model


@dataclass(frozen=True, eq=False)
class Estimate:
    """A plan's cost. `left` are the units that no earlier run has finished.

    What is in `failed` could not be measured: its evaluations are nominal, and its time is not in the sums.
    """

    plan: Plan
    left: tuple[Unit, ...]
    speeds: dict[tuple[str, str], Speed]  # (model, part)
    failed: dict[tuple[str, str], str]  # (model, part) ↦ why
    processes: int
    seconds: float  # until the last unit is finished
    calibration: float  # seconds

    def work_of(self, units: Sequence[Unit]) -> Work:
        """Evaluations of these units in all."""
        return sum((self.speeds[unit.model, unit.part].work.times(len(unit)) for unit in units), Work())

    def seconds_of(self, units: Sequence[Unit]) -> float:
        """Seconds of one process for these units."""
        return sum(self.speeds[unit.model, unit.part].seconds * len(unit) for unit in units)


def method_work(methods: Sequence[str]) -> Work:
    """Evaluations of several methods at once: the gradients at the image and at the boundary are shared.

    >>> method_work(["SM", "IG", "BSM", "BIG"]).gradients
    39.0
    """
    total = sum((METHOD_WORK.get(name, OTHER_METHOD_WORK) for name in methods), Work())
    at_image = sum(name in ("SM", "InputXGradient", "IG", "BIG") for name in methods)
    at_boundary = sum(name in ("BSM", "BIG") for name in methods)
    return total + Work(-float(max(0, at_image - 1) + max(0, at_boundary - 1)))


def nominal_work(suite: Suite, part: Part) -> Work:
    """Evaluations of a part as far as they are known without a model."""
    search = Work() if suite.search == "none" else SEARCH_WORK.get(suite.search, OTHER_SEARCH_WORK)
    if part.kind == "robust":
        return ATTACK_WORK[suite.robust[part.place].attack]
    if part.kind == "searches":
        name = suite.searches.names[part.place] if suite.searches else ""
        return SEARCH_WORK.get(name, OTHER_SEARCH_WORK)
    if part.kind == "faithfulness" and suite.faithfulness is not None:
        methods = suite.faithfulness.methods or suite.methods
        samples = suite.faithfulness.samples
        draws = sum(3 * samples + 3 if name in ("IG", "BIG") else 2 * samples + 1 for name in methods)
        return search + method_work(methods) + Work(0, 1 + draws)
    if part.kind == "sanity" and suite.sanity is not None:
        own = [
            method_work([name]) + (search if name in ("BSM", "BIG") else Work())
            for name in suite.sanity.methods or suite.methods
        ]
        return sum(own, Work()).times(SANITY_STEPS)
    methods = (
        tuple(dict.fromkeys((*suite.methods, *COMPARED))) if part.kind == "locality" and suite.similarity else suite.methods
    )
    return search + method_work(methods) + Work(0, 1)


def estimate(
    plan: Plan,
    machine: Machine,
    left: Sequence[Unit],
    budget: float = BUDGET,
    progress: Progress = lambda done, total: None,
) -> Estimate:
    """The cost of the units that are left, after calibrating every model and part in as many processes as will work."""
    start = time.perf_counter()
    processes = 1 if machine.processes == 0 else machine.processes or default_processes(machine.threads, machine.devices)
    first: dict[tuple[str, str], Unit] = {}
    for unit in left:
        first.setdefault((unit.model, unit.part), unit)
    # Processes slow each other down, so that at least as many calibrate at once as will work at once.
    copies = math.ceil(processes / max(1, len(first)))
    tasks = [plan.task(unit, machine.threads) for unit in first.values() for _ in range(copies)]
    found: dict[tuple[str, str], list[Speed]] = {}
    faults: dict[tuple[str, str], str] = {}
    work = Calibration(budget)
    for done, (task, speed) in enumerate(run_locally(tasks, machine.processes, machine.threads, machine.devices, work), 1):
        progress(done, len(tasks))
        key = task.unit.model, task.unit.part
        if isinstance(speed, Speed):
            found.setdefault(key, []).append(speed)
        else:
            faults[key] = speed.faults[0][1]
    speeds = {key: replace(several[0], seconds=_mean(several)) for key, several in found.items()}
    # The run would list what fails and go on; so does its estimate.
    failed = {key: reason for key, reason in faults.items() if key not in speeds}
    speeds |= {key: Speed(nominal_work(plan.suite, plan.parts[key[1]]), 0.0, 0, 0.0) for key in failed}
    seconds = _makespan(left, speeds, min(processes, max(1, len(left))))
    return Estimate(plan, tuple(left), speeds, failed, processes, seconds, time.perf_counter() - start)


@dataclass(frozen=True)
class Calibration:
    """Measures the speed of a task's model and part with a few of its images, as many as the budget allows."""

    budget: float

    def __call__(self, task: Task) -> Speed | Measured:
        """The speed, or a `Measured` with the fault that stood in the way: a process that raised would just be gone."""
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
        nominal = nominal_work(task.suite, task.part)
        samples = list(itertools.islice(_readable(data, task.unit.first), min(len(task.unit), 8)))
        if not samples:
            raise DataError(f"none of the {len(data) - task.unit.first:,} images of {data.name} can be read")
        gradient, forward = _evaluation_seconds(model, stack(samples).images.to(task.device), len(task.unit))
        expected = nominal.gradients * gradient + nominal.forwards * forward
        if expected > PATIENCE * self.budget:
            return Speed(nominal, expected, 0, opening)
        count = max(1, min(len(task.unit), int(self.budget / expected)))
        samples = list(itertools.islice(_readable(data, task.unit.first), count))
        count = len(samples)
        counted = Counted(model)
        part = MEASUREMENTS[task.part.kind]

        def run(some: list[Sample]) -> float:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                part(Subject(counted, task.model.name, task.suite, task.part, data), stack(some))
            return time.perf_counter() - begin

        if count > 1:
            run(samples[:1])  # what is loaded when it is first used is loaded now
        counted.tally.forwards = counted.tally.gradients = 0
        seconds = run(samples)
        work = Work(counted.tally.gradients, counted.tally.forwards).times(1 / count)
        # A few images fill a network less well than a whole unit will.
        alone, _ = _evaluation_seconds(model, stack(samples).images.to(task.device), count)
        return Speed(work, min(1.0, gradient / alone) * seconds / count, count, opening)


class Tally:
    """Numbers of images evaluated; copies of a model count on the same one."""

    gradients = 0
    forwards = 0

    def __deepcopy__(self, memo: object) -> Tally:
        return self


class Counted(nn.Module):
    """A model that counts the images it is asked about; those with a gradient apart.

    >>> import torch
    >>> counted = Counted(nn.Flatten())
    >>> _ = counted(torch.rand(5, 3, 2, 2)), counted(torch.rand(2, 3, 2, 2, requires_grad=True))
    >>> counted.tally.forwards, counted.tally.gradients
    (5, 2)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.tally = model, Tally()

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad:
            self.tally.gradients += len(images)
        else:
            self.tally.forwards += len(images)
        logits: Tensor = self.model(images)
        return logits


def _readable(data: ImageDataset, first: int) -> Iterator[Sample]:
    """The images from `first` on, without those that a run would list as faults."""
    for place in range(first, len(data)):
        try:
            yield data[place]
        except (DataError, OSError):
            continue


def _mean(speeds: Sequence[Speed]) -> float:
    return sum(speed.seconds for speed in speeds) / len(speeds)


def _evaluation_seconds(model: nn.Module, images: Tensor, together: int) -> tuple[float, float]:
    """Seconds of a gradient and of a forward pass for one of so many images; the first call warms up and does not count."""
    with open_model(model, images) as calls:
        # More than go through the network at once take as long, each.
        batch = images[torch.arange(min(together, calls.chunk)) % len(images)]

        def timed(call: Callable[[], object]) -> float:
            call()
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) / len(batch)

        return timed(lambda: calls.gradient(batch, lambda logits: logits.amax(1))), timed(lambda: calls.logits(batch))


def _makespan(units: Sequence[Unit], speeds: dict[tuple[str, str], Speed], processes: int) -> float:
    """Seconds until all units are done if whoever is free first takes the next one; opening a model counts, too."""
    free: list[tuple[float, str]] = [(0.0, "")] * processes
    for unit in units:
        speed = speeds[unit.model, unit.part]
        at, model = heapq.heappop(free)
        opening = speed.opening if model != unit.model else 0.0
        heapq.heappush(free, (at + opening + speed.seconds * len(unit), unit.model))
    return max(at for at, _ in free)
