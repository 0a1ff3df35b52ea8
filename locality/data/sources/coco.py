"""`coco`: images of an instances JSON that show exactly one of the chosen categories, with boxes or masks.

COCO's categories are not WordNet ids: a class is named `coco:cat`. An ImageNet model's accuracy on it is undefined, its
attributions are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locality.data.boxes import cut_boxes
from locality.data.fetch import cached_data
from locality.data.manifest import Entry, Manifest
from locality.data.manifest_csv import MAX_SIDE
from locality.data.polygons import polygon_mask
from locality.data.roots import is_inside, open_root
from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault, did_you_mean, unknown_choice
from locality.toml_settings import read_json

OVERHANG = 1.0  # pixels by which boxes may cross the edge, since COCO rounds them; they are clipped
SPLITS = ("eval", "train")  # `path` must have the images of the split
MAX_JSON_BYTES = 1 << 30  # twice the annotations of COCO's training set
LICENCE = "Flickr, per image; annotations CC-BY-4.0"


def coco(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    categories: Sequence[str] | str = (),
) -> Source:
    """The source of the images below `path` (folder or zip) with annotations from the instances JSON `boxes`.

    `categories` are names such as "cat"; none means all. An image is used if its annotations are of exactly one of them,
    besides other categories.
    """
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    boxes = boxes or cached_data("coco", part=1)
    if boxes is None:
        raise DataError("`boxes` is needed for coco: pass an instances file such as instances_val2017.json (--boxes FILE)")
    file = Path(boxes).expanduser()
    content = _content(file)
    names = _category_names(file, content["categories"])
    wanted = _wanted(names, [categories] if isinstance(categories, str) else categories, file)
    classes = tuple(_class_name(names[number]) for number in sorted(names) if names[number] in wanted)
    root = open_root(path)
    faults = root.faults()
    objects = _objects(file, content, names, faults)
    faulty = {fault.image for fault in faults}
    table = _Table(file, _Names(root.names()), classes)
    for row, item in enumerate(content["images"]):
        number = _whole(item.get("id")) if isinstance(item, dict) else None
        if number is None:
            faults.append(Fault(str(file), None, "", "bad row", f"images[{row}] needs an integer `id`"))
            continue
        shown = [one for one in objects.get(number, []) if names[one.category] in wanted]
        if len({one.category for one in shown}) != 1 or str(number) in faulty:
            continue
        fault = table.add(number, item, shown, names[shown[0].category])
        if fault is not None:
            faults.append(fault)
    manifest = Manifest.of(table.entries, source="coco", licence=LICENCE)
    outlines = Outlines(tuple(tuple(one.segmentation for one in shown) for shown in table.shown), manifest)
    return Source("coco", manifest, classes, FileReader(manifest, root, outlines), tuple(faults))


@dataclass(frozen=True, eq=False)
class _Object:
    """One annotation."""

    category: int
    corners: tuple[float, float, float, float]
    segmentation: Any


@dataclass(frozen=True, eq=False)
class Outlines:
    """Gives the pixels of the objects of image i."""

    segmentations: tuple[tuple[Any, ...], ...]
    manifest: Manifest

    def __call__(self, index: int) -> Tensor:
        image = self.manifest.images.iloc[index]
        height, width = int(image["height"]), int(image["width"])
        mask = np.zeros((height, width), dtype=np.bool_)
        for segmentation in self.segmentations[index]:
            mask |= segmentation_mask(segmentation, height, width)
        return torch.from_numpy(mask)[None]


class _Names:
    """Finds files by their name in the JSON: official zips have the images in `val2017/`."""

    def __init__(self, names: list[str]) -> None:
        self.all = set(names)
        self.by_base: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self.by_base[name.rsplit("/", 1)[-1]].append(name)

    def find(self, name: str) -> str | None:
        """The file's path; the name itself if there is none, so that reading reports it; None if several match."""
        if name in self.all:
            return name
        matches = [other for other in self.by_base.get(name.rsplit("/", 1)[-1], []) if other.endswith(f"/{name}")]
        return None if len(matches) > 1 else matches[0] if matches else name


@dataclass
class _Table:
    """Collects images."""

    file: Path
    names: _Names
    classes: tuple[str, ...]
    entries: list[Entry] = field(default_factory=list)
    shown: list[list[_Object]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def add(self, number: int, item: dict[str, Any], shown: list[_Object], category: str) -> Fault | None:
        """Add one image with its objects; returns a fault if it cannot be used."""

        def fault(kind: str, problem: str) -> Fault:
            return Fault(str(self.file), None, str(number), kind, f"image {number}: {problem}")

        name, width, height = item.get("file_name"), _whole(item.get("width")), _whole(item.get("height"))
        if number in self.seen:
            return fault("duplicate id", "the id is listed twice")
        self.seen.add(number)
        if not isinstance(name, str) or not is_inside(name):
            return fault("unsafe path", f"`file_name` {name!r} must be a path below the images' folder")
        if width is None or height is None or not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
            given = f"{item.get('width')!r} and {item.get('height')!r}"
            return fault("bad size", f"`width` and `height` must be the pixels of a photograph, got {given[:80]}")
        path = self.names.find(name)
        if path is None:
            return fault("bad name", f"several files are named {name!r}: pass the folder that it is relative to")
        corners, problem = cut_boxes(np.array([one.corners for one in shown]), width, height, OVERHANG)
        if problem:
            return fault("bad box", problem)
        wnid = _class_name(category)
        self.entries.append(Entry(str(number), path, self.classes.index(wnid), wnid, width, height, corners, str(self.file)))
        self.shown.append(shown)
        return None


def segmentation_mask(segmentation: Any, height: int, width: int) -> Any:
    """H×W bool of a COCO segmentation: polygons or run lengths, plain or as a string; the mask is that of pycocotools."""
    if isinstance(segmentation, dict):
        counts = segmentation.get("counts")
        lengths = _run_lengths(counts) if isinstance(counts, str) else [int(count) for count in counts or []]
        if segmentation.get("size") != [height, width] or min(lengths, default=-1) < 0 or sum(lengths) != height * width:
            raise DataError(f"run lengths do not add up to the image of {width} × {height}")
        # Runs go down the columns and alternate between outside and inside.
        runs = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
        return runs.reshape(width, height).T
    mask = np.zeros((height, width), dtype=np.bool_)
    for ring in segmentation:
        mask |= polygon_mask(np.asarray(ring, dtype=np.float64).reshape(-1, 2), height, width)
    return mask


def _run_lengths(text: str) -> list[int]:
    """Run lengths of COCO's string form: five bits per character from '0' on, the sixth bit means "more", and from the
    fourth run on each is stored as the difference to the one two before."""
    lengths: list[int] = []
    value, shift = 0, 0
    for character in text.encode("ascii"):
        bits = character - 48
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value, shift = 0, 0
    return lengths


def _content(file: Path) -> dict[str, Any]:
    if file.is_dir():
        raise DataError(f"`boxes` {file} is a folder: pass the JSON file inside it, such as instances_val2017.json")
    try:
        content = read_json(file, MAX_JSON_BYTES)
    except FileNotFoundError:
        raise DataError(f"`boxes` {file} does not exist: pass an instances JSON of COCO") from None
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({error}): pass an instances JSON of COCO") from error
    keys = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in keys):
        raise DataError(f"{file}: must have the lists {', '.join(keys)}: pass an instances JSON, not captions or keypoints")
    return content


def _wanted(names: dict[int, str], categories: Sequence[str], file: Path) -> set[str]:
    unknown = sorted(set(categories) - set(names.values()))
    if unknown:
        hint = did_you_mean(unknown[0], names.values()) or f"it has {', '.join(sorted(names.values()))}"
        raise DataError(f"`categories` {', '.join(unknown)} not in {file}: {hint}")
    return set(categories) or set(names.values())


def _class_name(category: str) -> str:
    """A name without spaces, which separate accepted classes in a manifest."""
    return "coco:" + "_".join(category.split())


def _whole(value: Any) -> int | None:
    """An integer, also one that is written as a float; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 2**53:
        return None
    return int(value) if value == int(value) else None


def _category_names(file: Path, categories: list[Any]) -> dict[int, str]:
    names: dict[int, str] = {}
    for row, item in enumerate(categories):
        number = _whole(item.get("id")) if isinstance(item, dict) else None
        name = item.get("name") if isinstance(item, dict) else None
        if number is None or not isinstance(name, str) or not name.strip():
            raise DataError(f"{file}: categories[{row}] needs an integer `id` and a `name`")
        names[number] = name
    return names


def _objects(file: Path, content: dict[str, Any], names: dict[int, str], faults: list[Fault]) -> dict[int, list[_Object]]:
    """Annotations by image; invalid ones are added to `faults`."""
    listed = {_whole(item.get("id")) for item in content["images"] if isinstance(item, dict)}
    by_image: dict[int, list[_Object]] = defaultdict(list)
    for row, item in enumerate(content["annotations"]):
        image = _whole(item.get("image_id")) if isinstance(item, dict) else None
        if image is None or image not in listed:
            problem = f"annotations[{row}] needs the `image_id` of a listed image"
            faults.append(Fault(str(file), None, "", "bad row", problem))
            continue
        annotation = _object(item, names)
        if isinstance(annotation, _Object):
            by_image[image].append(annotation)
        else:
            kind, problem = annotation
            faults.append(Fault(str(file), None, str(image), kind, f"annotations[{row}] {problem}"))
    return by_image


def _object(item: dict[str, Any], names: dict[int, str]) -> _Object | tuple[str, str]:
    """An annotation, or the kind and description of its problem."""
    category, box = _whole(item.get("category_id")), item.get("bbox")
    if category is None or category not in names:
        return "unknown label", f"has the unknown `category_id` {str(item.get('category_id'))[:40]}"
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(value) for value in box):
        return "bad box", f"needs four numbers as `bbox`, [x, y, width, height], got {str(box)[:80]}"
    x, y, width, height = box
    if width <= 0 or height <= 0:
        return "bad box", f"has an empty `bbox` {box}: width and height must be positive"
    ring = [[x, y, x + width, y, x + width, y + height, x, y + height]]
    return _Object(category, (x, y, x + width, y + height), item.get("segmentation") or ring)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
