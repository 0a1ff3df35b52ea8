"""`locality models`: the table of all, a card, fetching, converting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locality.cli.printing import print_table, say

if TYPE_CHECKING:
    from locality.zoo.entry import Entry

app = typer.Typer(help="Models: a table of all; show, fetch, convert.", invoke_without_command=True)

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="A model of `locality models`.")]


@app.callback()
def table(context: typer.Context) -> None:
    """A table of all models: data, training, accuracies in per cent, parameters, and whether they are on this machine."""
    if context.invoked_subcommand is not None:
        return
    from locality.zoo.catalog import entries
    from locality.zoo.weight_files import where

    header = ["name", "data", "training", "clean %", "robust %", "under", "parameters", "where"]
    rows = [
        (
            entry.name,
            entry.label_space,
            entry.trained,
            _per_cent(entry.clean),
            _per_cent(entry.robust),
            entry.attack or "",
            f"{entry.parameters / 1e6:.1f} M",
            where(entry),
        )
        for entry in entries().values()
    ]
    print_table(header, rows, leave_out=["parameters", "under", "robust %"])
    say("Also: timm:NAME, the path of a checkpoint with --arch, package.module:function. `locality models show NAME`: more.")


@app.command()
def show(name: ModelName) -> None:
    """Print a model's card."""
    from locality.zoo.cards import shipped_cards
    from locality.zoo.catalog import find_entry

    for title, text in _card(find_entry(name)):
        say(f"{title:14s} {text}")
    card = shipped_cards().get(name)
    if card is not None:
        for title, value in {
            **{f"accuracy {measure}": f"{100 * share:.2f} %" for measure, share in card.accuracy.items()},
            "data hash": card.data_hash,
            "seed": card.seed,
            "minutes": card.minutes,
            "versions": ", ".join(f"{package} {version}" for package, version in card.versions.items()),
            "recipe": ", ".join(f"{key} = {value}" for key, value in card.recipe.items()),
        }.items():
            say(f"{title:14s} {value}")


@app.command()
def fetch(name: Annotated[str, typer.Argument(metavar="NAME", help="A model of `locality models`, or timm:NAME.")]) -> None:
    """Fetch a model's weights into the cache (resumes by itself, verifies the checksum), and see that they load."""
    from locality.progress import progress
    from locality.zoo.load import load_model

    with progress(name, "bytes") as report:
        model = load_model(name, download=True, progress=report)
    count = sum(weight.numel() for weight in model.parameters())
    say(f"{name}: {count / 1e6:.1f} M parameters, {len(model.spec.classes) or 'unknown'} classes, ready")


@app.command()
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A checkpoint, or a fetched model's name.")],
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Run the program inside the file. Only if you trust its author.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The safetensors file to write (FILE.safetensors if not given).")] = None,
) -> None:
    """Make a safetensors file of a checkpoint; one that needs code to load takes --trust-pickle."""
    from locality.zoo.catalog import entries
    from locality.zoo.convert import WARNING, convert
    from locality.zoo.entry import Address
    from locality.zoo.weight_files import models_folder

    entry = entries().get(file)
    path = models_folder() / entry.weights.file if entry and isinstance(entry.weights, Address) else Path(file)
    if trust_pickle:
        say(f"{path}: {WARNING.partition(':')[0]}", error=True)
    say(str(convert(path, out, trust_pickle)))


def _card(entry: Entry) -> list[tuple[str, str]]:
    from locality.zoo.entry import Address, Package, Seed, Shipped
    from locality.zoo.weight_files import models_folder, where

    match entry.weights:
        case Address(url=url, file=file, checksum=checksum):
            source = [("from", url), ("to", str(models_folder() / file)), ("checksum", checksum or "the first one seen")]
        case Package(module=module, file=file, checksum=checksum):
            source = [("from", f"the Python package {module.replace('_', '-')}, {file}"), ("checksum", checksum)]
        case Shipped(file=file, checksum=checksum):
            source = [("from", file), ("checksum", checksum)]
        case Seed(seed=seed):
            source = [("from", f"drawn with seed {seed}")]
    height, width = entry.input_size
    robust = "not published" if entry.robust is None else f"{_per_cent(entry.robust)} % under {entry.attack}"
    return [
        ("name", entry.name),
        ("architecture", f"{entry.architecture}, {entry.parameters:,} parameters"),
        ("weights", where(entry)),
        *source,
        ("data", entry.label_space),
        ("training", entry.trained),
        ("clean", "not published" if entry.clean is None else f"{_per_cent(entry.clean)} %"),
        ("robust", robust),
        ("images", f"{entry.interpolation} resize to {entry.resize}, crop of {height}×{width}"),
        ("mean, std", f"{entry.mean}, {entry.std}"),
        ("licence", entry.licence),
        ("paper", entry.paper),
        *([("note", entry.note.replace("NAME", entry.name))] if entry.note else []),
    ]


def _per_cent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
