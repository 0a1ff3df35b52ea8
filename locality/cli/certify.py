"""`locality certify`: accuracy that provably does not change within a radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.certified import CERTIFICATES
from locality.certified.certificate import RADII, check_radii, radius_text
from locality.cli import options
from locality.cli.preprocessing_options import (
    check_expected,
    say_preprocessing,
    warn_if_inaccurate,
    with_preprocessing,
)
from locality.cli.printing import print_table, say, say_json
from locality.cli.settings_options import CommandWithSettings, option_name
from locality.cli.warnings_as_lines import warnings_as_lines
from locality.errors import ArgumentError
from locality.types import NORMS

if TYPE_CHECKING:
    from locality.certified import Certifier
    from locality.certified.certificate import Fact
    from locality.certified.verified_accuracy import VerifiedAccuracy

EPS_HELP = "Radii at which to state the verified accuracy, separated by commas: 36/255,72/255 or 0.25."
DEFAULT_EPS = ",".join(radius_text(radius) for radius in RADII)


@with_preprocessing
def certify(
    model: options.ModelName,
    by: str = "lipschitz",
    data: options.DataName = None,
    limit: options.Limit = None,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    eps: Annotated[str, typer.Option(help=EPS_HELP)] = DEFAULT_EPS,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option(help="Folder for one row per image and the summary.")] = None,
    as_json: options.AsJson = False,
    download: options.Download = False,
    arch: options.Arch = None,
    num_classes: options.NumClasses = None,
    preprocessing: Any = None,
    expect_accuracy: options.ExpectAccuracy = None,
    **settings: Any,
) -> None:
    """Certify a model: the share of images that are classified correctly, provably so within a radius (VRA).

    By default from a Lipschitz bound of the network, which is an error that names the layer where there is none; `--by
    smoothing` certifies the votes of noisy copies of the images, for any model.
    """
    certifier = _certifier(by, seed, {name: value for name, value in settings.items() if value is not None})
    distances = [options.number("--eps", text, "distances such as 36/255,72/255 or 0.25") for text in eps.split(",")]
    try:
        check_radii(distances)
    except ArgumentError as error:
        raise error.renamed("--eps") from None
    options.check_folder(out)
    expected = check_expected(expect_accuracy)
    with warnings_as_lines():
        from locality.certified.verified_accuracy import verified_accuracy
        from locality.progress import progress

        network = options.loaded_model(model, arch, num_classes, device, download, preprocessing)
        images = options.loaded_data(data, network.spec, limit, seed, boxes, data_option)
        with progress(f"{by} on {model}", "forward passes") as report:
            result = verified_accuracy(network, images, certifier, distances, progress=report)
    if expected is not None:  # a card's accuracy is not that of the smoothed model
        warn_if_inaccurate(model, images.name, int(result.correct.sum()), int(result.known.sum()), expected)
    names = {"model": model, "data": images.name, "by": by}
    paths = () if out is None else result.write(out, **names)
    if as_json:
        say_json(result.to_json(**names))
        return
    say(f"{model} on {images}")
    say_preprocessing(network)
    say(f"certified by {by}: {', '.join(f'{name} {value}' for name, value in result.settings.items()) or 'no settings'}")
    _print(result, [text.strip() for text in eps.split(",")])
    if paths:
        say(f"every image: {', '.join(str(path) for path in paths)}")


def _certifier(by: str, seed: int, given: dict[str, Any]) -> Certifier:
    """The certificate's settings; an option that belongs to another certificate is an error."""
    kind = CERTIFICATES[by]
    names = {field.name for field in fields(kind)}
    for name in given:
        if name not in names:
            expected = ", ".join(option_name(own) for own in sorted(names - {"seed"})) or "none"
            raise ValueError(f"`{option_name(name)}` is not an option of --by {by}, which has: {expected}")
    try:
        return kind(**given | ({"seed": seed} if "seed" in names else {}))
    except ArgumentError as error:
        raise error.renamed(option_name(error.argument)) from None


def _print(result: VerifiedAccuracy, radii: list[str]) -> None:
    known = int(result.known.sum())
    if known:
        _print_accuracy(result, radii, known)
    else:
        say("accuracy undefined: the model knows none of the classes")
        _print_decisions(result, radii)
    decided = int((~result.certificate.abstained).sum())
    if decided:
        say(f"median radius of the {decided:,} decisions: {NORMS[result.certificate.norm]} {result.median_radius:.3g}")
    if result.failure_probability:
        say(f"probability that the certificate of an image is false: at most {result.failure_probability:g}")
    else:
        say("the certificates are deterministic proofs")
    for name, value in result.certificate.facts.items():
        say(f"{name}: {_fact(value)}")
    if known and result.undefined:
        say(f"left out: {result.undefined:,} images of classes that the model does not know")


def _print_accuracy(result: VerifiedAccuracy, radii: list[str], known: int) -> None:
    sign = NORMS[result.certificate.norm]
    rows = [("clean", *_share(int(result.correct.sum()), known), "", "")]
    for text, radius in zip(radii, result.radii, strict=True):
        rejected, wrong = f"{result.rejected(radius) / known:.1%}", f"{result.wrong_but_certified(radius):,}"
        rows.append((f"verified, {sign} {text}", *_share(result.verified(radius), known), rejected, wrong))
    header = ["", "accuracy", "95 % interval", "images", "rejected", "certified but wrong"]
    print_table(header, rows, leave_out=["certified but wrong", "rejected"])
    say(f"wrong: {result.wrong / known:.1%} of {known:,} images; abstained: {result.abstained / known:.1%}")


def _print_decisions(result: VerifiedAccuracy, radii: list[str]) -> None:
    """What is certified without knowing what is right."""
    rows = []
    for text, radius in zip(radii, result.radii, strict=True):
        certified = int(result.certificate.certifies(radius).sum())
        rows.append((f"{NORMS[result.certificate.norm]} {text}", *_share(certified, len(result.ids))))
    print_table(["radius", "certified, right or wrong", "95 % interval", "images"], rows, leave_out=[])


def _share(count: int, of: int) -> tuple[str, str, str]:
    from locality.intervals import wilson_interval

    low, high = wilson_interval(count, of)
    return f"{count / of:.1%}", f"{low:.1%} – {high:.1%}", f"{count:,} of {of:,}"


def _fact(value: Fact) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.items())
    return value if isinstance(value, str) else f"{value:.4g}"


command = CommandWithSettings(certify, "by", "The certificate.", CERTIFICATES)
