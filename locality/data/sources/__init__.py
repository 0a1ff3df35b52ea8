"""The data sets, one file each, and `open_source`, which opens one by its name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from locality.data.cues import CUE_OPTIONS, CUES, with_cue
from locality.data.fetch import FETCHABLE, cached_data
from locality.data.kinds import LOCATIONS, check_name
from locality.data.manifest_csv import read_manifest
from locality.data.roots import open_root
from locality.data.source import FileReader, Source
from locality.data.sources import (
    boxes_csv,
    cifar10,
    class_folders,
    coco,
    hugging_face,
    imagenet,
    pets,
    photos,
    shapes,
    tiny_imagenet,
    voc,
    yolo,
)
from locality.data.sources.guess import guess_kind
from locality.errors import ArgumentError, DataError, did_you_mean, unknown_choice

Split = Literal["eval", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)
# All but shapes and photos need a path: `NAME:PATH`, the environment variable of its kind, or the cache.
SOURCES: dict[str, Callable[..., Source]] = {
    "shapes": shapes.shapes,
    "photos": photos.photos,
    "tiny-imagenet": tiny_imagenet.tiny_imagenet,
    "imagenet": imagenet.imagenet,
    "coco": coco.coco,
    "cifar10": cifar10.cifar10,
    "pets": pets.pets,
    "voc": voc.voc,
    "yolo": yolo.yolo,
    "csv": boxes_csv.boxes_csv,
    "hf": hugging_face.hugging_face,
    "folder": class_folders.folder,
}


def open_source(name: str, split: str = "eval", seed: int = 0, **options: Any) -> Source:
    """Open the data set with a name such as `shapes:none`, `voc:PATH` or `val.csv`; the kind of a path alone is guessed.

    `cue`, `cue_size` and `cue_seed` plant a sticker on its images (`data.cues`). `shapes` has a cue of its own, which `cue`
    chooses too: a sticker comes instead of it, unless `shapes:none` or its other variants are named.
    """
    own, planted = split_options(name, options)
    return with_cue(_opened(name, split, seed, own), **planted)


def split_options(name: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the source itself, and those of the sticker; ArgumentError if they do not belong together."""
    own = {key: value for key, value in options.items() if key not in CUE_OPTIONS}
    planted = {key: options[key] for key in CUE_OPTIONS if key in options}
    if name == "shapes" and planted.get("cue") in shapes.CUES:
        own["cue"] = planted.pop("cue")
    elif name == "shapes" and "cue" in planted:
        own["cue"] = "none"
        if planted["cue"] not in CUES:
            raise unknown_choice("cue", planted["cue"], dict.fromkeys([*shapes.CUES, *CUES]))
    if planted and "cue" not in planted:
        raise ArgumentError(next(iter(planted)), 'given with cue="sticker"', next(iter(planted.values())))
    return own, planted


def options_of(source: Callable[..., Source]) -> list[str]:
    """The names of the options that `load_dataset` passes to a source, those of stickers included."""
    return sorted({*inspect.signature(source).parameters, *CUE_OPTIONS} - {"path", "split", "seed", "progress"})


def _opened(name: str, split: str, seed: int, options: dict[str, Any]) -> Source:
    """The source without a sticker."""
    kind, _, rest = name.partition(":")
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    check_name(name)
    if kind not in SOURCES:
        guess = guess_kind(name, split, options.get("boxes"))
        opener = SOURCES.get(guess.kind, manifest_source)
        options = guess.options | options
        _check_options(name, opener, options)
        if guess.kind == "manifest":
            return manifest_source(guess.path, **options)
        return replace(opener(guess.path, split, **options), guess=guess.text)
    _check_options(kind, SOURCES[kind], options)
    source = _of_kind(kind, rest, name, split, seed, options)
    if name == kind and Path(kind).exists():
        return replace(source, guess=f"{kind} is the data set of that name: for the folder {kind} write ./{kind}")
    return source


def _of_kind(kind: str, rest: str, name: str, split: str, seed: int, options: dict[str, Any]) -> Source:
    if kind == "shapes":
        return shapes.shapes(split, seed=seed, **(options | _cue(rest, name)))
    if kind == "photos":
        if rest:
            raise ArgumentError("data", "photos without a path, since its files are in installed packages", name)
        return photos.photos(split)
    return SOURCES[kind](rest or _location(kind), split, **options)


def manifest_source(path: str | Path, root: str | Path | None = None) -> Source:
    """The source of a manifest. Its paths are relative to `root` (folder or zip), by default the manifest's folder."""
    manifest, faults = read_manifest(path)
    files = open_root(Path(path).parent if root is None else root)
    return Source(Path(path).stem, manifest, manifest.classes(), FileReader(manifest, files), tuple(faults))


def _cue(text: str, name: str) -> dict[str, Any]:
    """The options in `shapes:CUE:LEVELS`; both parts may be missing."""
    cue, _, levels = text.partition(":")
    if levels and not levels.isdecimal():
        raise ArgumentError("data", "shapes:CUE:LEVELS, where LEVELS is the cue's strength in 1/255", name)
    return ({"cue": cue} if cue else {}) | ({"cue_levels": int(levels)} if levels else {})


def _check_options(name: str, source: Callable[..., Source], options: dict[str, Any]) -> None:
    known = options_of(source)
    for option in sorted(set(options) - {*known, "progress"}):
        hint = did_you_mean(option, known) or f"its options are {', '.join(known) or 'none'}"
        raise DataError(f"`{name}` has no option {option}: {hint}")


def _location(kind: str) -> str:
    variable = LOCATIONS.get(kind)
    path = (os.environ.get(variable) if variable else None) or cached_data(kind)
    if path is None:
        ways = [f"pass `{kind}:PATH`", *([f"set {variable}"] if variable else [])]
        ways += [f"run `locality data get {kind}`"] if kind in FETCHABLE else []
        ways += [f"write `./{kind}` for the folder of that name"] if Path(kind).exists() else []
        raise DataError(f"`{kind}` is not on this machine: {', '.join(ways[:-1])}{', or ' if ways[1:] else ''}{ways[-1]}")
    return str(path)
