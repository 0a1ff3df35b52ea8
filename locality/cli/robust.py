"""`locality robust`: accuracy under attack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion, options
from locality.cli.preprocessing_options import (
    check_expected,
    say_preprocessing,
    warn_if_inaccurate,
    with_preprocessing,
)
from locality.cli.printing import print_table, say, say_json, with_interval
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.errors import ArgumentError
from locality.robustness import ATTACK_NAMES, check_request, check_surrogate
from locality.types import NORMS, Threat

if TYPE_CHECKING:
    from locality.robustness.results import AttackedImages
    from locality.robustness.robust_accuracy import RobustAccuracy
    from locality.robustness.transfer import TransferAccuracy

ATTACK_HELP = (
    "paper: APGD-CE and APGD-DLR; standard: AutoAttack; pgd20, cw20: 20 steps (or any N) on cross-entropy or "
    "margin; rays: predicted classes only, 10,000 queries (rays2000: fewer), with the mean boundary distance."
)


@with_preprocessing
def robust(
    model: options.ModelName,
    norm: options.NormName = "linf",
    eps: Annotated[str, typer.Option(help="Largest perturbation, in pixels of [0, 1]: 4/255, 0.5.")] = "4/255",
    attack: Annotated[str, typer.Option(metavar=f"<{'|'.join(ATTACK_NAMES)}>", help=ATTACK_HELP)] = "paper",
    surrogate: Annotated[
        str | None,
        typer.Option(
            help="Attack this model instead, with pgdN or cwN, and see how far the attack transfers.",
            autocompletion=completion.models,
        ),
    ] = None,
    data: options.DataName = None,
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch; changes AutoAttack's random numbers.")] = 32,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the result of every image. An interrupted run resumes there.")
    ] = None,
    as_json: options.AsJson = False,
    download: options.Download = False,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    expect_accuracy: options.ExpectAccuracy = None,
) -> None:
    """Measure accuracy under attack: the share of images that no attack within EPS moves to another class."""
    try:
        threat = Threat(norm, options.number("--eps", eps, "a distance such as 4/255 or 0.5"))
    except ArgumentError as error:
        raise error.renamed("--eps") from None
    check_request(norm, threat.radius, attack, batch_size)
    if surrogate is not None:
        check_surrogate(attack)
    options.check_folder(out)
    expected = check_expected(expect_accuracy)
    with warnings_as_lines():
        from locality.progress import progress
        from locality.robustness.robust_accuracy import robust_accuracy
        from locality.robustness.transfer import TransferAccuracy, transfer_accuracy

        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        images = options.loaded_data(data, network.spec, limit, seed, boxes, data_option)
        given: dict[str, Any] = {
            "norm": norm,
            "epsilon": threat.radius,
            "attack": attack,
            "batch_size": batch_size,
            "seed": seed,
        }
        given |= {"store": None if out is None else out / "batches"}
        result: RobustAccuracy | TransferAccuracy
        with progress(f"{attack} on {surrogate or model}") as report:
            if surrogate is None:
                result = robust_accuracy(network, images, **given, progress=report)
            else:
                source = options.loaded_model(surrogate, device=device, download=download)
                result = transfer_accuracy(network, source, images, **given, name=surrogate, progress=report)
    warn_if_inaccurate(model, data or images.name, int(result.clean.sum()), int(result.known.sum()), expected)
    names = {"model": model, "data": images.name}
    paths = () if out is None else result.write(out, **names)
    if as_json:
        say_json(result.to_json(**names))
        return
    say(f"{model} on {images}")
    say_preprocessing(network)
    if isinstance(result, TransferAccuracy):
        _print_transfer(result, f"{NORMS[norm]} {eps}")
    else:
        _print(result, f"{NORMS[norm]} {eps}")
    if paths:
        say(f"every image: {', '.join(str(path) for path in paths)}")


def _print(result: RobustAccuracy, threat: str) -> None:
    known = int(result.known.sum())
    print_table(
        ["", "accuracy", "95 % interval", "images"],
        [
            _row("clean", int(result.clean.sum()), known),
            _row(f"robust, {threat}", int(result.robust.sum()), known),
        ],
    )
    broken = ", ".join(f"{name} broke {count:,}" for name, count in result.broken.items())
    say(f"{result.attack}: {broken}; batches of {result.batch_size}, seed {result.seed}")
    if result.measures_distances:
        distance = result.boundary_distance
        missing = f"; none found for {distance.undefined:,}" if distance.undefined else ""
        say(
            f"mean ℓ∞ distance to the boundary: {with_interval(distance, 4)}, over {distance.used:,} correct images{missing}"
        )
    _print_left_out(result)


def _print_transfer(result: TransferAccuracy, threat: str) -> None:
    titles = {
        "clean": "clean",
        "robust": f"attacked on {result.surrogate}, {threat}",
        "robust_among_clean": "… among images correct before",
        "surrogate_clean": f"{result.surrogate}, clean",
        "surrogate_robust": f"{result.surrogate}, attacked",
    }
    rows = [_row(title, *result.shares[name]) for name, title in titles.items()]
    print_table(["", "accuracy", "95 % interval", "images"], rows)
    say(f"{result.attack} on {result.surrogate}, seed {result.seed}")
    _print_left_out(result)


def _print_left_out(result: AttackedImages) -> None:
    known = int(result.known.sum())
    abstained = int((result.abstained & result.known).sum())
    if abstained:
        say(f"abstained without attack: {abstained:,} of {known:,} images; they count as not correct")
    if result.undefined:
        say(f"left out: {result.undefined:,} images of classes that the model does not know")


def _row(name: str, count: int, of: int) -> tuple[str, ...]:
    from locality.intervals import wilson_interval

    if of == 0:
        return name, "undefined", "", "0 of 0"
    low, high = wilson_interval(count, of)
    return name, f"{count / of:.1%}", f"{low:.1%} – {high:.1%}", f"{count:,} of {of:,}"
