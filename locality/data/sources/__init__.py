"""The data sets, one file each, and `open_source`, which opens one by its name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from locality.data.fetch import cached_data
from locality.data.manifest_csv import read_manifest
from locality.data.roots import open_root
from locality.data.source import FileReader, Source
from locality.data.sources import cifar10, coco, imagenet, photos, shapes, tiny_imagenet
from locality.errors import ArgumentError, DataError, did_you_mean, unknown_choice

Split = Literal["eval", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)
# Those in LOCATIONS need a path: `NAME:PATH`, the environment variable, or the cache.
SOURCES: dict[str, Callable[..., Source]] = {
    "shapes": shapes.shapes,
    "photos": photos.photos,
    "tiny-imagenet": tiny_imagenet.tiny_imagenet,
    "imagenet": imagenet.imagenet,
    "coco": coco.coco,
    "cifar10": cifar10.cifar10,
}
LOCATIONS = {
    "tiny-imagenet": "LOCALITY_TINY_IMAGENET",
    "imagenet": "LOCALITY_IMAGENET",
    "coco": "LOCALITY_COCO",
    "cifar10": "LOCALITY_CIFAR10",
}


def open_source(name: str, split: str = "eval", seed: int = 0, **options: Any) -> Source:
    """Open the data set with a name such as `shapes:none`, `tiny-imagenet:PATH` or `val.csv`."""
    kind, _, rest = name.partition(":")
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    check_name(name)
    if kind not in SOURCES:
        _check_options(name, manifest_source, options)
        return manifest_source(name, **options)
    _check_options(kind, SOURCES[kind], options)
    if kind == "shapes":
        return shapes.shapes(split, seed=seed, **(options | {"cue": rest} if rest else options))
    if kind == "photos":
        if rest:
            raise ArgumentError("data", "photos without a path, since its files are in installed packages", name)
        return photos.photos(split)
    return SOURCES[kind](rest or _location(kind), split, **options)


def check_name(name: str) -> None:
    """Raise if the name is neither that of a data set nor the path of a manifest; nothing is opened."""
    if name.partition(":")[0] not in SOURCES and not name.lower().endswith(".csv") and not Path(name).exists():
        raise unknown_choice("data", name, SOURCES, also="the path of a manifest (.csv)")


def manifest_source(path: str | Path, root: str | Path | None = None) -> Source:
    """The source of a manifest. Its paths are relative to `root` (folder or zip), by default the manifest's folder."""
    manifest, faults = read_manifest(path)
    files = open_root(Path(path).parent if root is None else root)
    return Source(Path(path).stem, manifest, manifest.classes(), FileReader(manifest, files), tuple(faults))


def _check_options(name: str, source: Callable[..., Source], options: dict[str, Any]) -> None:
    known = sorted(set(inspect.signature(source).parameters) - {"path", "split", "seed"})
    for option in sorted(set(options) - set(known)):
        hint = did_you_mean(option, known) or f"its options are {', '.join(known) or 'none'}"
        raise DataError(f"`{name}` has no option {option}: {hint}")


def _location(kind: str) -> str:
    variable = LOCATIONS[kind]
    path = os.environ.get(variable) or cached_data(kind)
    if path is None:
        raise DataError(
            f"`{kind}` is not on this machine: pass `{kind}:PATH`, set {variable}, or run `locality data get {kind}`"
        )
    return str(path)
