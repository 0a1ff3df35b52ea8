"""`coco`: images of an instances JSON that show exactly one of the categories asked for; boxes or masks.

COCO's categories are not WordNet ids: a class is named `coco:cat`, so an ImageNet model's accuracy on it is undefined and
its attributions are not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skimage.draw import polygon2mask
from torch import Tensor

from locality.data.boxes import clip
from locality.data.cache import cached_data
from locality.data.files import is_inside, open_root
from locality.data.manifest import Manifest
from locality.data.source import FileReader, Source
from locality.types import DataError, Fault

OVERHANG = 1.0  # COCO rounds to hundredths of a pixel; boxes may cross the edge by that much and are cut
LICENCE = "Flickr, per image; annotations CC-BY-4.0"


def coco(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    categories: Sequence[str] = (),
) -> Source:
    """The source of the images below `path` (folder or zip) with annotations from the instances JSON `boxes`.

    `categories` are names such as "cat"; none means all. An image counts if its annotations are of exactly one of them;
    others may be in the picture.
    """
    if split not in ("eval", "train"):
        raise DataError(f"`split` of coco must be eval or train, got {split!r}: pass the images of that split as path")
    boxes = boxes or cached_data("coco", part=1)
    if boxes is None:
        raise DataError("`boxes` is needed for coco: pass instances_val2017.json or the like (--boxes FILE)")
    file = Path(boxes).expanduser()
    content = _content(file)
    names = {int(item["id"]): str(item["name"]) for item in content["categories"]}
    wanted = _wanted(names, categories, file)
    root = open_root(path)
    prefixes = _prefixes(root.names())
    faults = root.faults()
    by_image: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row, item in enumerate(content["annotations"]):
        fault = _annotation_fault(file, row, item, names)
        if fault is None:
            by_image[int(item["image_id"])].append(item)
        else:
            faults.append(fault)
    spoiled = {fault.image for fault in faults}
    entries: list[_Entry] = []
    seen: set[str] = set()
    for item in content["images"]:
        objects = [o for o in by_image.get(_whole(item.get("id")), []) if names[int(o["category_id"])] in wanted]
        if len({int(o["category_id"]) for o in objects}) != 1 or str(item.get("id")) in spoiled:
            continue
        entry = _entry(file, item, objects, names, prefixes, seen)
        if isinstance(entry, Fault):
            faults.append(entry)
        else:
            entries.append(entry)
    classes = tuple(f"coco:{names[number]}" for number in sorted(names) if names[number] in wanted)
    manifest = Manifest.of(
        file=str(file),
        ids=[entry.id for entry in entries],
        paths=[entry.path for entry in entries],
        labels=[classes.index(entry.name) for entry in entries],
        wnids=[entry.name for entry in entries],
        widths=[entry.width for entry in entries],
        heights=[entry.height for entry in entries],
        corners=np.concatenate([np.empty((0, 4)), *(entry.corners for entry in entries)]),
        counts=[len(entry.corners) for entry in entries],
        source="coco",
        licence=LICENCE,
    )
    reader = FileReader(manifest, root, Outlines(tuple(entries)))
    return Source("coco", manifest, classes, reader, tuple(faults))


@dataclass(frozen=True, eq=False)
class _Entry:
    id: str
    path: str
    name: str
    width: int
    height: int
    corners: Any  # K×4
    segmentations: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Outlines:
    """Draws the objects' own pixels of image i."""

    entries: tuple[_Entry, ...]

    def __call__(self, index: int) -> Tensor:
        entry = self.entries[index]
        mask = np.zeros((entry.height, entry.width), dtype=np.bool_)
        for segmentation in entry.segmentations:
            mask |= segmentation_mask(segmentation, entry.height, entry.width)
        return torch.from_numpy(mask)[None]


def segmentation_mask(segmentation: Any, height: int, width: int) -> Any:
    """H×W bool of a COCO segmentation: polygons (by pixel centre) or run lengths, plain or as a string."""
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
        points = np.asarray(ring, dtype=np.float64).reshape(-1, 2)
        # polygon2mask asks whether whole-numbered points are inside; our pixel centres lie half a pixel further.
        mask |= polygon2mask((height, width), points[:, ::-1] - 0.5)
    return mask


def _run_lengths(text: str) -> list[int]:
    """COCO's string form: five bits a character from '0' on, the sixth says "more", and from the fourth run on each is
    written as the difference to the one two before."""
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
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise DataError(f"`boxes` {file} does not exist: pass an instances JSON of COCO") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON ({error}): pass an instances JSON of COCO") from error
    keys = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in keys):
        raise DataError(f"{file}: needs the lists {', '.join(keys)}: pass an instances JSON, not captions or keypoints")
    return content


def _wanted(names: dict[int, str], categories: Sequence[str], file: Path) -> set[str]:
    unknown = sorted(set(categories) - set(names.values()))
    if unknown:
        raise DataError(f"`categories` {', '.join(unknown)} not in {file}: there are {', '.join(sorted(names.values()))}")
    return set(categories) or set(names.values())


def _prefixes(names: list[str]) -> dict[str, str]:
    """File name to its path below the root: official zips put images in `val2017/`."""
    return {name.rsplit("/", 1)[-1]: name for name in names}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _annotation_fault(file: Path, row: int, item: Any, names: dict[int, str]) -> Fault | None:
    """What is wrong with an annotation; `row` counts annotations from 0, as the JSON does."""
    image = str(item.get("image_id", "")) if isinstance(item, dict) else ""

    def fault(kind: str, problem: str) -> Fault:
        return Fault(str(file), None, image, kind, f"annotations[{row}] {problem}")

    if not isinstance(item, dict) or not isinstance(item.get("image_id"), int):
        return fault("bad row", "has no `image_id`")
    if item.get("category_id") not in names:
        return fault("unknown label", f"has the unknown `category_id` {item.get('category_id')!r}")
    box = item.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and all(isinstance(v, int | float) for v in box)):
        return fault("bad box", f"needs `bbox` [x, y, width, height], got {box!r}")
    if not np.isfinite(box).all():
        return fault("bad box", f"has a `bbox` that is not a number: {box}")
    if box[2] <= 0 or box[3] <= 0:
        return fault("bad box", f"has an empty `bbox` {box}: width and height must be positive")
    return None


def _entry(
    file: Path,
    item: dict[str, Any],
    objects: list[dict[str, Any]],
    names: dict[int, str],
    prefixes: dict[str, str],
    seen: set[str],
) -> _Entry | Fault:
    identity = str(item["id"])

    def fault(kind: str, problem: str) -> Fault:
        return Fault(str(file), None, identity, kind, problem)

    name, width, height = item.get("file_name"), item.get("width"), item.get("height")
    if not isinstance(name, str) or not is_inside(name):
        return fault("unsafe path", f"image {identity}: `file_name` {name!r} must be a path below the images' folder")
    if not (isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0):
        return fault("bad size", f"image {identity}: `width` and `height` must be whole numbers, got {width!r}, {height!r}")
    if identity in seen:
        return fault("duplicate id", f"duplicate id {identity!r}: the image is listed twice")
    seen.add(identity)
    corners = np.array([(x, y, x + w, y + h) for x, y, w, h in (o["bbox"] for o in objects)], dtype=np.float64)
    cut = clip(corners, width, height)
    if np.abs(cut - corners).max() > OVERHANG:
        worst = corners[np.abs(cut - corners).max(axis=1).argmax()].tolist()
        shown = "({:g}, {:g}, {:g}, {:g})".format(*worst)
        return fault("bad box", f"box {shown} of image {identity} leaves the image of {width} × {height}")
    segmentations = tuple(o.get("segmentation") or _box_ring(o["bbox"]) for o in objects)
    category = f"coco:{names[int(objects[0]['category_id'])]}"
    path = prefixes.get(name.rsplit("/", 1)[-1], name)
    return _Entry(identity, path, category, width, height, cut, segmentations)


def _box_ring(box: list[float]) -> list[list[float]]:
    x, y, width, height = box
    return [[x, y, x + width, y, x + width, y + height, x, y + height]]
