"""`locality robust`: accuracy under attack."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import options
from locality.cli.printing import print_table, say
from locality.cli.warnings_as_lines import warnings_as_lines

if TYPE_CHECKING:
    from locality.robustness.robust_accuracy_result import RobustAccuracy

SIGN = {"linf": "ℓ∞", "l2": "ℓ2"}


def robust(
    model: options.ModelName,
    norm: Annotated[str, typer.Option(help="linf or l2.")] = "linf",
    eps: Annotated[str, typer.Option(help="How far an attack may go, in pixels of [0, 1]: 4/255, 0.5.")] = "4/255",
    attack: Annotated[
        str, typer.Option(help="paper (APGD-CE + APGD-DLR), standard (all of AutoAttack), pgd20 or cw20.")
    ] = "paper",
    data: options.DataName = None,
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    batch_size: Annotated[
        int, typer.Option(help="Images attacked together; AutoAttack's random numbers depend on it.")
    ] = 32,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result of every image; a killed run resumes there.")
    ] = None,
    as_json: options.AsJson = False,
    download: options.Download = False,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
) -> None:
    """Measure accuracy under attack: the share of images that no attack within EPS moves to another class."""
    epsilon = _epsilon(eps)
    options.check_folder(out)
    with warnings_as_lines():
        from locality.progress import progress
        from locality.robustness.robust_accuracy import check_request, robust_accuracy
        from locality.zoo.state_dict import weights_hash

        check_request(norm, epsilon, attack, batch_size)
        network = options.loaded_model(model, arch, num_classes, device, download)
        images = options.loaded_data(data, network.spec, limit, seed, boxes)
        with progress(f"{attack} on {model}") as report:
            result = robust_accuracy(
                network,
                images,
                norm=norm,  # type: ignore[arg-type]
                epsilon=epsilon,
                attack=attack,  # type: ignore[arg-type]
                batch_size=batch_size,
                seed=seed,
                store=None if out is None else out / "batches",
                progress=report,
            )
    summary = {"model": model, "data": images.name} | result.summary()
    summary["provenance"] |= {"weights_sha256": weights_hash(network), "data_sha256": images.fingerprint()}
    if out is not None:
        _write(result, summary, out)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False, allow_nan=False))
        return
    say(f"{model} on {images}")
    _print(result, f"{SIGN[norm]} {eps}")
    if out is not None:
        say(f"every image: {out / 'robust.csv'}, {out / 'robust.parquet'}")


def _epsilon(text: str) -> float:
    """The number that `4/255` or `0.5` stands for."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / (float(bottom) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"`--eps` must be a distance such as 4/255 or 0.5, got {text!r}") from None


def _print(result: RobustAccuracy, budget: str) -> None:
    known = int(result.known.sum())
    print_table(
        ["", "accuracy", "95 % interval", "images"],
        [
            _row("clean", result.clean_accuracy, result.clean_interval, int(result.clean.sum()), known),
            _row(f"robust, {budget}", result.accuracy, result.interval, int(result.robust.sum()), known),
        ],
    )
    broken = ", ".join(f"{name} broke {count:,}" for name, count in result.broken.items())
    say(f"{result.attack}: {broken}; batches of {result.batch_size}, seed {result.seed}")
    if result.undefined:
        say(f"{result.undefined:,} images of classes that the model does not know are left out")


def _row(name: str, share: float, interval: tuple[float, float], count: int, known: int) -> tuple[str, ...]:
    if known == 0:
        return name, "undefined", "", "0 of 0"
    return name, f"{share:.1%}", f"{interval[0]:.1%} – {interval[1]:.1%}", f"{count:,} of {known:,}"


def _write(result: RobustAccuracy, summary: dict[str, Any], folder: Path) -> None:
    """robust.csv, robust.parquet and robust.json, each whole or not at all."""
    table = result.table()
    text = json.dumps(summary, ensure_ascii=False, indent=2, allow_nan=False)
    writers: dict[str, Callable[[Path], object]] = {
        "robust.csv": lambda path: table.to_csv(path, index=False),
        "robust.parquet": lambda path: table.to_parquet(path, index=False),
        "robust.json": lambda path: path.write_text(text + "\n", encoding="utf-8"),
    }
    for name, write in writers.items():
        unfinished = folder / f".{name}.part"
        write(unfinished)
        os.replace(unfinished, folder / name)
