"""`train`: run a recipe to its end, over any number of processes, resuming an interrupted run.

Every batch, every change of an image and every random start is a function of the seed, the epoch and the image. So the state
of a run is its weights, the optimizer's memory and what the parts of the step keep (average, step size, buffers), and an
interrupted run ends with the same weights, bit for bit, as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from locality.errors import ArgumentError
from locality.files import locked
from locality.progress import Progress, no_progress
from locality.training.batches import BatchKeys, TrainingImages, collate
from locality.training.interrupts import ignore_interrupts, interrupts_noted
from locality.training.monitor import Monitor, open_monitor
from locality.training.network import FeatureModel, Network, Weights
from locality.training.new_model import Beginning, beginning, run_problems
from locality.training.processes import log_line, new_accelerator
from locality.training.recipe import Recipe, RecipeError, check_recipe, recipe_from
from locality.training.reports import Listener, Report, beginning_text, say_nothing
from locality.training.run_state import Log, RunState, State, check_state, read_state, write_state
from locality.training.schedules import Moment
from locality.training.step import NotFiniteError, Terms, TrainingStep
from locality.training.trained import Trained, finished
from locality.training.validation import BestEpoch, best_epoch, held_out_part

SECONDS_BETWEEN_STATES = 60.0
STEPS_BETWEEN_LINES = 10


def train(
    recipe: Recipe,
    out: Path,
    progress: Progress = no_progress,
    device: str | None = None,
    workers: int = 0,
    listeners: Sequence[Listener] = (),
    begin: Callable[[], Beginning] | None = None,
    say: Callable[[str], None] = say_nothing,
) -> Trained:
    """Run `recipe`; the state and the log go to the folder `out`, and an interrupted run found there is resumed.

    `device` is "cpu", or None for the one that torch chooses. `listeners` are called with every line of the log, in the main
    process, and `say` with what a person should know before the first step. `begin` gives images and a model in memory, in
    place of those that the recipe names. Ctrl-C raises KeyboardInterrupt after the step under way, and after the state was
    saved.
    """
    check_recipe(recipe, in_memory=begin is not None)
    if device not in (None, "cpu"):
        raise ArgumentError(
            "device", "cpu, or omitted for torch's choice", device, "choose among GPUs with CUDA_VISIBLE_DEVICES"
        )
    with torch.random.fork_rng(), contextlib.ExitStack() as locks:
        return _trained(recipe, begin or partial(beginning, recipe), out, progress, device, workers, listeners, say, locks)


def _trained(
    recipe: Recipe,
    begin: Callable[[], Beginning],
    out: Path,
    progress: Progress,
    device: str | None,
    workers: int,
    listeners: Sequence[Listener],
    say: Callable[[str], None],
    locks: contextlib.ExitStack,
) -> Trained:
    accelerator = new_accelerator(recipe.precision, device)
    resumed = out.is_dir()  # a new folder is created, and locked, when nothing can be wrong with the recipe any more
    if resumed and accelerator.is_main_process:
        locks.enter_context(locked(out))
    begun = begin()
    data, held_out = begun.data, None
    if recipe.validation is not None:
        data, held_out = held_out_part(data, recipe.validation.share)
    problems = run_problems(recipe, data, accelerator.num_processes)
    if problems:
        raise RecipeError(recipe.name, problems)
    images = TrainingImages(data, recipe.augmentation, recipe.seed)
    fingerprint = data.fingerprint()
    state = _state_in(out / "state.pt", recipe, fingerprint)
    images.keep(no_progress)
    model = begun.model()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    said = say if accelerator.is_main_process else say_nothing
    if state is None:
        said(beginning_text(data, held_out, begun.start(model), model))
        if begun.note:
            said(begun.note)
    else:
        model.net.load_state_dict(state.weights)
    monitor = open_monitor(recipe, model, images)
    out.mkdir(parents=True, exist_ok=True)
    if not resumed and accelerator.is_main_process:
        locks.enter_context(locked(out))
    tuning = recipe.fine_tuning
    parts = () if tuning is None else (model.head.parameters(), tuning.body_rate)
    optimizer = recipe.optimizer(model.parameters(), *parts)
    wrapped, optimizer = accelerator.prepare(FeatureModel(model, recipe.keeps_statistics).train(), optimizer)
    memory: dict[str, State] = {} if state is None else state.memory
    if state is not None:
        optimizer.load_state_dict(state.optimizer)
        _restore(model.net, memory["buffers"])
    step = TrainingStep(
        recipe,
        accelerator,
        Network(wrapped, accelerator.unwrap_model(wrapped), lambda value: accelerator.reduce(value, reduction="mean")),
        optimizer,
        recipe.average(model.net.state_dict(), memory.get("average")),
        recipe.step_size(memory.get("step_size")),
    )
    done = 0 if state is None else state.step
    best = best_epoch(recipe, held_out, memory.get("best_epoch"))
    run = _Run(out, step, monitor, best, fingerprint, 0.0 if state is None else state.seconds, time.monotonic())
    keys = BatchKeys(
        len(images),
        recipe.batch_size,
        recipe.epochs,
        recipe.seed,
        done,
        accelerator.process_index,
        accelerator.num_processes,
    )
    loader = DataLoader(
        images, batch_sampler=keys, collate_fn=collate, num_workers=workers, worker_init_fn=ignore_interrupts
    )
    is_finished = not len(keys) or (best is not None and best.stops)
    if state is not None and not is_finished:
        said(f"resuming after step {done:,} of {done + len(keys):,}")
    if not is_finished:
        run.make_steps(loader, done, done + len(keys), progress, listeners if accelerator.is_main_process else ())
    accelerator.wait_for_everyone()
    model_of_run = finished(begun.model(), run.weights, step.average.stale_statistics, images, recipe, accelerator.device)
    return Trained(model_of_run, data, run.seconds / 60, bool(accelerator.is_main_process), is_finished, held_out, best)


@dataclass(frozen=True, eq=False)
class _Run:
    """A run in one sitting."""

    out: Path
    step: TrainingStep
    monitor: Monitor | None
    best: BestEpoch | None
    data: str  # the fingerprint of the training data
    seconds_before: float  # of earlier sittings
    began: float

    @property
    def net(self) -> nn.Module:
        return self.step.network.model.net

    @property
    def weights(self) -> Weights:
        """What the run ends with."""
        return self.best.weights if self.best is not None and self.best.epoch else self.step.average.result()

    @property
    def seconds(self) -> float:
        """Spent so far, over all sittings."""
        return self.seconds_before + time.monotonic() - self.began

    def make_steps(
        self, loader: Iterable[Any], done: int, total: int, progress: Progress, listeners: Sequence[Listener]
    ) -> None:
        """Make the steps after `done`; what goes wrong, or is interrupted, leaves the state of the last step made."""
        is_main = self.step.accelerator.is_main_process
        if is_main:
            Log(self.out / "log.jsonl").rewind(done)
            if self.monitor is not None:
                Log(self.out / "monitor.jsonl").rewind(done)
        saved = time.monotonic()
        with interrupts_noted() as interrupted:
            for number, batch in enumerate(loader, start=done):
                moment = Moment.of(number, total, self.step.recipe.epochs)
                terms = self._one_step(moment, *batch)
                if (number + 1) % STEPS_BETWEEN_LINES == 0 or moment.ends_epoch:
                    self._report(moment, terms, listeners)
                progress(number + 1, total)
                now = time.monotonic()
                ended = number + 1 == total or (self.best is not None and self.best.stops)
                if is_main and (now - saved > SECONDS_BETWEEN_STATES or ended or interrupted()):
                    self._save(number + 1)
                    saved = now
                if is_main and interrupted():  # the others wait for this process, and end with it
                    raise KeyboardInterrupt
                if ended:
                    return

    def _one_step(self, moment: Moment, images: Tensor, labels: Tensor, seeds: Sequence[int]) -> Terms:
        buffers = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
        try:
            return self.step(moment, images, labels, seeds)
        except NotFiniteError:
            # No weight has moved yet, but BatchNorm's statistics have.
            _restore(self.net, buffers)
            if self.step.accelerator.is_main_process:
                self._save(moment.step)
            raise

    def _report(self, moment: Moment, terms: Terms, listeners: Sequence[Listener]) -> None:
        line = log_line(moment, terms, self.step.accelerator)
        if self.best is not None:
            line |= self.best(moment, self.step)
        began = time.monotonic()
        measured = None if self.monitor is None else self.monitor(moment, line, self.step)
        now = time.monotonic()
        self.step.step_size.observe(line | (measured or {}))
        if self.step.accelerator.is_main_process:
            Log(self.out / "log.jsonl").write(line)
            if measured is not None:
                Log(self.out / "monitor.jsonl").write(measured)
        for listener in listeners:
            listener(Report(moment, line, measured, now - self.began, now - began))

    def _save(self, done: int) -> None:
        """Write the state, unless a weight is not finite: the next step fails, and the last good state is kept."""
        weights = self.net.state_dict()
        if not all(value.isfinite().all() for value in weights.values()):
            return
        entry = RunState(
            step=done,
            weights=weights,
            optimizer=self.step.optimizer.state_dict(),
            memory={
                "average": self.step.average.state,
                "step_size": self.step.step_size.state,
                "buffers": _buffers(self.net),
            }
            | ({} if self.best is None else {"best_epoch": self.best.state}),
            seconds=self.seconds,
            recipe=self.step.recipe.as_table(),
            data=self.data,
        )
        write_state(entry, self.out / "state.pt")


def _state_in(path: Path, recipe: Recipe, data: str) -> RunState | None:
    """The state of an interrupted run; a state of another recipe or of other data is an error."""
    state = read_state(path)
    if state is None:
        return None
    # Read as a recipe, so that a setting that is new since then counts as its default. A state of a version with other
    # recipes is compared as it is.
    with contextlib.suppress(RecipeError):
        state.recipe = recipe_from(state.recipe, str(path)).as_table()
    check_state(state, path, recipe.as_table(), data)
    return state


def _buffers(net: nn.Module) -> State:
    """Buffers that checkpoints leave out, such as the directions of a power iteration."""
    stored = net.state_dict()
    return {name: buffer for name, buffer in net.named_buffers() if name not in stored}


@torch.no_grad()
def _restore(net: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    own = dict(net.named_buffers())
    for name, value in buffers.items():
        own[name].copy_(value)
