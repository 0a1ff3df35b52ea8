"""Options that several commands share, and what stands behind them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset
    from locality.types import ModelSpec
    from locality.zoo.pixel_model import PixelModel

MODEL_HELP = "A name of `locality models`, timm:NAME, a checkpoint's path, package.module:function."
ModelName = Annotated[str, typer.Option(help=MODEL_HELP)]
DataName = Annotated[
    str | None,
    typer.Option(help="Images: shapes, photos, tiny-imagenet, imagenet:PATH, a manifest …; by default the model's own."),
]
Boxes = Annotated[Path | None, typer.Option(help="imagenet: XML folder or LOC_val_solution.csv; coco: the instances JSON.")]
Limit = Annotated[int | None, typer.Option(help="At most so many images, as even over the classes as there are.")]
Methods = Annotated[str, typer.Option(help="Attribution methods, with commas: SM,IG,BSM,BIG,SmoothGrad,AGI,captum:NAME …")]
SearchName = Annotated[str, typer.Option(help="Boundary search: fast, thorough, paper, autopgd, foolbox:NAME.")]
Target = Annotated[str, typer.Option(help="The class attributed: predicted or label.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps …")]
BatchSize = Annotated[int | None, typer.Option(help="Images handled together; it does not change the numbers.")]
Seed = Annotated[int, typer.Option(help="Draws the choice of images and whatever is random.")]
Arch = Annotated[str | None, typer.Option(help="The architecture of a checkpoint: timm:NAME, net:NAME, a model's name …")]
NumClasses = Annotated[int | None, typer.Option(help="The number of classes of a checkpoint.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch weights that are not here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# What evaluations use where no number is given: enough for intervals of a few hundredths, and minutes on a small machine.
DEFAULT_LIMIT = {"shapes": 200, "tiny-imagenet": 200}


def loaded_model(
    name: str, arch: str | None = None, num_classes: int | None = None, device: str | None = None, download: bool = False
) -> PixelModel:
    """The model behind the options, with a progress bar while it is fetched."""
    from locality.progress import progress
    from locality.zoo.load import load_model

    with progress(name, "bytes") as report:
        return load_model(name, arch=arch, num_classes=num_classes, device=device, download=download, progress=report)


def loaded_data(
    name: str | None, spec: ModelSpec, limit: int | None = None, seed: int = 0, boxes: Path | None = None
) -> ImageDataset:
    """The data behind the options, fitted to the model; without a name, that of the model's classes."""
    from locality.data.dataset import load_dataset
    from locality.data.defaults import default_data

    chosen = name or default_data(spec)
    given: dict[str, Any] = {} if boxes is None else {"boxes": boxes}
    most = DEFAULT_LIMIT.get(chosen.partition(":")[0]) if limit is None else limit
    return load_dataset(chosen, limit=most, seed=seed, spec=spec, **given)


def check_folder(out: Path | None) -> None:
    """Raise if `--out` cannot become a folder to write to: better said before the work than after it."""
    if out is None:
        return
    nearest = next(place for place in (out, *out.parents) if place.exists() or place.is_symlink())
    if not nearest.is_dir():
        raise ValueError(f"`--out` must be a folder, got `{out}`, but `{nearest}` is none: name another place")
    try:  # what a folder allows is shown by doing it: root may do anything, but not in /proc
        with tempfile.TemporaryDirectory(prefix=".locality-", dir=nearest):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"`--out` must be a folder that can be written, got `{out}` ({reason}): name another place"
        ) from None


def check_file(out: Path | None) -> None:
    """Raise if `--out` cannot become a file."""
    if out is None:
        return
    if out.is_dir():
        raise ValueError(f"`--out` must be a file to write, got the folder `{out}`: name a file in it")
    check_folder(out.parent)


def method_names(text: str) -> list[str]:
    """The names between the commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
