"""`imagenet`: ImageNet validation or training photographs with human boxes, also in ImageNette's folder layout.

Photographs may be in one folder (`ILSVRC2012_val_00000001.JPEG`) or in one folder per class (`n01440764/…`). Boxes come from
a folder of VOC-style XML files or from Kaggle's `LOC_val_solution.csv`. Box corners are interpreted as edges in original
pixels: the files do not say whether the last pixel is inside, and corners equal to the width occur. Boxes of a resized
photograph (ImageNette's 320-pixel edition) are scaled by the size stated in the XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from locality.data.annotated import corners_in_file, named_path, wrong_size_text
from locality.data.boxes import Array, cut_boxes
from locality.data.fetch import cached_data
from locality.data.manifest import Entry, Manifest
from locality.data.roots import Folder, Root, open_root
from locality.data.source import FileReader, Source
from locality.data.voc_xml import read_voc_xml, xml_error
from locality.errors import DataError, Fault, unknown_choice
from locality.imagenet_classes import imagenet_wnids
from locality.progress import Progress, no_progress

WNID = re.compile(r"n\d{8}")
IMAGE_NAMES = (".jpeg", ".jpg", ".png")
OVERHANG = 1.0  # pixels by which annotators' boxes may cross the edge; they are clipped, and more is a fault
SPLITS = ("eval", "train")  # without folders `val` and `train`, `path` must have the images of the split
LICENCE = "ImageNet terms of access"


@dataclass(frozen=True)
class Annotation:
    """The boxes of one photograph in its annotation file."""

    file: str
    row: int | None
    wnid: str
    corners: Array
    size: tuple[int, int] | None  # width and height that the boxes refer to, if stated


def imagenet(
    path: str | Path, split: str = "eval", boxes: str | Path | None = None, progress: Progress = no_progress
) -> Source:
    """The source of all photographs below `path` that have boxes in `boxes` (an XML folder or Kaggle's CSV)."""
    if split not in SPLITS:
        raise unknown_choice("split", split, SPLITS)
    boxes = boxes or cached_data("imagenet-boxes")
    if boxes is None:
        raise DataError(
            "`boxes` is needed for imagenet: pass the folder of XML files or LOC_val_solution.csv (--boxes PATH); "
            "`locality data get imagenet-boxes` downloads the XML files of the validation set"
        )
    root = open_root(path)
    faults = root.faults()
    images = _images(root, split, faults)
    labels = {wnid: label for label, wnid in enumerate(imagenet_wnids())}
    entries: dict[str, Entry] = {}
    for done, (stem, annotation) in enumerate(_annotations(named_path(path, boxes), set(images), faults)):
        progress(done, len(images))
        if stem in entries:
            problem = f"duplicate id {stem!r}: it is annotated twice"
            faults.append(Fault(annotation.file, annotation.row, stem, "duplicate id", problem))
        else:
            entry = _entry(root, images[stem], stem, annotation, labels)
            if isinstance(entry, Fault):
                faults.append(entry)
            else:
                entries[stem] = entry
    without = sorted(set(images) - set(entries) - {fault.image for fault in faults})
    faults += [Fault(str(boxes), None, s, "no box", f"no boxes for {images[s]}: it is left out") for s in without]
    manifest = Manifest.of(list(entries.values()), source="imagenet", licence=LICENCE)
    return Source("imagenet", manifest, imagenet_wnids(), FileReader(manifest, root), tuple(faults))


def _images(root: Root, split: str, faults: list[Fault]) -> dict[str, str]:
    """Paths by file stem; only those of the split if the root has a folder `val` or `train`."""
    names = [name for name in root.names() if name.lower().endswith(IMAGE_NAMES) and "__MACOSX" not in name]
    if any({"val", "train"} & set(name.split("/")[:-1]) for name in names):
        folder = {"eval": "val", "train": "train"}[split]
        names = [name for name in names if folder in name.split("/")[:-1]]
    if not names:
        raise DataError(f"`{root.path}` has no JPEG of the split {split!r}: pass the folder of ImageNet photographs")
    images: dict[str, str] = {}
    for name in names:
        stem = PurePosixPath(name).stem
        if stem in images:
            problem = f"duplicate id {stem!r}: {name} and {images[stem]} have the same name"
            faults.append(Fault(str(root.path), None, stem, "duplicate id", problem))
        images.setdefault(stem, name)
    return images


def _entry(root: Root, path: str, stem: str, annotation: Annotation, labels: dict[str, int]) -> Entry | Fault:
    """One photograph with its boxes, or a fault."""

    def fault(kind: str, problem: str) -> Fault:
        return Fault(annotation.file, annotation.row, stem, kind, problem)

    folder = PurePosixPath(path).parent.name
    if WNID.fullmatch(folder) and folder != annotation.wnid:
        return fault("unknown label", f"{path} is in the folder of {folder}, but its boxes are of {annotation.wnid}")
    if annotation.wnid not in labels:
        return fault("unknown label", f"{annotation.wnid!r} is not one of the 1,000 classes of ImageNet")
    try:
        size, corners = corners_in_file(root, path, annotation.corners, annotation.size)
    except (DataError, OSError) as error:
        return fault("bad image", f"file {path!r}: {error}")
    if corners is None:
        return fault("wrong size", wrong_size_text(path, size, annotation.size))
    cut, problem = cut_boxes(corners, *size, OVERHANG)
    if problem:
        return fault("bad box", f"{problem}, of {stem}")
    wnid = annotation.wnid
    return Entry(stem, path, labels[wnid], wnid, *size, cut, annotation.file, annotation.row)


def _annotations(boxes: Path, wanted: set[str], faults: list[Fault]) -> Iterator[tuple[str, Annotation]]:
    """Annotations of the wanted photographs, by file stem; others are added to `faults` without reading them."""
    if not boxes.exists():
        raise DataError(f"`boxes` {boxes} does not exist: pass the folder of XML files or LOC_val_solution.csv")
    if boxes.suffix.lower() == ".csv" and boxes.is_file():
        return _kaggle_annotations(boxes, wanted, faults)
    root = open_root(boxes)
    faults += root.faults()
    return _xml_annotations(root, wanted, faults)


def _no_image(file: str, row: int | None, stem: str) -> Fault:
    return Fault(file, row, stem, "no image", f"{stem} has boxes but no photograph: it is left out")


def _xml_annotations(root: Root, wanted: set[str], faults: list[Fault]) -> Iterator[tuple[str, Annotation]]:
    names = [name for name in root.names() if name.lower().endswith(".xml")]
    for name in names:
        stem = PurePosixPath(name).stem
        file = str(root.path / name) if isinstance(root, Folder) else f"{root.path}: {name}"
        if stem not in wanted:
            faults.append(_no_image(file, None, stem))
            continue
        try:
            yield stem, xml_annotation(root.read(name), file)
        except DataError as error:
            faults.extend(error.faults or [Fault(file, None, stem, "bad XML", str(error))])
    if not names:
        raise DataError(f"`boxes` {root.path} has no XML file: pass the folder of VOC-style annotations")


def xml_annotation(data: bytes, file: str) -> Annotation:
    """The boxes of a VOC-style XML file, all of one class."""
    content = read_voc_xml(data, file)
    if not content.names:
        raise xml_error(file, "bad XML", "the XML has no object, and so no box")
    if len(set(content.names)) > 1:
        several = ", ".join(sorted(set(content.names)))
        raise xml_error(file, "unknown label", f"objects of several classes ({several}): one is needed")
    return Annotation(file, None, content.names[0], content.corners, content.size)


def _kaggle_annotations(file: Path, wanted: set[str], faults: list[Fault]) -> Iterator[tuple[str, Annotation]]:
    """Rows `ImageId,PredictionString`; the latter repeats `wnid xmin ymin xmax ymax`."""
    lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    if not lines or lines[0].split(",") != ["ImageId", "PredictionString"]:
        raise DataError(
            f"{file}, row 1: the first line must be ImageId,PredictionString: pass Kaggle's LOC_val_solution.csv"
        )
    for row, line in enumerate(lines[1:], start=2):
        name, comma, text = line.partition(",")
        if not comma:
            if line.strip():
                faults.append(Fault(str(file), row, line[:80], "bad row", "a row must have a comma after the image's name"))
            continue
        stem, words = PurePosixPath(name).stem, text.split()
        if stem not in wanted:
            faults.append(_no_image(str(file), row, stem))
            continue
        try:
            corners = np.array([words[i + 1 : i + 5] for i in range(0, len(words), 5)], dtype=np.float64).reshape(-1, 4)
        except ValueError:
            corners = np.empty((0, 4))
        if not len(corners) or len(words) % 5:
            problem = f"boxes of {stem} must be groups of `wnid xmin ymin xmax ymax`, got {text[:80]!r}"
            faults.append(Fault(str(file), row, stem, "bad box", problem))
            continue
        if len(set(words[::5])) > 1:
            problem = f"objects of several classes ({', '.join(sorted(set(words[::5])))}): one is needed"
            faults.append(Fault(str(file), row, stem, "unknown label", problem))
            continue
        yield stem, Annotation(str(file), row, words[0], corners, None)
