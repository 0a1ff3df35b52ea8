"""`tiny-imagenet`: Tiny-ImageNet in its official layout, as a folder or as the zip.

`train` is the first 400 training photographs of each class, by number; `eval` is the other 100 and those of `val`. The
official test photographs have no public labels or boxes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from locality.data.boxes import cut_boxes
from locality.data.manifest import Entry, Manifest
from locality.data.roots import Root, open_root
from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault, unknown_choice

SIDE = 64
TRAIN_PER_CLASS = 400
MAX_TEXT_BYTES = 2**24  # of a list of classes or boxes
INCLUSIVE = np.array([0, 0, 1, 1])
SPLITS = ("train", "eval")
LICENCE = "ImageNet terms of access"


def tiny_imagenet(path: str | Path, split: str = "eval") -> Source:
    """The source of one split of the Tiny-ImageNet at `path`; classes are in the order of `wnids.txt`."""
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    root = open_root(path)
    top = _top(root)
    classes = tuple(_text(root, f"{top}wnids.txt").split())
    table = _Table(str(root.path), {wnid: label for label, wnid in enumerate(classes)})
    for wnid in classes:
        _add_training_class(table, root, top, wnid, split)
    if split == "eval":
        _add_validation(table, root, top)
    manifest = Manifest.of(list(table.entries.values()), source="tiny-imagenet", licence=LICENCE)
    return Source("tiny-imagenet", manifest, classes, FileReader(manifest, root), tuple(root.faults() + table.faults))


def _top(root: Root) -> str:
    """Prefix of the data inside the root: "" or "tiny-imagenet-200/"."""
    lists = [name for name in root.names() if PurePosixPath(name).name == "wnids.txt" and name.count("/") <= 1]
    if not lists:
        raise DataError(f"`{root.path}` has no wnids.txt: pass the folder or zip of Tiny-ImageNet")
    return lists[0].removesuffix("wnids.txt")


def _text(root: Root, name: str) -> str:
    try:
        data = root.read(name)
        if len(data) > MAX_TEXT_BYTES:
            raise DataError(f"`{root.path}`: {name} has {len(data):,} bytes, too many for a list: download it again")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"`{root.path}` has no {name}: the download is incomplete, download it again") from None
    except UnicodeDecodeError:
        raise DataError(f"`{root.path}`: {name} is not text: the download is damaged, download it again") from None


@dataclass
class _Table:
    """Collects images and faults line by line."""

    root: str
    labels: dict[str, int]
    entries: dict[str, Entry] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def add(self, file: str, row: int, path: str, wnid: str, fields: list[str]) -> None:
        """One image with its box of inclusive pixels 0–63, or a fault."""
        image = PurePosixPath(path).stem
        location = f"{self.root}: {file}"

        def fault(kind: str, problem: str) -> None:
            self.faults.append(Fault(location, row, image, kind, problem))

        if wnid not in self.labels:
            return fault("unknown label", f"class {wnid!r} of {image} is not in wnids.txt: use the official files")
        if image in self.entries:
            return fault("duplicate id", f"duplicate id {image!r}: the photograph is listed twice")
        if len(fields) != 4 or not all(re.fullmatch(r"-?\d{1,9}", value) for value in fields):
            return fault("bad box", f"{image} needs four whole numbers for its box, got {' '.join(fields)!r}")
        # In the file both corners are pixels inside the box; our boxes are half-open.
        corners, problem = cut_boxes(np.array([fields], dtype=np.float64) + INCLUSIVE, SIDE, SIDE)
        if problem:
            return fault("bad box", f"{problem}, of {image}; the file's own numbers run from 0 to {SIDE - 1}")
        self.entries[image] = Entry(image, path, self.labels[wnid], wnid, SIDE, SIDE, corners, location, row)
        return None


def _add_training_class(table: _Table, root: Root, top: str, wnid: str, split: str) -> None:
    file = f"{top}train/{wnid}/{wnid}_boxes.txt"
    lines = []
    for row, line in enumerate(_text(root, file).splitlines(), start=1):
        fields = line.split()
        number = re.fullmatch(r"n\d+_(\d{1,9})\.JPEG", fields[0]) if fields else None
        if number is None:
            problem = f"a line must start with a name like {wnid}_12.JPEG, got {line!r}"
            table.faults.append(Fault(f"{table.root}: {file}", row, "", "bad row", problem))
            continue
        lines.append((int(number[1]), row, fields))
    lines.sort(key=lambda line: line[0])
    chosen = lines[:TRAIN_PER_CLASS] if split == "train" else lines[TRAIN_PER_CLASS:]
    for _, row, fields in chosen:
        table.add(file, row, f"{top}train/{wnid}/images/{fields[0]}", wnid, fields[1:])


def _add_validation(table: _Table, root: Root, top: str) -> None:
    file = f"{top}val/val_annotations.txt"
    for row, line in enumerate(_text(root, file).splitlines(), start=1):
        fields = line.split()
        if len(fields) < 2 or not re.fullmatch(r"val_\d{1,9}\.JPEG", fields[0]):
            problem = f"a line must be `val_12.JPEG n01443537 x0 y0 x1 y1`, got {line!r}"
            table.faults.append(Fault(f"{table.root}: {file}", row, "", "bad row", problem))
            continue
        table.add(file, row, f"{top}val/images/{fields[0]}", fields[1], fields[2:])
