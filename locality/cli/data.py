"""`locality data`: list, download, check, build and show images and their boxes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locality.cli import completion, options
from locality.cli.options import AsJson
from locality.cli.printing import print_table, say, say_json
from locality.data.kinds import sources_text

if TYPE_CHECKING:
    from locality.data.dataset import ImageDataset
    from locality.data.source import Source
    from locality.errors import Fault

app = typer.Typer(help="List, download, check, build and show images and their boxes.", no_args_is_help=True)


class SplitName(StrEnum):
    """The splits of a data set, as `--help` lists them."""

    eval = "eval"
    train = "train"


SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help=f"{sources_text()}.",
        autocompletion=completion.data,
    ),
]
Root = Annotated[
    Path | None, typer.Option(help="Folder or zip that a manifest's paths are relative to (default: its own folder).")
]
Categories = Annotated[
    list[str] | None, typer.Option("--category", help="A class of coco, voc, yolo, csv or hf; repeat for several.")
]
Split = Annotated[SplitName, typer.Option(help="Split of the data set.")]
Seed = Annotated[int, typer.Option(help="Seed of the choice of images, and of the images themselves for shapes.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number of images, balanced over the classes.")]
MaxBoxShare = Annotated[
    float | None, typer.Option(help="Leave out images whose boxes fill this share or more, such as 0.8 (default: keep all).")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images with faults and list the faults.")]


@app.command("list")
def list_sources(as_json: AsJson = False) -> None:
    """List the data sets and where they are on this machine."""
    import os

    from locality.data.fetch import FETCHABLE, cached_data
    from locality.data.kinds import KINDS, OWN

    rows = []
    for name in dict.fromkeys([*KINDS, *FETCHABLE]):
        kind = KINDS.get(name)
        path = os.environ.get(kind.variable) if kind and kind.variable else None
        cached = cached_data(name)
        if kind and path:
            location = f"{kind.variable}={path}"
        elif cached:
            location = str(cached)
        elif name in ("shapes", "photos"):
            location = "built in"
        else:
            location = f"to download: locality data get {name}" if name in FETCHABLE else "bring your own"
        rows.append((kind.written if kind else name, location, kind.about if kind else FETCHABLE[name].note))
    header = ["name", "location", "content"]
    if as_json:
        say_json({"n": len(rows), "data": [dict(zip(header, row, strict=True)) for row in rows]})
        return
    print_table(header, rows)
    say(f"--data also takes {OWN}")


@app.command()
def get(name: Annotated[str, typer.Argument(help="tiny-imagenet, imagenette, imagenet-boxes, coco or cifar10.")]) -> None:
    """Download a data set into the cache and verify its checksum. An interrupted download resumes."""
    from locality.data.fetch import get_data
    from locality.progress import progress

    for path in get_data(name, lambda file: progress(file, "bytes")):
        say(f"{name}: {path}")


@app.command()
def check(
    source: SourceName,
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    root: Root = None,
    category: Categories = None,
    split: Annotated[SplitName | None, typer.Option(help="Split of the data set (default: all that can be scored).")] = None,
    most: Annotated[int, typer.Option(help="Maximum number of faults to print.")] = 100,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Verify files, hashes and boxes, and print all faults. Exit code 2 if there are any (0 with --skip-bad)."""
    from locality.data.check import check_source
    from locality.data.dataset import NOTES
    from locality.errors import DataError
    from locality.progress import progress

    faults: list[Fault] = []
    images = 0
    kind = source.split(":")[0]
    every = [SplitName.train, SplitName.eval] if kind in ("tiny-imagenet", "cifar10", "pets") else [SplitName.eval]
    for part in [split] if split else every:
        opened = _open(source, part, boxes, data_option, root, category)
        with progress(f"checking {part}") as report:
            faults += check_source(opened, report)
        images += len(opened.manifest)
    faults = list(dict.fromkeys(faults))  # an archive's own faults are reported with every split
    if as_json:
        listed = [asdict(fault) for fault in faults]
        say_json({"data": source, "n": images, "faults": listed})
        harmless = images > 0 and all(fault.kind in NOTES for fault in faults)
        raise typer.Exit(0 if skip_bad or harmless else 2)
    for kind, sentence in NOTES.items():
        count = sum(fault.kind == kind for fault in faults)
        if count:
            say(f"{count:,} images {sentence}: they cannot be scored")
    faults = [fault for fault in faults if fault.kind not in NOTES]
    if not faults and not images:
        raise DataError(f"{source}: it has no images")
    if not faults:
        say(f"{source}: {images:,} images, no faults")
        return
    bad_images = {fault.image for fault in faults}
    _print_faults(faults, most)
    consequence = "left out" if skip_bad else "affected"
    say(f"{source}: {len(faults):,} faults, {len(bad_images):,} images {consequence} ({_counted(faults)})")
    raise typer.Exit(0 if skip_bad else 2)


@app.command()
def build(
    source: SourceName,
    out: Annotated[Path, typer.Option(help="Manifest to write (.csv).")],
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    root: Root = None,
    category: Categories = None,
    split: Split = SplitName.eval,
    limit: Limit = None,
    seed: Seed = 0,
    max_box_share: MaxBoxShare = None,
    origin: Annotated[str | None, typer.Option(help="Where the images come from, for the column `source`.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the images, for the column `licence`.")] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Write a manifest with the hash of every file. Images that are not files are written beside it as PNG files."""
    from locality.data.build import build_manifest
    from locality.data.dataset import ImageDataset
    from locality.progress import progress

    opened = _open(source, split, boxes, data_option, root, category, seed=seed)
    chosen = ImageDataset.select(opened, limit, seed, None, max_box_share, skip_bad=skip_bad)
    with progress("hashing") as report:
        built = build_manifest(chosen, out, skip_bad, report, origin, licence)
    if built.faults:
        _print_faults(built.faults, 100)
    _print_summary(chosen)
    say(f"{out}: {built.images:,} images, {built.boxes:,} boxes, {len(built.faults):,} left out")
    if built.root is not None:
        say(f"its paths are relative to {built.root}: load it with root={str(built.root)!r} (--root)")


@app.command()
def show(
    source: SourceName,
    out: Annotated[Path, typer.Option(help="Picture to write (.png).")],
    boxes: options.Boxes = None,
    data_option: options.DataOption = None,
    root: Root = None,
    category: Categories = None,
    split: Split = SplitName.eval,
    limit: Limit = 20,
    seed: Seed = 0,
    size: Annotated[int | None, typer.Option(help="Show what a model of this input size sees (crop 0.875).")] = None,
    max_box_share: MaxBoxShare = None,
    skip_bad: SkipBad = False,
) -> None:
    """Draw a contact sheet of images with their boxes."""
    from locality.data.dataset import ImageDataset
    from locality.report.contact_sheet import SheetRow, contact_sheet
    from locality.types import ModelSpec

    spec = None if size is None else ModelSpec("the model", (size, size), max(size, round(size / 0.875)))
    opened = _open(source, split, boxes, data_option, root, category, seed=seed)
    chosen = ImageDataset.select(opened, limit, seed, spec, max_box_share, skip_bad=skip_bad)
    samples = [chosen[index] for index in range(len(chosen))]
    out.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet([SheetRow(str(chosen), samples, chosen.classes)]).save(out)
    _print_summary(chosen)
    say(str(out))


def _open(
    name: str,
    split: str,
    boxes: Path | None,
    data_option: list[str] | None,
    root: Path | None,
    categories: list[str] | None,
    **more: Any,
) -> Source:
    """Open the source, and print a guess of its kind; an option that it does not have is an error."""
    from locality.data.sources import open_source
    from locality.progress import progress

    given = options.source_options(boxes, data_option) | {"root": root, "categories": categories or None, **more}
    given = {key: value for key, value in given.items() if value is not None}
    with progress("reading boxes") as report:
        if name.startswith("imagenet:"):
            given["progress"] = report
        source = open_source(name, split, **given)
    if source.guess:
        say(source.guess, error=True)
    return source


def _print_summary(data: ImageDataset) -> None:
    say(str(data))
    counts = list(data.counts().items())
    for name, count in counts[:50]:
        say(f"  {name}: {count:,}")
    if len(counts) > 50:
        say(f"  … and {len(counts) - 50:,} more classes")


def _counted(faults: list[Fault]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in Counter(fault.kind for fault in faults).most_common())


def _print_faults(faults: list[Fault], most: int) -> None:
    rows = [(fault.kind, fault.file, "" if fault.row is None else str(fault.row), fault.problem) for fault in faults]
    print_table(["kind", "file", "row", "problem"], rows[:most])
    if len(rows) > most:
        say(f"… and {len(rows) - most:,} more (--most {len(rows)} prints all)")
