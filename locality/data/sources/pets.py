"""`pets`: Oxford-IIIT Pets in its official layout, folder or zip: images, annotations/list.txt, trimaps, XML files.

A trimap marks the animal (1), the background (2) and the edge between them (3), which is fur, ears and whiskers for the most
part and counts as animal. Boxes are those around the animal in its trimap. The XML files of the data set are boxes of the
**head**, which `boxes="head"` uses; few images have them.

`train` and `eval` are the official trainval.txt and test.txt. Where these are missing, the first four fifths of each breed,
by number, are `train` and the others `eval`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.data.annotated import corners_in_file, location, wrong_size_text
from locality.data.boxes import Array, cut_boxes
from locality.data.decode import decode_levels, image_size
from locality.data.manifest import Entry, Manifest
from locality.data.roots import Root, open_root
from locality.data.source import FileReader, Source
from locality.data.voc_xml import read_voc_xml
from locality.errors import DataError, Fault, unknown_choice

Classes = Literal["species", "breeds"]
Boxes = Literal["animal", "head"]
LIST = "annotations/list.txt"
LISTS = {"train": "trainval.txt", "eval": "test.txt"}
SPECIES = ("cat", "dog")
ANIMAL, BACKGROUND, EDGE = 1, 2, 3
TRAIN_SHARE = 0.8
MAX_LIST_BYTES = 2**22
LICENCE = "CC-BY-SA-4.0"
LINE = re.compile(r"((?:\w[\w.-]*)_(\d{1,9}))\s+(\d{1,3})\s+([12])\s+\d{1,3}")


@dataclass(frozen=True)
class Pet:
    """One line of a list."""

    name: str
    number: int
    breed: int
    species: int
    row: int

    @property
    def breed_name(self) -> str:
        return self.name.rpartition("_")[0]


def pets(path: str | Path, split: str = "eval", classes: Classes = "species", boxes: Boxes = "animal") -> Source:
    """The source of one split; classes are `cat` and `dog`, or the 37 breeds, whose names match those of ImageNet."""
    for argument, value, choices in (("split", split, LISTS), ("classes", classes, get_args(Classes))):
        if value not in choices:
            raise unknown_choice(argument, value, choices)
    if boxes not in get_args(Boxes):
        raise unknown_choice("boxes", boxes, get_args(Boxes))
    root = open_root(path)
    faults, names = root.faults(), set(root.names())
    top = _top(root, names)
    file, listed = _listed(root, names, top, split, faults)
    every = sorted({pet.breed: pet.breed_name for pet in _read(root, f"{top}{LIST}", faults)}.items())
    labels = {breed: label for label, (breed, _) in enumerate(every)}
    entries = []
    for pet in listed:
        label, name = (
            (pet.species - 1, SPECIES[pet.species - 1])
            if classes == "species"
            else (
                labels.get(pet.breed, -1),
                pet.breed_name,
            )
        )
        try:
            size, corners = _boxes(root, names, top, pet, boxes)
            cut, problem = cut_boxes(corners, *size, overhang=1.0)
            if problem:
                raise DataError.of([Fault(file, pet.row, pet.name, "bad box", f"{problem}, of {pet.name}")])
        except (DataError, OSError) as error:
            own = error.faults if isinstance(error, DataError) else ()
            faults += own or [Fault(file, pet.row, pet.name, "bad image", f"{pet.name}: {error}")]
            continue
        entries.append(Entry(pet.name, f"{top}images/{pet.name}.jpg", label, name, *size, cut, file, pet.row))
    manifest = Manifest.of(entries, source="Oxford-IIIT Pets", licence=LICENCE)
    reader = FileReader(manifest, root, Trimaps(root, f"{top}annotations/trimaps", manifest))
    shown = SPECIES if classes == "species" else tuple(name for _, name in every)
    return Source("pets", manifest, shown, reader, tuple(dict.fromkeys(faults)))


@dataclass(frozen=True, eq=False)
class Trimaps:
    """Gives the pixels of the animal of image i."""

    root: Root
    folder: str
    manifest: Manifest

    def __call__(self, index: int) -> Tensor:
        image = self.manifest.images.iloc[index]
        size = (int(image["width"]), int(image["height"]))
        return torch.from_numpy(_animal(self.root, f"{self.folder}/{image['id']}.png", size))[None]


def _animal(root: Root, name: str, size: tuple[int, int]) -> NDArray[np.bool_]:
    """H×W: True where a trimap has the animal or its edge."""
    levels = decode_levels(root.read(name))
    if levels.shape != size[::-1]:
        raise DataError(
            f"trimap {wrong_size_text(name, levels.shape[::-1], size).replace('its boxes are for', 'its image')}"
        )
    if levels.min() < ANIMAL or levels.max() > EDGE:
        raise DataError(f"trimap {name} has levels from {levels.min()} to {levels.max()}, but only 1, 2 and 3 are known")
    animal: NDArray[np.bool_] = levels != BACKGROUND
    return animal


def _boxes(root: Root, names: set[str], top: str, pet: Pet, boxes: Boxes) -> tuple[tuple[int, int], Array]:
    """Width and height of an image, and its box."""
    image, xml = f"{top}images/{pet.name}.jpg", f"{top}annotations/xmls/{pet.name}.xml"
    if image not in names:
        fault = Fault(str(root.path), pet.row, pet.name, "no image", f"{pet.name} has no photograph: it is left out")
        raise DataError.of([fault])
    if boxes == "head":
        if xml not in names:
            fault = Fault(str(root.path), pet.row, pet.name, "no box", f"no box of the head of {pet.name}: it is left out")
            raise DataError.of([fault])
        content = read_voc_xml(root.read(xml), location(root, xml))
        size, corners = corners_in_file(root, image, content.corners - [1, 1, 0, 0], content.size)
        if corners is None or not len(corners):
            raise DataError(f"{xml} has no box for an image of {size[0]} × {size[1]}")
        return size, corners
    with root.open(image) as file:
        size = image_size(file)
    trimap = f"{top}annotations/trimaps/{pet.name}.png"
    if trimap not in names:
        problem = f"{pet.name} has no trimap, {trimap}: add it, or remove the line of {pet.name} from the list"
        raise DataError.of([Fault(str(root.path), pet.row, pet.name, "no trimap", problem)])
    animal = _animal(root, trimap, size)
    rows, columns = np.flatnonzero(animal.any(1)), np.flatnonzero(animal.any(0))
    if not len(rows):
        problem = f"the trimap of {pet.name} has no animal: it is left out"
        raise DataError.of([Fault(str(root.path), pet.row, pet.name, "no box", problem)])
    return size, np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], dtype=np.float64)


def _top(root: Root, names: set[str]) -> str:
    lists = sorted((name for name in names if name.endswith(LIST)), key=len)
    if not lists:
        raise DataError(f"`{root.path}` has no {LIST}: pass the folder or zip of Oxford-IIIT Pets")
    return lists[0].removesuffix(LIST)


def _listed(root: Root, names: set[str], top: str, split: str, faults: list[Fault]) -> tuple[str, list[Pet]]:
    """The list of the split and its animals."""
    official = f"{top}annotations/{LISTS[split]}"
    if official in names:
        return location(root, official), _read(root, official, faults)
    file = f"{top}{LIST}"
    by_breed: dict[int, list[Pet]] = defaultdict(list)
    for pet in _read(root, file, faults):
        by_breed[pet.breed].append(pet)
    chosen: list[Pet] = []
    for several in by_breed.values():
        several.sort(key=lambda pet: pet.number)
        first = min(round(TRAIN_SHARE * len(several)), len(several) - 1)  # the last one is always `eval`
        chosen += several[:first] if split == "train" else several[first:]
    return location(root, file), sorted(chosen, key=lambda pet: pet.row)


def _read(root: Root, name: str, faults: list[Fault]) -> list[Pet]:
    """The animals of a list; lines that start with # are comments."""
    data = root.read(name)
    if len(data) > MAX_LIST_BYTES:
        raise DataError(f"`{root.path}`: {name} has {len(data):,} bytes, too many for a list: download it again")
    listed: dict[str, Pet] = {}
    for row, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line.strip())
        if match is None or PurePosixPath(match[1]).name != match[1]:
            problem = f"a line is `NAME CLASS SPECIES BREED`, such as Abyssinian_10 1 1 1, got {line[:80]!r}"
            faults.append(Fault(location(root, name), row, "", "bad row", problem))
        elif match[1] in listed:
            faults.append(Fault(location(root, name), row, match[1], "duplicate id", f"{match[1]} is listed twice"))
        else:
            listed[match[1]] = Pet(match[1], int(match[2]), int(match[3]), int(match[4]), row)
    return list(listed.values())
