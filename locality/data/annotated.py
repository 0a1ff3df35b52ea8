"""From annotations of any format to a source: files are found, sizes read, boxes clipped, classes numbered.

An image is used if its objects are of exactly one of the wanted classes, as a classifier has one answer. Others are counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from torch import Tensor

from locality.data.boxes import Array, cut_boxes
from locality.data.class_names import one_word
from locality.data.decode import image_size
from locality.data.manifest import Entry, Manifest
from locality.data.roots import Folder, Root, open_root
from locality.data.source import FileReader, Source
from locality.errors import DataError, Fault, did_you_mean, unknown_choice

IMAGE_NAMES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
NOT_STATED = "not stated"
OVERHANG = 1.0  # pixels by which annotators' boxes may cross the edge; they are clipped, and more is a fault
MAX_NAME = 200  # letters of a class's name
PRECISION = 1e-6  # of shares of the sides, which tools write with six decimals
# Folders of a split, the first that a data set has.
SPLIT_FOLDERS = {"eval": ("val", "valid", "validation", "test", "testing"), "train": ("train", "training")}


@dataclass(frozen=True, eq=False)
class Annotation:
    """The objects of one image in its annotation file."""

    image: str  # path of its file below the root
    file: str
    row: int | None
    names: tuple[str, ...]  # K classes
    corners: Array  # K×4, in pixels, or in shares of width and height if `relative`
    size: tuple[int, int] | None = None  # width and height that the boxes refer to, if stated
    relative: bool = False


def image_files(root: Root, split: str = "eval") -> list[str]:
    """The image files of a split, sorted: those below `train` or `val` if the images are in such folders, else all."""
    if split not in SPLIT_FOLDERS:
        raise unknown_choice("split", split, SPLIT_FOLDERS)
    names = [name for name in root.names() if name.lower().endswith(IMAGE_NAMES) and "__MACOSX" not in name]
    folders = {folder for name in names for folder in name.lower().split("/")[:-1]}
    if folders & set(SPLIT_FOLDERS["train"]) and folders & set(SPLIT_FOLDERS["eval"]):
        chosen = next(folder for folder in SPLIT_FOLDERS[split] if folder in folders)
        names = [name for name in names if chosen in name.lower().split("/")[:-1]]
    if not names:
        raise DataError(f"`{root.path}` has no images ({', '.join(IMAGE_NAMES)}): pass the folder or zip that contains them")
    return names


class FileNames:
    """Finds files by a name that an annotation gives: a path below the root, or its last part."""

    def __init__(self, names: Iterable[str]) -> None:
        self.all = set(names)
        self.by_base: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.all):
            self.by_base[name.rsplit("/", 1)[-1]].append(name)

    def find(self, name: str) -> str | None:
        """The file's path; the name itself if there is none, so that reading reports it; None if several match."""
        if name in self.all:
            return name
        matches = [other for other in self.by_base.get(name.rsplit("/", 1)[-1], []) if other.endswith(f"/{name}")]
        return None if len(matches) > 1 else matches[0] if matches else name


def annotation_files(root: Root, boxes: str | Path | None, suffix: str) -> tuple[Root, list[str]]:
    """The annotation files: below `boxes`, a folder or zip, or a folder inside the root; without `boxes`, in the root."""
    if boxes is None:
        return root, [name for name in root.names() if name.lower().endswith(suffix) and "__MACOSX" not in name]
    prefix = f"{str(boxes).strip('/')}/"
    inside = [name for name in root.names() if name.startswith(prefix) and name.lower().endswith(suffix)]
    if inside and not Path(boxes).exists():
        return root, inside
    if not Path(boxes).expanduser().exists():
        raise DataError(f"`boxes` {boxes} is neither a path nor a folder of {root.path}: pass the folder of {suffix} files")
    other = open_root(boxes)
    return other, [name for name in other.names() if name.lower().endswith(suffix)]


def named_path(folder: str | Path, boxes: str | Path) -> Path:
    """The file or folder of `boxes`: a path, or else a name inside the data's folder."""
    named = Path(boxes).expanduser()
    inside = Path(folder).expanduser() / named
    return inside if not named.exists() and inside.exists() else named


def location(root: Root, name: str) -> str:
    """A file of a root as messages name it."""
    return str(root.path / name) if isinstance(root, Folder) else f"{root.path}: {name}"


def by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    """Files by their name without folder and suffix."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[PurePosixPath(name).stem].append(name)
    return found


def image_ids(images: Sequence[str]) -> dict[str, str]:
    """An id for each file: its name without suffix, with as many of its folders as tell it from the others.

    >>> image_ids(["x/a/1.png", "x/b/1.png", "x/b/2.png"])
    {'x/a/1.png': 'a-1', 'x/b/1.png': 'b-1', 'x/b/2.png': '2'}
    """
    parts = {name: PurePosixPath(name).with_suffix("").parts for name in images}
    ids: dict[str, str] = {}
    for depth in range(1, 1 + max(map(len, parts.values()), default=0)):
        names = {name: "-".join(each[-depth:]) for name, each in parts.items() if name not in ids}
        counts = Counter(names.values())
        ids |= {name: own for name, own in names.items() if counts[own] == 1 or depth >= len(parts[name])}
    return {name: ids[name] for name in images}


def corners_in_file(
    root: Root, path: str, corners: Array, stated: tuple[int, int] | None
) -> tuple[tuple[int, int], Array | None]:
    """Width and height of an image file, and the boxes in its pixels.

    Boxes of a stated size are scaled if the file is a smaller edition of that image; None if it has another shape. Boxes may
    also be for the pixels as stored, before they are turned as EXIF says.
    """
    with root.open(path) as file:
        size = image_size(file)
        if stated is not None and not _same_shape(size, stated):
            file.seek(0)
            stored = image_size(file, "stored")
            size = stored if _same_shape(stored, stated) else size
    if stated is None or stated == size:
        return size, corners
    if not _same_shape(size, stated):
        return size, None
    scale_x, scale_y = size[0] / stated[0], size[1] / stated[1]
    return size, corners * [scale_x, scale_y, scale_x, scale_y]


def wrong_size_text(path: str, size: tuple[int, int], stated: tuple[int, int] | None) -> str:
    """The sentence about a file that is not of the size its boxes are for."""
    return f"{path} is {size[0]} × {size[1]}, its boxes are for {' × '.join(map(str, stated or ()))}"


def _same_shape(size: tuple[int, int], stated: tuple[int, int]) -> bool:
    """Whether one size is the other scaled."""
    return abs(size[0] / stated[0] / (size[1] / stated[1]) - 1) <= 0.02


def wanted_classes(names: Iterable[str], categories: Sequence[str] | str, where: str) -> set[str]:
    """The chosen classes, all if none is named; DataError for one that is not there. A text names them between commas."""
    known = sorted(set(names))
    chosen = [name.strip() for name in categories.split(",")] if isinstance(categories, str) else list(categories)
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        hint = did_you_mean(unknown[0], known) or f"it has {', '.join(known)}"
        raise DataError(f"`categories` {', '.join(unknown)} not in {where}: {hint}")
    return set(chosen) or set(known)


def annotated_source(
    kind: str,
    root: Root,
    annotations: Iterable[Annotation],
    faults: list[Fault],
    classes: Sequence[str] | None = None,
    categories: Sequence[str] | str = (),
    outline: Callable[[Manifest], Callable[[int], Tensor]] | None = None,
) -> Source:
    """The source of annotated images. Labels follow `classes`, or the alphabet where the format gives no order."""
    listed = list(annotations)
    _check_pixels(listed, root)
    names = list(classes) if classes is not None else sorted({name for one in listed for name in one.names if name})
    wanted = wanted_classes(names, categories, str(root.path))
    chosen = [name for name in names if name in wanted]
    ids = image_ids([one.image for one in listed])
    entries: dict[str, Entry] = {}
    for one in listed:
        made = _entry(root, one, ids[one.image], chosen, wanted)
        if isinstance(made, Fault):
            faults.append(made)
        elif made.id in entries:
            problem = f"duplicate id {made.id!r}: {made.path} and {entries[made.id].path} have the same name"
            faults.append(Fault(one.file, one.row, made.id, "duplicate id", problem))
        else:
            entries[made.id] = made
    name = f"{kind}:{root.path.absolute().name}"
    manifest = Manifest.of(list(entries.values()), source=name, licence=NOT_STATED)
    reader = FileReader(manifest, root, None if outline is None else outline(manifest))
    return Source(name, manifest, tuple(map(one_word, chosen)), reader, tuple(faults), assumed_order=classes is None)


def _check_pixels(annotations: Sequence[Annotation], root: Root) -> None:
    """Raise if no box reaches beyond the first pixel: such corners are shares of the image's sides."""
    largest = [one.corners.max() for one in annotations if len(one.corners) and not one.relative]
    if largest and max(largest) <= 1:
        raise DataError(
            f"boxes of {root.path} must be in pixels, but no corner is above 1: multiply them by width and height"
        )


def _entry(root: Root, one: Annotation, image: str, classes: list[str], wanted: set[str]) -> Entry | Fault:
    """One image with the boxes of its class, or a fault."""

    def fault(kind: str, problem: str) -> Fault:
        return Fault(one.file, one.row, image, kind, problem)

    if not all(0 < len(name) <= MAX_NAME for name in one.names):
        return fault("unknown label", f"an object of {one.image} has no class, or one of over {MAX_NAME} letters: name it")
    shown = [index for index, name in enumerate(one.names) if name in wanted]
    seen = sorted({one.names[index] for index in shown})
    if not seen:
        return fault("no box", f"no boxes for {one.image}: it is left out")
    if len(seen) > 1:
        return fault("several classes", f"{one.image} shows objects of several classes ({', '.join(seen)}): it is left out")
    try:
        size, corners = corners_in_file(root, one.image, one.corners[shown], one.size)
    except FileNotFoundError:
        return fault("missing file", f"file {one.image!r} is missing in {root.path}: pass the folder that contains it")
    except (DataError, OSError, ValueError) as error:
        return fault("bad image", f"file {one.image!r}: {error}")
    if corners is None:
        return fault("wrong size", wrong_size_text(one.image, size, one.size))
    if one.relative:
        corners = _in_pixels(corners, size)
    cut, problem = cut_boxes(corners, *size, OVERHANG)
    if problem:
        return fault("bad box", f"{problem}, of {one.image}")
    label = classes.index(seen[0])
    return Entry(image, one.image, label, one_word(seen[0]), *size, cut, one.file, one.row)


def _in_pixels(shares: Array, size: tuple[int, int]) -> Array:
    """Corners in pixels; those within the precision of six decimals of a whole pixel are whole.

    >>> _in_pixels(np.array([[0.333333, 0.5, 0.666667, 1]]), (48, 10)).tolist()
    [[16.0, 5.0, 32.0, 10.0]]
    """
    sides = np.array([*size, *size])
    corners: Array = shares * sides
    whole = corners.round()
    return np.where(np.abs(corners - whole) <= PRECISION * sides, whole, corners)


def no_box_faults(images: Iterable[str], annotated: Iterable[str], faults: list[Fault], where: str) -> list[Fault]:
    """Notes about images without an annotation, unless a fault explains it."""
    explained = set(annotated)
    named = {fault.image for fault in faults}
    return [
        Fault(where, None, name, "no box", f"no boxes for {name}: it is left out")
        for name in images
        if name not in explained and PurePosixPath(name).stem not in named
    ]
