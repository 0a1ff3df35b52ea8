"""`locality train`: run a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from locality.cli import options
from locality.cli.preprocessing_options import say_preprocessing
from locality.cli.printing import say


def train(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped recipe such as tiny_resnet_robust.")],
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
) -> None:
    """Train a model, standard or robust. An interrupted run resumes where it stopped.

    Several processes: python -m torch.distributed.run --nproc-per-node 2 -m locality train RECIPE
    """
    options.check_folder(out)
    import torch

    from locality.progress import progress
    from locality.training.export import write_model
    from locality.training.loop import train as train_recipe
    from locality.training.recipe import read_recipe

    chosen = read_recipe(recipe)
    if threads is not None:
        torch.set_num_threads(threads)
    folder = out / chosen.name
    with progress(f"training {chosen.name}", "steps") as report:
        trained = train_recipe(chosen, folder, report, device, workers)
    if not trained.is_main:
        return
    with progress("measuring", "images") as report:
        card = write_model(trained, chosen, folder, report)
    say_preprocessing(trained.model)
    for name, share in card.accuracy.items():
        say(f"{name}: {share:.1%}")
    weights = folder / f"{chosen.name}.safetensors"
    say(f"Trained in {trained.minutes:.1f} minutes. Weights: {weights}; card: {weights.with_suffix('.json')}")
