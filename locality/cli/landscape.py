"""`locality landscape`: how flat the loss is around the images, or around the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import say_preprocessing, with_preprocessing
from locality.cli.printing import note, print_table, say, say_json
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.errors import ArgumentError
from locality.robustness import Space
from locality.types import Threat
from locality.zoo.model_card import card_path

if TYPE_CHECKING:
    from locality.robustness.landscape_grids import Landscapes

MEANINGS = {
    "range": "largest minus smallest loss",
    "deviation": "RMS distance from the tangent plane",
    "nonlinearity": "largest distance from the tangent plane",
    "curvature_gradient": "mean |second derivative| along the sign of the gradient",
    "curvature_random": "mean |second derivative| along random signs",
    "curvature_weights": "mean |second derivative| along the directions",
}


@with_preprocessing
def landscape(
    model: options.ModelName,
    against: Annotated[
        str | None, typer.Option(help="A second model, compared on the same images.", autocompletion=completion.models)
    ] = None,
    space: Annotated[Space, typer.Option(help="Around the images, or around the weights.")] = "input",
    data: options.DataName = None,
    limit: Annotated[int, typer.Option(help="Maximum number of images, balanced over the classes.")] = 16,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    radius: Annotated[str, typer.Option(help="Input space: how far to go in each direction, in pixels.")] = "16/255",
    eps: Annotated[
        str | None,
        typer.Option(help="Input space: a square to draw. Weight space: attack every image at every point (PGD, ℓ∞)."),
    ] = None,
    points: Annotated[int | None, typer.Option(help="Points per direction, odd. Default: 41 (input), 21 (weights).")] = None,
    directions: Annotated[int, typer.Option(help="Random directions in weight space.")] = 5,
    steps: Annotated[int, typer.Option(help="Steps of the attack in weight space.")] = 10,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the grids, one row per image, and the figure.")] = None,
    as_json: options.AsJson = False,
    download: options.Download = False,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
) -> None:
    """Measure and draw the loss landscape of a model, or of two on the same images."""
    reach = options.number("--radius", radius, "a distance such as 16/255")
    epsilon = None if eps is None else options.number("--eps", eps, "a distance such as 8/255 or 0.5")
    try:
        threat = None if epsilon is None else Threat("linf", epsilon)
    except ArgumentError as error:
        raise error.renamed("--eps") from None
    if against == model:
        raise ArgumentError("--against", "another model than --model", against)
    options.check_folder(out)
    with warnings_as_lines():
        from locality.runner.landscapes import measure_landscapes

        first, *others = _short_names([model] if against is None else [model, against])
        networks = {first: options.loaded_model(model, arch, num_classes, device, download, preprocessing)}
        for other in others:
            networks[other] = options.loaded_model(str(against), device=device, download=download)
        images = options.loaded_data(data, networks[first].spec, limit, seed, boxes, data_option)
        given = {"directions": directions, "steps": steps, "attack": threat} if space == "weights" else {"radius": reach}
        given |= {} if points is None else {"points": points}
        result = measure_landscapes(networks, images, space, seed=seed, **given)
    names = {"data": images.name}
    paths = () if out is None else result.write(out, **names)
    if out is not None:
        from locality.report.figures.files import write_figure
        from locality.report.figures.landscape import landscape_figure

        paths = (*paths, *write_figure(landscape_figure(result, epsilon), out, "landscape", ("png",)))
    if as_json:
        say_json(result.to_json(**names))
        return
    say(f"{' and '.join(networks)} on {images}")
    say_preprocessing(*networks.values())
    _print(result)
    if paths:
        say(f"files: {', '.join(map(str, paths))}")
    else:
        note("--out FOLDER writes the grids and draws them")


def _short_names(models: list[str]) -> list[str]:
    """Names for columns and axes: a checkpoint's without its folder and ending, unless two are then the same."""
    short = [card_path(Path(model)).stem if Path(model).is_file() else model for model in models]
    return short if len(set(short)) == len(short) else models


def _print(result: Landscapes) -> None:
    from locality.runner.landscapes import interval_text

    means, differences = result.means, result.differences
    rows = []
    for name in next(iter(means.values())):
        numbers = [interval_text(one[name].mean, one[name].low, one[name].high) for one in means.values()]
        if differences:
            change = differences[name]
            numbers.append(interval_text(change.difference, change.low, change.high, signed=True))
        rows.append((name, *numbers, MEANINGS[name]))
    images = len(next(iter(result.by_model.values())).ids)
    header = ["flatness", *means, *(["difference"] if differences else []), "meaning"]
    # Of two models, the difference is what the table is for.
    print_table(header, rows, leave_out=["meaning", *(reversed(means) if differences else ())])
    say(f"{result.settings['loss']}, {images:,} images; means with 95 % intervals over the images")
