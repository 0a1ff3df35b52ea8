"""`locality eval`: does one model look at the object?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from locality.cli import options
from locality.cli.printing import print_table, say
from locality.cli.warnings_as_lines import warnings_as_lines

if TYPE_CHECKING:
    import pandas as pd

    from locality.runner.summary import ModelSummary
    from locality.statistics import Summary

    Scores: TypeAlias = dict[str, dict[str, Summary]]  # method ↦ score ↦ summary


def evaluate(
    model: options.ModelName,
    data: options.DataName = None,
    methods: options.Methods = "SM,IG,BIG",
    search: options.SearchName = "fast",
    target: options.Target = "predicted",
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = 0,
    channels: options.Channels = "all",
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    download: options.Download = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the rows: rows.parquet, rows.csv, summary.json.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure locality: the share of a model's attributions that lies inside the boxes people drew."""
    options.check_folder(out)
    with warnings_as_lines():
        from locality.runner.blind import blind_summaries
        from locality.runner.evaluate import Settings
        from locality.runner.evaluate import evaluate as evaluated
        from locality.runner.provenance import provenance
        from locality.runner.summary import model_summary

        names = options.method_names(methods)
        settings = Settings(tuple(names), search, target, channels, seed=seed)
        network = options.loaded_model(model, arch, num_classes, device, download)
        images = options.loaded_data(data, network.spec, limit, seed, boxes)
        rows = evaluated(
            network,
            images,
            names,
            search,
            settings.target,
            settings.channels,
            seed=seed,
            batch_size=batch_size,
        )
    found, blind = model_summary(rows), blind_summaries(images, settings)
    summary = _summary(model, images.name, found, blind) | {"provenance": provenance(network, images, settings)}
    if out is not None:
        _write(rows, summary, out)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False, allow_nan=False))
        return
    say(f"{model} on {images}")
    if images.name == "photos":
        say("a handful of photographs; for ImageNet itself pass --data imagenet:PATH --boxes PATH")
    _print(found, blind)
    if out is not None:
        say(f"rows: {out / 'rows.parquet'}, {out / 'rows.csv'}")


def _print(found: ModelSummary, blind: Scores) -> None:
    from locality.results.schema import SCORES

    rows = [
        (name, *(with_interval(scores[score]) for score in SCORES), str(scores["f1"].undefined))
        for name, scores in (found.methods | {f"blind: {name}": scores for name, scores in blind.items()}).items()
    ]
    print_table(["method", *SCORES, "undefined"], rows, leave_out=["undefined", "precision", "recall"])
    accuracy = found.accuracy
    known = f"accuracy {with_interval(accuracy)}" if accuracy.used else "accuracy undefined: the classes are not the model's"
    say(f"{known}; {found.images:,} images")
    if found.searched:
        say(f"boundary found for {found.found:,} of {found.searched:,} images; ℓ2 distance {with_interval(found.distance)}")
    say("blind: maps that have seen neither the model nor the image, for comparison")
    say("lift: 0 is what the same attribution values score when shuffled over the image, 1 is perfect")


def with_interval(value: Summary) -> str:
    """The mean and its 95 % interval."""
    if value.used == 0:
        return "undefined"
    if value.used == 1:
        return f"{value.mean:.3f}"
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _summary(model: str, data: str, found: ModelSummary, blind: Scores) -> dict[str, Any]:
    from locality.runner.summary import as_json

    def plain(methods: Scores) -> dict[str, Any]:
        return {name: {score: as_json(value) for score, value in scores.items()} for name, scores in methods.items()}

    return {
        "model": model,
        "data": data,
        "n": found.images,
        "accuracy": as_json(found.accuracy),
        "methods": plain(found.methods),
        "blind": plain(blind),
        "boundary": {"found": found.found, "searched": found.searched, "distance": as_json(found.distance)},
    }


def _write(rows: pd.DataFrame, summary: dict[str, Any], folder: Path) -> None:
    """rows.parquet, rows.csv and summary.json, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False)
    writers: dict[str, Callable[[Path], object]] = {
        "rows.parquet": lambda path: rows.to_parquet(path, index=False),
        "rows.csv": lambda path: rows.to_csv(path, index=False),
        "summary.json": lambda path: path.write_text(text + "\n", encoding="utf-8"),
    }
    for name, write in writers.items():
        unfinished = folder / f".{name}.part"
        write(unfinished)
        os.replace(unfinished, folder / name)
