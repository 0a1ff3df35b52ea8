"""`locality models`: list the models, show one, fetch its weights, convert a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion
from locality.cli.options import AsJson, TrustFirstDownload
from locality.cli.printing import note, print_table, say, say_json

if TYPE_CHECKING:
    from locality.zoo.model_card import ModelCard

FIRST_DOWNLOAD = "that of the first download, which needs --trust-first-download"
app = typer.Typer(help="List, show, fetch and convert models, and print their cards.", invoke_without_command=True)

ModelName = Annotated[
    str, typer.Argument(metavar="NAME", help="A model of `locality models`.", autocompletion=completion.models)
]


@app.callback()
def table(context: typer.Context, as_json: AsJson = False) -> None:
    """List the models: data, training, accuracies in per cent, parameters, and whether the weights are on this machine."""
    if context.invoked_subcommand is not None:
        return
    from locality.zoo.catalog import model_cards
    from locality.zoo.weight_files import where

    cards = model_cards().values()
    if as_json:
        say_json({"n": len(cards), "models": [_plain(card) for card in cards]})
        return
    header = ["name", "data", "training", "clean %", "robust %", "attack", "parameters", "weights"]
    rows = [
        (
            card.name,
            card.data,
            card.trained,
            "" if card.clean is None else _per_cent(card.clean),
            "" if card.robust is None else _per_cent(card.robust.share),
            "" if card.robust is None else str(card.robust),
            f"{card.parameters / 1e6:.1f} M",
            where(card),
        )
        for card in cards
    ]
    print_table(header, rows, leave_out=["parameters", "attack", "robust %", "clean %", "training"])
    note("Other models: timm:NAME, hf:ORG/NAME, robustbench:NAME, the path of a checkpoint with --arch or of a folder of")
    note("Hugging Face, package.module:function.")
    note("`locality models show NAME` prints all that is known about a model.")


@app.command()
def show(name: ModelName, as_json: AsJson = False) -> None:
    """Print a model's card: architecture, weights, training, accuracy, preprocessing, licence."""
    from locality.zoo.catalog import find_card

    card = find_card(name)
    if as_json:
        say_json(_plain(card))
        return
    for title, text in _lines(card):
        say(f"{title:14s} {text}")


@app.command()
def card(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A model of `locality models`, or the path of a checkpoint with a card beside it.",
            autocompletion=completion.models,
        ),
    ],
) -> None:
    """Print a model's card in the format of the Hugging Face Hub, as the README.md of a repository with its weights."""
    from locality.zoo.catalog import find_card
    from locality.zoo.hub_card import hub_card
    from locality.zoo.model_card import card_path, read_card

    path = Path(name)
    for line in hub_card(read_card(card_path(path)) if path.is_file() else find_card(name)).splitlines():
        say(line)


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A model of `locality models`, timm:NAME, hf:ORG/NAME or robustbench:NAME.",
            autocompletion=completion.models,
        ),
    ],
    trust_first_download: TrustFirstDownload = False,
) -> None:
    """Download a model's weights into the cache, verify their checksum and load them. An interrupted download resumes."""
    from locality.progress import progress
    from locality.zoo.load import load_model

    with progress(name, "bytes") as report:
        model = load_model(name, download=True, trust_first_download=trust_first_download, progress=report)
    count = sum(weight.numel() for weight in model.parameters())
    say(f"{name}: {count / 1e6:.1f} M parameters, {len(model.spec.classes) or 'unknown'} classes, ready")


@app.command()
def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A checkpoint, or the name of a fetched model.")],
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Run the code inside the file. Only if you trust its author.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The safetensors file to write (default: FILE.safetensors).")] = None,
) -> None:
    """Convert a checkpoint to safetensors. One that needs code to load requires --trust-pickle."""
    from locality.errors import NeedsCodeError
    from locality.zoo.catalog import model_cards
    from locality.zoo.convert import PICKLE_RISK, convert
    from locality.zoo.model_card import Address
    from locality.zoo.weight_files import models_folder

    card = model_cards().get(file)
    path = models_folder() / card.weights.file if card and isinstance(card.weights, Address) else Path(file)
    try:
        converted = convert(path, out)
    except NeedsCodeError as error:
        if not trust_pickle:
            raise
        say(f"{path} runs {', '.join(error.code) or 'a pickle'}: {PICKLE_RISK}", error=True)
        converted = convert(path, out, trust_pickle=True)
    say(str(converted))


def _plain(card: ModelCard) -> dict[str, Any]:
    """The card for `--json`, with where the weights are."""
    from locality.zoo.model_card import plain_card
    from locality.zoo.weight_files import where

    return {"name": card.name, **plain_card(card), "location": where(card)}


def _lines(card: ModelCard) -> list[tuple[str, str]]:
    """The lines that `show` prints: title and text."""
    from locality.zoo.weight_files import where

    spec = card.spec
    size = "×".join(map(str, spec.input_size))
    view = f"resize to {spec.resize}, crop of {size}" if spec.resize else f"stretched to {size}"
    lines = [
        ("name", card.name),
        ("architecture", f"{card.architecture}, {card.parameters:,} parameters"),
        ("weights", where(card)),
        *_weight_lines(card),
        ("data", card.data),
        ("training", card.trained),
        ("clean", "not published" if card.clean is None else f"{_per_cent(card.clean)} %"),
        ("robust", "not published" if card.robust is None else f"{_per_cent(card.robust.share)} % under {card.robust}"),
        ("images", f"{spec.interpolation} {view}"),
        ("mean, std", f"{spec.mean}, {spec.std}"),
        ("licence", card.licence),
        ("paper", card.paper),
    ]
    if card.note:
        lines.append(("note", card.note.replace("NAME", card.name)))
    if card.run is None:
        return lines
    return [
        *lines,
        *((f"accuracy {measurement}", f"{_per_cent(share)} %") for measurement, share in card.accuracy.items()),
        ("data hash", card.run.data_hash),
        ("seed", str(card.run.seed)),
        ("minutes", str(card.run.minutes)),
        ("versions", ", ".join(f"{package} {version}" for package, version in card.run.versions.items())),
        ("recipe", ", ".join(f"{key} = {value}" for key, value in card.run.recipe.items())),
    ]


def _weight_lines(card: ModelCard) -> list[tuple[str, str]]:
    from locality.zoo.model_card import Address, Package, Seed, WeightFile
    from locality.zoo.weight_files import models_folder

    match card.weights:
        case Address(url=url, file=file, checksum=checksum):
            stored = str(models_folder() / file)
            return [
                ("source", url),
                ("stored at", stored),
                ("checksum", checksum or FIRST_DOWNLOAD),
            ]
        case Package(module=module, file=file, checksum=checksum):
            return [("source", f"Python package {module.replace('_', '-')}, {file}"), ("checksum", checksum)]
        case WeightFile(path=path, checksum=checksum):
            return [("source", path), ("checksum", checksum)]
        case Seed(seed=seed):
            return [("source", f"random initialisation with seed {seed}")]
        case _:
            return []


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}"
