"""`train`: one recipe, run to its end, over any number of processes, resumed where it was cut.

Every batch, every change of an image and every random start is a function of the seed, the epoch and the image, and the
size of a step is a function of its number. So the state is the weights, their average and the optimizer's memory, and a run
that was killed ends with the same weights, to the last bit, as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from locality.data.dataset import ImageDataset, load_dataset
from locality.perturbation import random_in_ball
from locality.progress import Progress
from locality.torchvision_shim import import_torchvision
from locality.training.batches import BatchKeys, TrainingImages, together
from locality.training.inner_attack import perturbed
from locality.training.losses import LOSSES, REGULARISERS, Objective, TrainingBatch
from locality.training.recipe import LossPart, OptimizerPart, Recipe, check_recipe, check_shift
from locality.training.run_state import Log, RunState, read_state, write_state
from locality.training.schedules import growing, one_cycle
from locality.types import ModelSpec
from locality.zoo.load import load_model
from locality.zoo.nets import NETS
from locality.zoo.pixel_model import PixelModel

SECONDS_BETWEEN_STATES = 60.0
STEPS_BETWEEN_LINES = 10
NEAR = 1e-3  # deviation of the noise that TRADES' attack begins with


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run ends with; `model` is on the CPU, in eval mode, with averaged weights where the recipe asks for them."""

    model: PixelModel
    data: ImageDataset
    minutes: float
    is_main: bool  # of several processes, the one that writes files


def new_model(recipe: Recipe, data: ImageDataset) -> PixelModel:
    """The recipe's network with weights as they are drawn; the same for every process."""
    height, width = (int(side) for side in data[0].image.shape[-2:])
    spec = ModelSpec(
        recipe.name, (height, width), max(height, width), "bilinear", recipe.mean, recipe.std, data.source.classes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return PixelModel(NETS[recipe.net](len(spec.classes)), spec)


def begin_at_start(model: PixelModel, recipe: Recipe) -> None:
    """Give the model the weights that the recipe starts from, if it names any; they must have been made for such a model."""
    if recipe.start is None:
        return
    start = load_model(recipe.start)
    if (start.spec.mean, start.spec.std) != (model.spec.mean, model.spec.std):
        raise ValueError(
            f"`start`: {recipe.start} has mean {start.spec.mean} and std {start.spec.std}: give the recipe the same"
        )
    try:
        model.net.load_state_dict(start.net.state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"`start`: {recipe.start} is not a {recipe.net} for {len(model.spec.classes)} classes: {reason}"
        ) from None


def train(
    recipe: Recipe,
    out: Path,
    progress: Progress = lambda done, total: None,
    device: str | None = None,
    workers: int = 0,
) -> Trained:
    """Run `recipe`; the state and the log go to the folder `out`, and a run found there is gone on with.

    `device` is "cpu", or None for what torch finds.
    """
    check_recipe(recipe)
    if device not in (None, "cpu"):
        raise ValueError(
            f"`device` must be cpu, or left out for what torch finds, got {device!r}: choose among GPUs with "
            "CUDA_VISIBLE_DEVICES"
        )
    with torch.random.fork_rng():
        return _trained(recipe, out, progress, device, workers)


def _trained(recipe: Recipe, out: Path, progress: Progress, device: str | None, workers: int) -> Trained:
    accelerator = _accelerator(recipe, device)
    if recipe.batch_size % accelerator.num_processes:
        raise ValueError(
            f"`batch_size` must be a multiple of the number of processes, got {recipe.batch_size} for "
            f"{accelerator.num_processes}"
        )
    data = load_dataset(recipe.data.name, split="train", limit=recipe.data.limit)
    images = TrainingImages(data, recipe.augmentation, recipe.seed)
    if len(images) < recipe.batch_size:
        raise ValueError(f"`batch_size` is {recipe.batch_size}, but there are only {len(images)} images to train on")
    check_shift(recipe, *data[0].image.shape[-2:])
    fingerprint = data.fingerprint()
    state = read_state(out / "state.pt", recipe.as_table(), fingerprint)
    images.keep(lambda done, total: None)
    out.mkdir(parents=True, exist_ok=True)
    model = new_model(recipe, data)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if state is None:
        begin_at_start(model, recipe)
    else:
        model.net.load_state_dict(state.weights)
    optimizer = _optimizer(model, recipe.optimizer)
    wrapped, optimizer = accelerator.prepare(model.train(), optimizer)
    if state is not None:
        optimizer.load_state_dict(state.optimizer)
    run = _Run(recipe, accelerator, wrapped, model, optimizer, _average(recipe, model, state), Log(out / "log.jsonl"))
    done = 0 if state is None else state.step
    before = 0.0 if state is None else state.seconds
    keys = BatchKeys(
        len(images),
        recipe.batch_size,
        recipe.epochs,
        recipe.seed,
        done,
        accelerator.process_index,
        accelerator.num_processes,
    )
    total = done + len(keys)
    if accelerator.is_main_process:
        run.log.rewind(done)
    loader = DataLoader(images, batch_sampler=keys, collate_fn=together, num_workers=workers)
    began = saved = time.monotonic()
    for number, (batch, labels, seeds) in enumerate(loader, start=done):
        run.step(number, total, batch, labels, seeds)
        progress(number + 1, total)
        now = time.monotonic()
        if accelerator.is_main_process and (now - saved > SECONDS_BETWEEN_STATES or number + 1 == total):
            seconds = before + now - began
            weights, memory = model.net.state_dict(), optimizer.state_dict()
            entry = RunState(number + 1, weights, run.average, memory, seconds, recipe.as_table(), fingerprint)
            write_state(entry, out / "state.pt")
            saved = now
    accelerator.wait_for_everyone()
    finished = new_model(recipe, data)
    finished.net.load_state_dict(run.average or model.net.state_dict())
    minutes = (before + time.monotonic() - began) / 60
    return Trained(finished.eval(), data, minutes, bool(accelerator.is_main_process))


@dataclass(frozen=True, eq=False)
class _Run:
    """The moving parts of one run."""

    recipe: Recipe
    accelerator: Any
    wrapped: Any  # the model as accelerate prepared it
    model: PixelModel
    optimizer: Any
    average: dict[str, Tensor]
    log: Log

    def step(self, number: int, total: int, images: Tensor, labels: Tensor, seeds: list[int]) -> None:
        """One step of the optimizer on one batch."""
        recipe, device = self.recipe, self.accelerator.device
        images = images.to(device).contiguous(memory_format=torch.channels_last)
        epoch = number * recipe.epochs // total
        batch = self._batch(images, labels.to(device), seeds, growing(epoch, recipe.epochs, recipe.loss.warm_up))
        # Networks with dropout draw from the global stream; this makes what they draw a function of the step.
        torch.manual_seed((recipe.seed * 1_000_003 + number) * 4_099 + self.accelerator.process_index)
        outcome = LOSSES[recipe.loss.name](batch)
        loss = outcome.loss
        for name, weight in recipe.regularisers.items():
            loss = loss + weight * REGULARISERS[name](batch, outcome.logits)
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        if recipe.optimizer.clip_norm is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip_norm)
        size = one_cycle(number, total) if recipe.optimizer.schedule == "one_cycle" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.optimizer.learning_rate * size
        self.optimizer.step()
        self._update_average(number)
        if (number + 1) % STEPS_BETWEEN_LINES == 0 or number + 1 == total:
            self._write_line(number + 1, loss, outcome.logits, batch.labels, recipe.optimizer.learning_rate * size)

    def _batch(self, images: Tensor, labels: Tensor, seeds: list[int], share: float) -> TrainingBatch:
        settings = self.recipe.loss
        epsilon = settings.epsilon * share
        # The unwrapped model: the wrapper of several processes waits for gradients that an attack never asks for.
        bare: nn.Module = self.accelerator.unwrap_model(self.wrapped)

        def logits(images: Tensor) -> Tensor:
            with _mode(bare, settings.attack_mode):
                found: Tensor = bare(images)
            return found

        def attack(objective: Objective, begin: Literal["random", "near"]) -> Tensor:
            radius = epsilon if begin == "random" else min(NEAR, epsilon)
            start = random_in_ball(images, seeds, radius, settings.norm)
            steps, size = _steps(settings)
            with _mode(bare, settings.attack_mode):
                return perturbed(bare, images, objective, start, epsilon, settings.norm, steps, size * epsilon)

        return TrainingBatch(self.wrapped, logits, attack, images, labels, settings)

    def _update_average(self, number: int) -> None:
        decay = min(self.recipe.ema, (1 + number) / (10 + number))  # the first steps forget faster: the end is far
        now = self.model.net.state_dict()
        with torch.no_grad():
            for name, value in self.average.items():
                if value.is_floating_point():
                    value.lerp_(now[name], 1 - decay)
                else:
                    value.copy_(now[name])

    def _write_line(self, step: int, loss: Tensor, logits: Tensor, labels: Tensor, learning_rate: float) -> None:
        correct = (logits.argmax(1) == labels).float().mean()
        both = self.accelerator.reduce(torch.stack([loss.detach().float(), correct]), reduction="mean")
        if not torch.isfinite(both).all():
            raise ValueError(f"the loss is {float(both[0])} at step {step}: lower `learning_rate` or set `clip_norm`")
        if self.accelerator.is_main_process:
            self.log.write(step=step, loss=float(both[0]), accuracy=float(both[1]), learning_rate=learning_rate)


def _accelerator(recipe: Recipe, device: str | None) -> Any:
    import_torchvision()  # accelerate imports torchvision
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, is_initialized

    # The first run of a process settles the precision for all others, unless it is forgotten. What is forgotten does not
    # include the group of processes, which lives in another state.
    if is_initialized() and AcceleratorState().mixed_precision != recipe.precision:
        AcceleratorState._reset_state()
    return Accelerator(mixed_precision=recipe.precision, cpu=device == "cpu")


def _steps(settings: LossPart) -> tuple[int, float]:
    """Number of steps and their size in ε; fast AT is one step of 1.25 ε by definition."""
    return (1, 1.25) if settings.name == "fast_at" else (settings.steps, settings.step_size)


def _average(recipe: Recipe, model: PixelModel, state: RunState | None) -> dict[str, Tensor]:
    if not recipe.ema:
        return {}
    weights = model.net.state_dict() if state is None else state.average
    device = next(model.parameters()).device
    return {name: value.detach().to(device, copy=True) for name, value in weights.items()}


def _optimizer(model: nn.Module, settings: OptimizerPart) -> torch.optim.Optimizer:
    matrices = [value for value in model.parameters() if value.dim() > 1]
    others = [value for value in model.parameters() if value.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if settings.name == "sgd":
        return torch.optim.SGD(groups, settings.learning_rate, momentum=settings.momentum, nesterov=settings.momentum > 0)
    return torch.optim.AdamW(groups, settings.learning_rate)


@contextmanager
def _mode(model: nn.Module, mode: Literal["eval", "train"]) -> Iterator[None]:
    """The model in eval mode for a while, or left in training mode."""
    if mode == "train":
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
