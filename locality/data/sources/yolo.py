"""`yolo`: images with YOLO's text files, one line `class x y width height` per box, in shares of the image's sides.

The text file of `images/val/7.jpg` is `labels/val/7.txt`, or the one beside the image. x and y are the box's centre. A line
with more numbers is a polygon, which counts by its box. Class names are those of data.yaml (`names:`) or classes.txt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from locality.data.annotated import (
    Annotation,
    annotated_source,
    annotation_files,
    by_stem,
    image_files,
    location,
    no_box_faults,
)
from locality.data.boxes import Array
from locality.data.roots import Root, open_root
from locality.data.source import Source
from locality.errors import DataError, Fault
from locality.toml_settings import read_limited

NAMES_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names", "_darknet.labels")
MAX_NAMES_BYTES = 100_000
MAX_BRACKETS = 100
MAX_LABEL_BYTES = 1_000_000
MAX_NUMBERS = 20_000  # of a polygon


def yolo(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    names: str | Path | Sequence[str] | None = None,
    categories: Sequence[str] | str = (),
) -> Source:
    """The source of the images below `path` (folder or zip) with text files below `boxes`, by default those of `path`.

    `names` are the classes in the order of their numbers, or a file of them.
    """
    root = open_root(path)
    faults = root.faults()
    images = image_files(root, split)
    classes = _classes(root, names)
    files, texts = annotation_files(root, boxes, ".txt")
    texts = [name for name in texts if PurePosixPath(name).name not in NAMES_FILES]
    annotations = list(_annotations(files, texts, images, classes, faults))
    if not annotations and not faults:
        raise DataError(
            f"`{boxes or root.path}` has no text file named like an image: pass their folder as `boxes` (--boxes)"
        )
    faults += no_box_faults(images, (one.image for one in annotations), faults, str(files.path))
    return annotated_source("yolo", root, annotations, faults, classes, categories)


def label_names(image: str) -> tuple[str, str]:
    """Where the text file of an image is: below `labels` in place of `images`, or beside the image.

    >>> label_names("a/images/val/7.jpg")
    ('a/labels/val/7.txt', 'a/images/val/7.txt')
    """
    path = PurePosixPath(image).with_suffix(".txt")
    parts = list(path.parts)
    if "images" in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"
    return "/".join(parts), str(path)


def _annotations(
    root: Root, texts: list[str], images: list[str], classes: Sequence[str], faults: list[Fault]
) -> Iterator[Annotation]:
    known, stems, counts = set(texts), by_stem(texts), by_stem(images)
    for image in images:
        stem = PurePosixPath(image).stem
        alike = stems.get(stem, []) if len(counts[stem]) == 1 else []  # in another folder, if there is no doubt
        found = [name for name in label_names(image) if name in known] or (alike if len(alike) == 1 else [])
        if not found:
            continue
        file = location(root, found[0])
        try:
            data = root.read(found[0])
            if len(data) > MAX_LABEL_BYTES:
                raise DataError(f"{len(data):,} bytes are too many for the boxes of one image")
            names, corners = _objects(data.decode("utf-8-sig"), classes)
        except (DataError, OSError, UnicodeDecodeError) as error:
            row = error.args[1] if isinstance(error, _LineError) else None
            faults.append(Fault(file, row, stem, "bad box", str(error.args[0] if row else error)))
            continue
        yield Annotation(image, file, None, names, corners, relative=True)


class _LineError(DataError):
    """A line that is no box: the sentence and the number of the line."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.args = (message, row)


def _objects(text: str, classes: Sequence[str]) -> tuple[tuple[str, ...], Array]:
    """Names and corners, in shares of the sides, of the lines of a text file."""
    names, corners = [], []
    for row, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        try:
            numbers = np.array(words[1 : MAX_NUMBERS + 1], dtype=np.float64)
            index = float(words[0])
        except ValueError:
            raise _LineError(f"a line is `class x y width height`, got {line[:80]!r}", row) from None
        if len(numbers) == 4 and np.isfinite(numbers).all():
            x, y, width, height = numbers
            corners.append([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
        elif len(numbers) >= 6 and len(numbers) % 2 == 0 and np.isfinite(numbers).all():
            corners.append([*numbers.reshape(-1, 2).min(0), *numbers.reshape(-1, 2).max(0)])
        else:
            raise _LineError(f"a line is `class x y width height`, got {line[:80]!r}", row)
        if not (0 <= index < len(classes) and index == int(index)):
            problem = f"class {words[0][:20]} is not one of the {len(classes)} named classes, which count from 0"
            raise _LineError(problem, row)
        if np.abs(corners[-1]).max() > 2:
            raise _LineError(f"a box is in shares of the image's sides, from 0 to 1, got {line[:80]!r}", row)
        names.append(classes[int(index)])
    return tuple(names), np.array(corners, dtype=np.float64).reshape(-1, 4)


def _classes(root: Root, given: str | Path | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the classes, in the order of their numbers."""
    if given is not None and not isinstance(given, str | Path):
        return tuple(given)
    if given is not None:
        try:
            return names_in(str(given), read_limited(Path(given).expanduser(), MAX_NAMES_BYTES))
        except (OSError, ValueError) as error:
            raise DataError(f"`names` {given} cannot be read: {error}") from error
    listed = sorted(root.names(), key=lambda name: name.count("/"))
    for known in NAMES_FILES:
        for name in listed:
            if PurePosixPath(name).name == known:
                return names_in(location(root, name), root.read(name))
    raise DataError(
        f"`{root.path}` has no names of its classes (data.yaml or classes.txt): pass a file with one name per line as "
        "`names` (--data-option names=FILE)"
    )


def names_in(file: str, data: bytes) -> tuple[str, ...]:
    """The names in a list with one per line, or under `names:` in YAML, as a list or by number."""
    if len(data) > MAX_NAMES_BYTES:
        raise DataError(f"{file}: {len(data):,} bytes are too many for a list of classes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{file}: not UTF-8 text: write one class per line") from None
    if not file.lower().endswith((".yaml", ".yml")):
        names: Any = [line.strip() for line in text.splitlines() if line.strip()]
    else:
        content = _yaml(file, text)
        names = content.get("names") if isinstance(content, dict) else None
        if isinstance(names, dict) and sorted(names, key=str) == sorted(range(len(names)), key=str):
            names = [names[number] for number in range(len(names))]
    good = isinstance(names, list) and names and all(isinstance(name, str | int) and str(name).strip() for name in names)
    if not good or len(set(map(str, names))) < len(names):
        raise DataError(f"{file}: must list the names of the classes, each once")
    return tuple(" ".join(str(name).split()) for name in names)


def _yaml(file: str, text: str) -> Any:
    """The content of a YAML file without references, which could multiply it."""
    import yaml

    if text.count("[") + text.count("{") > MAX_BRACKETS:  # the scanner's time grows with the square of the depth
        raise DataError(
            f"{file}: not YAML that lists classes (more than {MAX_BRACKETS} brackets): write `names: [cat, dog]`"
        )
    try:
        if any(isinstance(token, yaml.AnchorToken | yaml.AliasToken) for token in yaml.scan(text)):
            raise DataError(f"{file}: YAML with anchors or aliases is refused: write the names in full")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).partition("\n")[0] or "nested too deeply"
        raise DataError(f"{file}: not YAML ({reason}): write `names: [cat, dog]`") from error
