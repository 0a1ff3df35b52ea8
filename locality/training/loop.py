"""`train`: run a recipe to its end, over any number of processes, resuming an interrupted run.

Every batch, every change of an image and every random start is a function of the seed, the epoch and the image. So the state
of a run is its weights, the optimizer's memory and what the parts of the step keep (average, step size, buffers), and an
interrupted run ends with the same weights, bit for bit, as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader

from locality.data.dataset import ImageDataset, load_dataset
from locality.errors import ArgumentError
from locality.files import locked
from locality.progress import Progress, no_progress
from locality.training.averaging import Average
from locality.training.batches import BatchKeys, TrainingImages, collate, fitted_images
from locality.training.network import FeatureModel, Network
from locality.training.recipe import Recipe, RecipeError, check_recipe, check_shift, new_net, recipe_from
from locality.training.run_state import Log, RunState, State, check_state, read_state, write_state
from locality.training.schedules import Moment
from locality.training.step import Terms, TrainingStep
from locality.types import ModelSpec
from locality.zoo.load import load_model
from locality.zoo.pixel_model import PixelModel

SECONDS_BETWEEN_STATES = 60.0
STEPS_BETWEEN_LINES = 10


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run ends with; `model` is on the CPU, in eval mode, with the recipe's average of the weights."""

    model: PixelModel
    data: ImageDataset
    minutes: float
    is_main: bool  # of several processes, the one that writes files


def new_model(recipe: Recipe, data: ImageDataset) -> PixelModel:
    """The recipe's network with random weights, the same in every process."""
    height, width = (int(side) for side in data[0].image.shape[-2:])
    spec = ModelSpec(
        recipe.name, (height, width), max(height, width), "bilinear", recipe.mean, recipe.std, data.source.classes
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return PixelModel(new_net(recipe, len(spec.classes)), spec)


def load_start(model: PixelModel, recipe: Recipe) -> None:
    """Give the model the weights of the recipe's `start`, if it names one; that must be a model of the same kind."""
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
            f"`start`: {recipe.start} is not a {recipe.net.name} for {len(model.spec.classes)} classes: {reason}"
        ) from None


def train(
    recipe: Recipe,
    out: Path,
    progress: Progress = no_progress,
    device: str | None = None,
    workers: int = 0,
) -> Trained:
    """Run `recipe`; the state and the log go to the folder `out`, and an interrupted run found there is resumed.

    `device` is "cpu", or None for the one that torch chooses.
    """
    check_recipe(recipe)
    if device not in (None, "cpu"):
        raise ArgumentError(
            "device", "cpu, or omitted for torch's choice", device, "choose among GPUs with CUDA_VISIBLE_DEVICES"
        )
    with torch.random.fork_rng(), contextlib.ExitStack() as locks:
        return _trained(recipe, out, progress, device, workers, locks)


def _trained(
    recipe: Recipe, out: Path, progress: Progress, device: str | None, workers: int, locks: contextlib.ExitStack
) -> Trained:
    accelerator = _accelerator(recipe, device)
    resumed = out.is_dir()  # a new folder is created, and locked, when nothing can be wrong with the recipe any more
    if resumed and accelerator.is_main_process:
        locks.enter_context(locked(out))
    if recipe.batch_size % accelerator.num_processes:
        raise ArgumentError(
            "batch_size", f"a multiple of the number of processes, {accelerator.num_processes}", recipe.batch_size
        )
    data = fitted_images(load_dataset(recipe.data.name, split="train", limit=recipe.data.limit), recipe)
    images = TrainingImages(data, recipe.augmentation, recipe.seed)
    if len(images) < recipe.batch_size:
        raise ArgumentError("batch_size", f"at most the number of training images, {len(images)}", recipe.batch_size)
    check_shift(recipe, *data[0].image.shape[-2:])
    fingerprint = data.fingerprint()
    state = _state_in(out / "state.pt", recipe, fingerprint)
    images.keep(no_progress)
    model = new_model(recipe, data)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if state is None:
        load_start(model, recipe)
    else:
        model.net.load_state_dict(state.weights)
    out.mkdir(parents=True, exist_ok=True)
    if not resumed and accelerator.is_main_process:
        locks.enter_context(locked(out))
    optimizer = recipe.optimizer(model.parameters())
    wrapped, optimizer = accelerator.prepare(FeatureModel(model).train(), optimizer)
    memory: dict[str, State] = {} if state is None else state.memory
    if state is not None:
        optimizer.load_state_dict(state.optimizer)
        _restore_buffers(model.net, memory["buffers"])
    step = TrainingStep(
        recipe,
        accelerator,
        Network(wrapped, accelerator.unwrap_model(wrapped), lambda value: accelerator.reduce(value, reduction="mean")),
        optimizer,
        recipe.average(model.net.state_dict(), memory.get("average")),
        recipe.step_size(memory.get("step_size")),
    )
    done = 0 if state is None else state.step
    seconds_before = 0.0 if state is None else state.seconds
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
    log = Log(out / "log.jsonl")
    if accelerator.is_main_process:
        log.rewind(done)
    loader = DataLoader(images, batch_sampler=keys, collate_fn=collate, num_workers=workers)
    began = saved = time.monotonic()
    for number, (batch, labels, seeds) in enumerate(loader, start=done):
        moment = Moment.of(number, total, recipe.epochs)
        terms = step(moment, batch, labels, seeds)
        if (number + 1) % STEPS_BETWEEN_LINES == 0 or number + 1 == total:
            line = _line(moment, terms, accelerator)
            step.step_size.observe(line)
            if accelerator.is_main_process:
                log.write(line)
        progress(number + 1, total)
        now = time.monotonic()
        if accelerator.is_main_process and (now - saved > SECONDS_BETWEEN_STATES or number + 1 == total):
            entry = RunState(
                step=number + 1,
                weights=model.net.state_dict(),
                optimizer=optimizer.state_dict(),
                memory={
                    "average": step.average.state,
                    "step_size": step.step_size.state,
                    "buffers": _buffers(model.net),
                },
                seconds=seconds_before + now - began,
                recipe=recipe.as_table(),
                data=fingerprint,
            )
            write_state(entry, out / "state.pt")
            saved = now
    accelerator.wait_for_everyone()
    finished = _finished(recipe, step.average, images, accelerator.device)
    minutes = (seconds_before + time.monotonic() - began) / 60
    return Trained(finished, data, minutes, bool(accelerator.is_main_process))


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


def _line(moment: Moment, terms: Terms, accelerator: Any) -> dict[str, float]:
    """A line of the log: the terms of a step, averaged over the processes."""
    measured = {name: value for name, value in terms.items() if isinstance(value, Tensor)}
    stacked = torch.stack([value.float() for value in measured.values()])
    means = dict(zip(measured, accelerator.reduce(stacked, reduction="mean").tolist(), strict=True))
    others = {name: value for name, value in terms.items() if not isinstance(value, Tensor)}
    values = others | means
    line = {"step": moment.step + 1, "epoch": moment.epoch + 1} | {name: values[name] for name in terms}
    for name, value in line.items():
        if not -float("inf") < value < float("inf"):
            raise ValueError(f"`{name}` is {value} at step {moment.step + 1}: lower `learning_rate` or set `clip_norm`")
    return line


def _buffers(net: nn.Module) -> State:
    """Buffers that checkpoints leave out, such as the directions of a power iteration."""
    stored = net.state_dict()
    return {name: buffer for name, buffer in net.named_buffers() if name not in stored}


def _restore_buffers(net: nn.Module, state: State) -> None:
    for name, buffer in _buffers(net).items():
        buffer.copy_(state[name])


def _finished(recipe: Recipe, average: Average, images: TrainingImages, device: torch.device) -> PixelModel:
    """The model with the averaged weights and BatchNorm statistics that belong to them."""
    model = new_model(recipe, images.data)
    model.net.load_state_dict(average.result())
    if average.stale_statistics:
        torch.manual_seed(recipe.seed)  # networks with dropout draw from the global stream
        update_bn(images.unchanged(recipe.batch_size), model.to(device), device)
    return model.cpu().eval()


def _accelerator(recipe: Recipe, device: str | None) -> Any:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, is_initialized

    # The first run of a process sets the precision of all later ones, unless its state is reset. The group of processes
    # is not part of that state.
    if is_initialized() and AcceleratorState().mixed_precision != recipe.precision:
        AcceleratorState._reset_state()
    return Accelerator(mixed_precision=recipe.precision, cpu=device == "cpu")
