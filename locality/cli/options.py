"""Options that several commands share, and the functions that turn them into models, data and folders."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from locality.cli import completion
from locality.cli.printing import say
from locality.data.kinds import sources_text
from locality.errors import ArgumentError
from locality.toml_settings import number_from
from locality.types import Channels as ChannelsName
from locality.types import Norm, Region, TargetName

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset
    from locality.types import ModelSpec
    from locality.zoo.pixel_model import PixelModel

CueName = Literal["none", "sticker", "swapped"]  # those of `data.cues`, which imports torch
MODEL_HELP = (
    "A name listed by `locality models`, timm:NAME, hf:ORG/NAME, robustbench:NAME, the path of a checkpoint or of a folder "
    "of Hugging Face, or package.module:function."
)
ModelName = Annotated[str, typer.Option(help=MODEL_HELP, autocompletion=completion.models)]
DataName = Annotated[
    str | None,
    typer.Option(
        help=f"Images: {sources_text()}. By default the data set with the model's classes.",
        autocompletion=completion.data,
    ),
]
Boxes = Annotated[
    Path | None,
    typer.Option(
        help="Boxes, by a path or by a name inside the data: a JSON of COCO, a CSV (also LOC_val_solution.csv), or a folder "
        "of XML files (VOC, ImageNet) or text files (YOLO)."
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the source, such as categories=cat,dog or columns=filename=picture; repeat for several.",
    ),
]
Cue = Annotated[
    CueName | None,
    typer.Option(
        help="Plant a cue on the images: sticker, whose colours name the class; swapped, that of the next class; none. "
        "Its size: --data-option cue_size=0.2."
    ),
]
RegionName = Annotated[
    Region, typer.Option("--region", help="What locality is measured against: box, object (its mask) or the planted cue.")
]
Limit = Annotated[int | None, typer.Option(help="Maximum number of images, balanced over the classes.")]
Methods = Annotated[
    str,
    typer.Option(
        help="Attribution methods, separated by commas: SM,InputXGradient,IG,BSM,BIG,BSG,BDeepLIFT,SmoothGrad,AGI,Rollout,"
        "GradientRollout,captum:NAME,captum:NAME@LAYER.",
        autocompletion=completion.methods,
    ),
]
SearchName = Annotated[
    str,
    typer.Option(
        help="Boundary search: fast, thorough, paper, autopgd or foolbox:NAME.", autocompletion=completion.searches
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        help="Class that boundary points must have: its name or number among the model's classes. Default: any other class."
    ),
]
Target = Annotated[TargetName, typer.Option(help="The class that is attributed.")]
Channels = Annotated[
    ChannelsName, typer.Option(help="all: every channel of a pixel is a feature; sum: channels are added first.")
]
Scores = Annotated[
    str,
    typer.Option(
        help="Further scores, separated by commas: curve_area, pointing_game, energy_pointing_game, "
        "attribution_localisation, relevance_mass_accuracy, relevance_rank_accuracy, top_k_intersection, roc_auc, "
        "iou_at_quantile; of the whole data set: max_box_acc_v2, px_ap; against the model: deletion, insertion, road, "
        "random_logit, max_sensitivity."
    ),
]
NormName = Annotated[Norm, typer.Option(help="Norm of the perturbation.")]
PathPoints = Annotated[
    str,
    typer.Option("--points", help="Points on the paths of IG and BIG; auto: as many as a completeness gap of 5 % needs."),
]
Device = Annotated[str | None, typer.Option(help="Device: cpu (default), cuda, cuda:1, mps.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per batch; does not change the results.")]
Seed = Annotated[int, typer.Option(help="Seed for the choice of images and for random numbers.")]
Arch = Annotated[
    str | None,
    typer.Option(
        help="Architecture of a checkpoint: torchvision:NAME, timm:NAME, net:NAME, package.module:function or the name of a "
        "model."
    ),
]
NumClasses = Annotated[int | None, typer.Option(help="Number of classes of a checkpoint.")]
Download = Annotated[bool, typer.Option("--download", help="Download weights that are missing.")]
TrustFirstDownload = Annotated[
    bool,
    typer.Option(
        "--trust-first-download",
        help="Download weights without a published sha256, and store theirs: later downloads must have it, too.",
    ),
]
ExpectAccuracy = Annotated[
    str | None,
    typer.Option(
        help="Accuracy that the model should have, such as 0.76; one far below is a warning (default: that of its card)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def path_points(text: str) -> int | Literal["auto"]:
    """The value of --points."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 2:
        raise ArgumentError("--points", "a whole number of at least 2, or auto", text)
    return int(text)


def loaded_model(
    name: str,
    arch: str | None = None,
    num_classes: int | None = None,
    device: str | None = None,
    download: bool = False,
    preprocessing: Mapping[str, Any] = MappingProxyType({}),
) -> PixelModel:
    """The model behind the options, with a progress bar while it is downloaded; `preprocessing` goes to `load_model`."""
    from locality.progress import progress
    from locality.zoo.load import load_model

    with progress(f"loading {name}", "bytes") as report:
        try:
            return load_model(
                name,
                arch=arch,
                num_classes=num_classes,
                device=device,
                download=download,
                progress=report,
                **preprocessing,
            )
        except ArgumentError as error:
            raise (
                error.renamed(f"--{error.argument.replace('_', '-')}") if error.argument in preprocessing else error
            ) from None


def class_number(name: str | None, spec: ModelSpec) -> int | None:
    """The logit of the class behind --to."""
    from locality.zoo.class_index import class_index

    return None if name is None else class_index(name, spec.classes, "--to")


def source_options(
    boxes: Path | None = None, given: Sequence[str] | None = None, cue: CueName | None = None
) -> dict[str, Any]:
    """The options of a source that `--boxes`, `--data-option` and `--cue` stand for.

    >>> source_options(None, ["count=20", "columns=filename=picture", "cue_size=0.3"])
    {'count': 20, 'columns': 'filename=picture', 'cue_size': 0.3}
    """
    options: dict[str, Any] = {name: value for name, value in (("boxes", boxes), ("cue", cue)) if value is not None}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or name.strip() in options:
            raise ArgumentError("--data-option", "NAME=VALUE, each name once", pair, "such as categories=cat,dog")
        if name.strip() in ("path", "split", "seed"):
            raise ArgumentError("--data-option", "an option of the source", pair, "that is part of the command itself")
        options[name.strip()] = _plain(value.strip())
    return options


def _plain(value: str) -> int | float | str:
    """The number that a value is, or its text."""
    if value.isdecimal():
        return int(value)
    return float(value) if re.fullmatch(r"-?\d*\.\d+", value) else value


def data_of_cards(name: str, images: ImageDataset, cue: CueName | None) -> str:
    """The name that a card's data must have for its accuracy to be expected: with a planted cue the images are others."""
    own = cue is not None and images.name == "shapes"  # its own cue, not a sticker
    return f"{images.name}:cue" if own or images.source.cue is not None else name


def loaded_data(
    name: str | None,
    spec: ModelSpec,
    limit: int | None = None,
    seed: int = 0,
    boxes: Path | None = None,
    data_option: Sequence[str] | None = None,
    cue: CueName | None = None,
    region: Region = "box",
) -> ImageDataset:
    """The data behind the options, fitted to the model; without a name, the data set with the model's classes.

    A guessed kind, and classes that were matched by name, are reported on standard error.
    """
    from locality.data.class_names import model_class_text, names_text
    from locality.data.dataset import load_dataset
    from locality.data.defaults import default_data, default_limit

    data_name = name or default_data(spec)
    most = default_limit(data_name) if limit is None else limit
    given = source_options(boxes, data_option, cue)
    images = load_dataset(data_name, limit=most, seed=seed, spec=spec, region=region, **given)
    if images.source.guess:
        say(images.source.guess, error=True)
    if images.matched:
        pairs = [f"{name} = {model_class_text(own)}" for name, own in images.matched.items()]
        say(f"classes of {images.name} that {spec.name} has by name: {names_text(pairs)}", error=True)
    return images


def number(option: str, text: str, example: str) -> float:
    """The number that `4/255` or `0.5` stands for.

    >>> number("--eps", "1/4", "a distance")
    0.25
    """
    value = number_from(text)
    if value is None:
        raise ArgumentError(option, example, text)
    return value


def check_folder(out: Path | None) -> None:
    """Raise if `--out` cannot become a folder to write to; called before the work, not after it."""
    if out is None:
        return
    nearest = next(path for path in (out, *out.parents) if path.exists() or path.is_symlink())
    if not nearest.is_dir():
        raise ArgumentError("--out", "a folder", str(out), f"`{nearest}` is not a folder")
    try:  # permissions alone do not tell: root may write anywhere, but not in /proc
        with tempfile.TemporaryDirectory(prefix=".locality-", dir=nearest):
            pass
    except OSError as error:
        raise ArgumentError("--out", "a folder that can be written", str(out), error.strerror or str(error)) from None


def check_file(out: Path | None) -> None:
    """Raise if `--out` cannot become a file."""
    if out is None:
        return
    if out.is_dir():
        raise ArgumentError("--out", "a file to write", str(out), "that is a folder")
    check_folder(out.parent)


def method_names(text: str) -> list[str]:
    """The names between the commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
