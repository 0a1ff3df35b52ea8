"""`coco`: images of an instances JSON that show exactly one of the chosen categories, with boxes or masks.

Source and licences are those that the JSON states.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locality.data.annotated import NOT_STATED, OVERHANG, SPLIT_FOLDERS, FileNames, named_path, wanted_classes
from locality.data.boxes import cut_boxes
from locality.data.class_names import one_word
from locality.data.fetch import cached_data
from locality.data.manifest import Entry, Manifest
from locality.data.manifest_csv import MAX_SIDE
from locality.data.polygons import polygon_mask
from locality.data.roots import Folder, is_inside, open_root
from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault, unknown_choice
from locality.toml_settings import read_json

SPLITS = ("eval", "train")  # `path` must have the images of the split
MAX_JSON_BYTES = 1 << 30  # twice the annotations of COCO's training set
OFFICIAL = re.compile(r"instances_(train|val)20\d\d\.json")
# JSON files of COCO and of other tools that hold no boxes.
OTHER_JSON = re.compile(
    r"(captions|person_keypoints|stuff|panoptic|image_info)_.*|dataset_(info|dict)|state|package(-lock)?"
)


def coco(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    categories: Sequence[str] | str = (),
) -> Source:
    """The source of the images below `path` (folder or zip) with annotations from the instances JSON `boxes`.

    Without `boxes`, the only JSON below `path` that may be one is used. `categories` are names such as "cat"; none means
    all. An image is used if its annotations are of exactly one of them, besides other categories.
    """
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    file = _file(path, split, boxes)
    content = _content(file)
    names = _category_names(file, content["categories"])
    wanted = wanted_classes(names.values(), categories, str(file))
    classes = tuple(one_word(names[number]) for number in sorted(names) if names[number] in wanted)
    root = open_root(path)
    faults = root.faults()
    objects = _objects(file, content, names, faults)
    faulty = {fault.image for fault in faults}
    table = _Table(file, FileNames(root.names()), classes, licence_names=_licences(content))
    for row, item in enumerate(content["images"]):
        number = _whole(item.get("id")) if isinstance(item, dict) else None
        if number is None:
            faults.append(Fault(str(file), None, "", "bad row", f"images[{row}] needs an integer `id`"))
            continue
        shown = [one for one in objects.get(number, []) if names[one.category] in wanted]
        if str(number) in faulty:
            continue
        if len({one.category for one in shown}) != 1:
            kind, problem = ("several classes", "shows several categories") if shown else ("no box", "shows none of them")
            faults.append(Fault(str(file), None, str(number), kind, f"image {number} {problem}: it is left out"))
            continue
        fault = table.add(number, item, shown, names[shown[0].category])
        if fault is not None:
            faults.append(fault)
    manifest = Manifest.of(table.entries, source=_origin(content, file), licence=table.licences)
    outlines = Outlines(tuple(tuple(one.segmentation for one in shown) for shown in table.shown), manifest)
    name = "coco" if OFFICIAL.fullmatch(file.name) else f"coco:{root.path.absolute().name}"
    return Source(name, manifest, classes, FileReader(manifest, root, outlines), tuple(faults), assumed_order=True)


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


@dataclass
class _Table:
    """Collects images."""

    file: Path
    names: FileNames
    classes: tuple[str, ...]
    entries: list[Entry] = field(default_factory=list)
    shown: list[list[_Object]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    licences: list[str] = field(default_factory=list)
    licence_names: dict[int, str] = field(default_factory=dict)

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
        wnid = one_word(category)
        self.entries.append(Entry(str(number), path, self.classes.index(wnid), wnid, width, height, corners, str(self.file)))
        self.shown.append(shown)
        self.licences.append(self.licence_names.get(_whole(item.get("license")) or 0, NOT_STATED))
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


def _file(path: str | Path, split: str, boxes: str | Path | None) -> Path:
    """The JSON with the annotations: the one that is named, also inside `path`; the only one there; that of the cache."""
    folder = Path(path).expanduser()
    if boxes is not None:
        return named_path(folder, boxes)
    inside = instance_files(folder, split)
    if len(inside) > 1:
        names = ", ".join(str(file.relative_to(folder)) for file in inside[:5])
        raise DataError(f"`boxes` is needed for coco: {folder} has several JSON files ({names}), pass one (--boxes FILE)")
    cached = cached_data("coco", part=1)
    if not inside and cached is None:
        raise DataError("`boxes` is needed for coco: pass an instances file such as instances_val2017.json (--boxes FILE)")
    return inside[0] if inside else Path(str(cached))


def instance_files(folder: Path, split: str) -> list[Path]:
    """The JSON files below a folder that may hold instances; only those named after the split if some are."""
    if not folder.is_dir():
        return []
    names = [name for name in Folder(folder).names() if name.lower().endswith(".json")]
    names = [name for name in names if not OTHER_JSON.fullmatch(PurePosixPath(name).stem.lower())]
    of_split = [name for name in names if any(word in name.lower() for word in SPLIT_FOLDERS[split])]
    return [folder / name for name in of_split or names]


def _origin(content: dict[str, Any], file: Path) -> str:
    """Where the images come from, as the JSON says, else the JSON's own name."""
    about = content.get("info")
    description = about.get("description") if isinstance(about, dict) else None
    return description[:200] if isinstance(description, str) and description.strip() else file.name


def _licences(content: dict[str, Any]) -> dict[int, str]:
    """Names of the licences by their number."""
    listed = content.get("licenses")
    named = {}
    for item in listed if isinstance(listed, list) else []:
        number = _whole(item.get("id")) if isinstance(item, dict) else None
        if number is not None and isinstance(item.get("name"), str) and item["name"].strip():
            named[number] = item["name"][:200]
    return named


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
