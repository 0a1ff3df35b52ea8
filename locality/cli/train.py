"""`locality train`: run a recipe."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import say_preprocessing
from locality.cli.printing import say
from locality.progress import is_quiet, open_no_progress, printable, progress

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
    from locality.training.recipe import read_recipe
    from locality.training.reports import EpochLines, Listener
    from locality.training.tensorboard import TensorBoardWriter

    chosen = read_recipe(recipe)
    if threads is not None:
        torch.set_num_threads(threads)
    folder = out / chosen.name
    listeners: list[Listener] = [EpochLines(_say_above_the_bar)]
    # Set by torch's launcher: of several processes, only the first one prints.
    opened = progress if os.environ.get("RANK", "0") == "0" else lambda title, unit: open_no_progress(title)
    try:
        with ExitStack() as closed:
            if tensorboard:
                listeners.append(closed.enter_context(closing(TensorBoardWriter(folder / "tensorboard"))))
            report = closed.enter_context(opened(f"training {chosen.name}", "steps"))
            trained = train_recipe(chosen, folder, report, device, workers, listeners)
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
        saved = (folder / "state.pt").exists()
        what = "The state is saved; run the same command to resume." if saved else "Nothing was saved yet."
        say(f"Interrupted. {what}", error=True)
        raise typer.Exit(130) from None
    say_preprocessing(trained.model)
    _say_accuracies(card)
    say(f"Finished: trained in {trained.minutes:.1f} minutes. {_files(folder, chosen)}")


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
    for name, share in card.accuracy.items():
        say(f"{name}: {share:.1%}")


def _files(folder: Path, recipe: Recipe) -> str:
    weights = folder / f"{recipe.name}.safetensors"
    return f"Weights: {weights}; card: {weights.with_suffix('.json')}"
