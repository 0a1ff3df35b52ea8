"""`locality train`: run a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from locality.cli import options
from locality.cli.printing import say


def train(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a recipe that ships (tiny_resnet_robust …).")],
    out: Annotated[Path, typer.Option(help="Folder for the run: state, log, weights and card.")] = Path("runs"),
    device: Annotated[str | None, typer.Option(help="cpu, or what torch finds if not given.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that prepare images; 0 does it in this one.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of torch on the CPU; its own choice if not given.")] = None,
) -> None:
    """Train a model, standard or robust; a run that was cut is gone on with.

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
    for name, share in card.accuracy.items():
        say(f"{name}: {share:.1%}")
    say(f"{folder / chosen.name}.safetensors after {trained.minutes:.1f} minutes; its card is beside it")
