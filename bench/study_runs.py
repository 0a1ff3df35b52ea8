"""Training runs of a study: each is a recipe, trained once in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any


def checkpoint(folder: Path, name: str) -> Path:
    """Where the weights of a run are."""
    return folder / name / f"{name}.safetensors"


def train(table: Mapping[str, Any], folder: Path) -> Path:
    """Run a recipe unless it is finished; an interrupted run resumes. Give its checkpoint."""
    import torch

    from locality.training.export import write_model
    from locality.training.loop import train as run
    from locality.training.recipe import recipe_from

    torch.set_num_threads(1)
    recipe = recipe_from(table, table["name"])
    weights = checkpoint(folder, recipe.name)
    if not weights.with_suffix(".json").exists():
        write_model(run(recipe, weights.parent), recipe, weights.parent)
    return weights


def train_all(tables: Mapping[str, Mapping[str, Any]], folder: Path, processes: int) -> dict[str, Path]:
    """Run recipes, some at a time; give their checkpoints in the order of the recipes."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        runs = {pool.submit(train, table, folder): name for name, table in tables.items()}
        for number, run in enumerate(as_completed(runs), start=1):
            run.result()
            print(f"{number} of {len(runs)}: {runs[run]}", flush=True)
    return {name: checkpoint(folder, table["name"]) for name, table in tables.items()}
