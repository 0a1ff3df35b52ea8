"""`locality train`: run a recipe."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import say_preprocessing
from locality.cli.printing import say
from locality.cli.processes import is_main_process, printing_once
from locality.errors import ArgumentError, DataError, ModelError
from locality.progress import is_quiet, printable, progress

if TYPE_CHECKING:
    from locality.training.recipe import Recipe
    from locality.zoo.model_card import ModelCard


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A TOML file, or the name of a shipped recipe such as tiny_resnet_robust.",
            autocompletion=completion.recipes,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for runs; each gets a subfolder with its state, log, weights and card.")
    ] = Path("runs"),
    device: Annotated[str | None, typer.Option(help="cpu; if omitted, the device that torch chooses.")] = None,
    workers: Annotated[
        int, typer.Option(help="Number of processes that load images; 0 loads them in the main process.")
    ] = 0,
    threads: Annotated[
        int | None, typer.Option(help="Number of torch threads on the CPU; if omitted, torch's default.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard to the run's folder.")
    ] = False,
) -> None:
    """Train a model, standard or robust. An interrupted run resumes where it stopped.

    One line per epoch goes to standard error. `locality figures RUN` draws the curves of a run.

    Several processes: python -m torch.distributed.run --nproc-per-node 2 -m locality train RECIPE
    """
    options.check_folder(out)
    import torch

    from locality.training.export import write_model
    from locality.training.loop import train as train_recipe
    from locality.training.recipe import RecipeError, read_recipe
    from locality.training.reports import EpochLines, LastLoss, Listener
    from locality.training.tensorboard import TensorBoardWriter
    from locality.training.validation import best_epoch_text

    if threads is not None:
        torch.set_num_threads(threads)
    folder: Path | None = None
    loss = LastLoss()
    listeners: list[Listener] = [EpochLines(_say_above_the_bar), loss]
    try:
        with printing_once(), ExitStack() as closed:
            chosen = read_recipe(recipe)
            folder = out / chosen.name
            if tensorboard:
                listeners.append(closed.enter_context(closing(TensorBoardWriter(folder / "tensorboard"))))
            report = closed.enter_context(progress(f"training {chosen.name}", "steps", loss.text))
            trained = train_recipe(chosen, folder, report, device, workers, listeners, say=_say_above_the_bar)
        if not trained.is_main:
            return
        card = _card_in(folder, chosen) if trained.was_finished else None
        if card is not None:
            _say_accuracies(card)
            say(f"The run was finished before, in {trained.minutes:.1f} minutes. {_files(folder, chosen)}")
            return
        with progress("measuring", "images") as report:
            card = write_model(trained, chosen, folder, report)
    except KeyboardInterrupt:
        if is_main_process():
            every = {"recipe": recipe, "out": out, "device": device, "workers": workers, "threads": threads}
            _say_interrupted(folder, every | {"tensorboard": tensorboard})
        raise typer.Exit(130) from None
    except (RecipeError, ArgumentError, DataError, ModelError):  # every process has the same mistake to report
        if is_main_process():
            raise
        raise typer.Exit(2) from None
    say_preprocessing(trained.model)
    _say_accuracies(card)
    if trained.best is not None:
        say(best_epoch_text(trained.best, chosen.epochs))
    say(f"Finished: trained in {trained.minutes:.1f} minutes. {_files(folder, chosen)}")


def _say_interrupted(folder: Path | None, options: Mapping[str, object]) -> None:
    """What is saved after Ctrl-C, and the command that resumes."""
    if folder is None or not (folder / "state.pt").exists():
        say("Interrupted. Nothing was saved yet.", error=True)
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the words before ours, those of torch's launcher, are not known
        say("Interrupted. The state is saved; run the same command to resume.", error=True)
    else:
        given = {f"--{name}": str(value) for name, value in options.items() if value not in (None, False, 0)}
        words = [word for name, value in given.items() for word in ([name] if value == "True" else [name, value])]
        say(f"Interrupted. The state is saved; resume with: {shlex.join(['locality', 'train', *words[1:]])}", error=True)


def _say_above_the_bar(line: str) -> None:
    """Print a line on standard error; a progress bar, which rich keeps at the bottom, stays below it."""
    if not is_quiet():
        print(printable(line), file=sys.stderr, flush=True)


def _card_in(folder: Path, recipe: Recipe) -> ModelCard | None:
    """The card of this recipe's model, if both were written before."""
    from locality.zoo.model_card import read_card

    weights = folder / f"{recipe.name}.safetensors"
    if not (weights.exists() and weights.with_suffix(".json").exists()):
        return None
    card = read_card(weights.with_suffix(".json"))
    return card if card.run is not None and card.run.recipe == recipe.as_table() else None


def _say_accuracies(card: ModelCard) -> None:
    if not card.accuracy:
        say("accuracy: not measured, because all images were trained on")
    for name, share in card.accuracy.items():
        say(f"{name}: {share:.1%}")
    if card.note:
        say(f"note: {card.note}")


def _files(folder: Path, recipe: Recipe) -> str:
    weights = folder / f"{recipe.name}.safetensors"
    return f"Weights: {weights}; card: {weights.with_suffix('.json')}"
