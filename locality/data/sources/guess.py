"""The kind of a data set from the names of its files. What is not clear is asked for, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from locality.data.annotated import IMAGE_NAMES
from locality.data.manifest_csv import COLUMNS as MANIFEST_COLUMNS
from locality.data.roots import Folder, Root, open_root
from locality.data.sources.boxes_csv import box_header
from locality.data.sources.class_folders import class_folders
from locality.data.sources.coco import instance_files
from locality.data.sources.yolo import NAMES_FILES
from locality.errors import DataError
from locality.toml_settings import read_limited

MAX_HEADER_BYTES = 1_000_000
MAX_JSON_BYTES = 1 << 26  # a JSON that is larger is not looked into
# Layouts that a file gives away: the end of its name, and of a second file that has to be there, too.
LAYOUTS = {
    "pets": ("annotations/list.txt", re.compile(r"annotations/(trimaps|xmls)/")),
    "tiny-imagenet": ("wnids.txt", re.compile(r"val_annotations\.txt$")),
    "cifar10": ("batches.meta.txt", re.compile(r"(data_batch_\d|test_batch)\.bin$")),
}
KAGGLE = "ImageId,PredictionString"


@dataclass(frozen=True)
class Guess:
    """A kind, what its source reads, and why."""

    kind: str
    path: str
    reason: str
    boxes: str = ""  # its annotations, as a person names them inside the data
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.path} is read as {self.kind}:{self.path}, because {self.reason}"


def guess_kind(name: str, split: str = "eval", boxes: str | Path | None = None) -> Guess:
    """The kind of the data at a path; `boxes`, if given, decides it. DataError if it is not clear."""
    path = Path(name).expanduser()
    if path.suffix.lower() == ".csv" and not path.is_dir():
        return _of_table(path)
    if path.suffix.lower() in (".parquet", ".arrow") and path.is_file():
        return Guess("hf", str(path), "it is a table of Hugging Face")
    root = open_root(path)
    if boxes is not None:
        return _of_boxes(root, boxes)
    names = root.names()
    for kind, (first, second) in LAYOUTS.items():
        if any(name.endswith(first) for name in names) and any(second.search(name) for name in names):
            return Guess(kind, str(path), f"it has {first}")
    if any(name.lower().endswith((".arrow", ".parquet")) for name in names):
        return Guess("hf", str(path), "it has .arrow or .parquet files")
    return _of_annotations(root, names, split)


def _of_table(path: Path) -> Guess:
    """A manifest, or a table of boxes."""
    if not path.is_file():
        return Guess("manifest", str(path), "its name ends in .csv")  # whose reader says what is missing
    if not set(_first_line(path).split(",")) & {"id", "sha256", "wnid"} and box_header(_start(path), {}) is not None:
        return Guess("csv", str(path), "its first line has the columns of a table of boxes")
    return Guess("manifest", str(path), "its name ends in .csv")


def _of_boxes(root: Root, boxes: str | Path) -> Guess:
    """The kind of annotations that a person named, by a path or by a name inside the data."""
    given, path = Path(boxes).expanduser(), str(root.path)
    inside = root.path / boxes if not given.exists() and root.path.is_dir() else given
    file = inside if inside.is_file() else given
    if file.suffix.lower() == ".json":
        return Guess("coco", path, f"`boxes` {boxes} is a JSON file")
    if file.suffix.lower() == ".csv":
        kaggle = file.is_file() and _first_line(file) == KAGGLE
        return Guess("imagenet" if kaggle else "csv", path, f"`boxes` {boxes} is a {'CSV of Kaggle' if kaggle else 'CSV'}")
    prefix = f"{str(boxes).strip('/')}/"
    names = open_root(given).names() if given.exists() else [name for name in root.names() if name.startswith(prefix)]
    for kind, suffix in (("voc", ".xml"), ("yolo", ".txt")):
        if any(name.lower().endswith(suffix) for name in names):
            return Guess(kind, path, f"`boxes` {boxes} has {suffix} files")
    raise DataError(
        f"`boxes` {boxes} must be a JSON of COCO, a CSV, or a folder of XML files (VOC) or text files (YOLO): check its path"
    )


def _of_annotations(root: Root, names: list[str], split: str) -> Guess:
    """The one kind of annotations beside the images; class folders if there are none."""
    images = [name for name in names if name.lower().endswith(IMAGE_NAMES) and "__MACOSX" not in name]
    if not images:
        raise DataError(f"`{root.path}` has no images ({', '.join(IMAGE_NAMES)}): pass the folder or zip that contains them")
    stems = {PurePosixPath(name).stem for name in images}
    found: list[Guess] = []
    for kind, suffix in (("voc", ".xml"), ("yolo", ".txt")):
        alike = [name for name in names if name.lower().endswith(suffix) and PurePosixPath(name).stem in stems]
        alike = [name for name in alike if PurePosixPath(name).name not in NAMES_FILES]
        if alike:
            where = str(PurePosixPath(alike[0]).parent)
            found.append(Guess(kind, str(root.path), f"{alike[0]} is named like an image", where))
    found += _of_files(root, names, split) if isinstance(root, Folder) else []
    # A manifest was built from something: it counts where that is not here.
    found = [guess for guess in found if guess.kind != "manifest"] or found
    if len(found) == 1:
        return found[0]
    if found:
        listed = "; ".join(f"{guess.reason} ({guess.kind})" for guess in found[:6])
        raise DataError(
            f"`{root.path}` has boxes in several places: {listed}: choose one of them by name, such as "
            + (f"--data {found[0].path}" if found[0].kind == "manifest" else f"--boxes {found[0].boxes}")
        )
    if len(class_folders(root, split)) > 1:
        return Guess("folder", str(root.path), "it has class folders and no boxes")
    raise DataError(
        f"`{root.path}` has {len(images):,} images, but neither boxes nor class folders: pass the boxes with --boxes "
        "(a JSON of COCO, a CSV, or a folder of XML or YOLO text files)"
    )


def _of_files(root: Folder, names: list[str], split: str) -> list[Guess]:
    """A guess for every JSON of COCO, manifest and table of boxes in a folder."""
    found = []
    for file in instance_files(root.path, split):
        if _is_coco(file):
            name = str(file.relative_to(root.path))
            found.append(Guess("coco", str(root.path), f"{name} is a JSON of COCO", name, {"boxes": file}))
    for name in names:
        file = root.path / name
        if not name.lower().endswith(".csv"):
            continue
        if _of_table(file).kind == "csv":
            found.append(Guess("csv", str(root.path), f"{name} is a table of boxes", name, {"boxes": file}))
        elif set(MANIFEST_COLUMNS) <= set(_first_line(file).split(",")):
            found.append(Guess("manifest", str(file), f"{name} is a manifest", name))
    return found


def _start(file: Path) -> bytes:
    """The first bytes of a regular file."""
    with file.open("rb") as opened:
        return opened.read(MAX_HEADER_BYTES)


def _first_line(file: Path) -> str:
    return _start(file).decode("utf-8-sig", "replace").partition("\n")[0].strip()


def _is_coco(file: Path) -> bool:
    try:
        data = read_limited(file, MAX_JSON_BYTES)
    except OSError:
        return False
    except ValueError:  # larger
        return True
    return all(f'"{key}"'.encode() in data for key in ("images", "annotations", "categories"))
