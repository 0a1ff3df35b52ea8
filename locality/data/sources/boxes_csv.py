"""`csv`: images with a table of boxes, one row `filename,xmin,ymin,xmax,ymax,label` per box.

Corners are edges in pixels of the image: the box is half-open, and a box around the whole image of 64 × 48 is 0, 0, 64, 48.
Columns may be called as in COLUMNS, or otherwise with a map: `columns="filename=picture, label=animal"`. Further columns are
ignored. `width` and `height`, if there are such columns, are the size that the boxes are for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from locality.data.annotated import (
    IMAGE_NAMES,
    Annotation,
    FileNames,
    annotated_source,
    image_files,
    named_path,
    no_box_faults,
)
from locality.data.roots import is_inside, open_root
from locality.data.source import Source
from locality.errors import ArgumentError, DataError, Fault, unknown_choice
from locality.toml_settings import read_limited

CORNERS = ("xmin", "ymin", "xmax", "ymax")
# What the columns may be called, in this order of preference.
FILE_NAMES = ("filename", "file_name", "file", "image", "image_path", "path")
CORNER_NAMES = (
    CORNERS,
    ("x_min", "y_min", "x_max", "y_max"),
    ("x0", "y0", "x1", "y1"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
LABEL_NAMES = ("label", "class", "class_name", "category", "name")
COLUMNS = ("filename", *CORNERS, "label")
SEPARATORS = (",", ";", "\t")
MAX_CSV_BYTES = 1 << 28


def boxes_csv(
    path: str | Path,
    split: str = "eval",
    boxes: str | Path | None = None,
    columns: Mapping[str, str] | str = "",
    categories: Sequence[str] | str = (),
) -> Source:
    """The source of the images below `path` (folder or zip) with boxes from the table `boxes`.

    Without `boxes`, `path` is the table, and its file names are relative to its folder; or the folder of one table.
    """
    table, folder = _table(Path(path).expanduser(), boxes)
    root = open_root(folder)
    faults = root.faults()
    images = image_files(root, split)
    files = FileNames(name for name in root.names() if name.lower().endswith(IMAGE_NAMES))
    listed = _annotations(table, files, _column_map(columns), faults)
    of_split = set(images)
    annotations = [one for one in listed if one.image in of_split]
    faults += no_box_faults(images, (one.image for one in annotations), faults, str(table))
    return annotated_source("csv", root, annotations, faults, categories=categories)


def box_columns(header: Sequence[str], given: Mapping[str, str]) -> dict[str, int] | None:
    """The position of each column; None if one of them is missing.

    >>> box_columns(["x1", "y1", "x2", "y2", "class", "picture"], {"filename": "picture"})
    {'filename': 5, 'xmin': 0, 'ymin': 1, 'xmax': 2, 'ymax': 3, 'label': 4}
    """
    place = {name.strip().lower(): position for position, name in reversed(list(enumerate(header)))}
    corners = next((names for names in CORNER_NAMES if all(name in place for name in names)), CORNERS)
    names = {
        "filename": next((name for name in FILE_NAMES if name in place), ""),
        **dict(zip(CORNERS, corners, strict=True)),
        "label": next((name for name in LABEL_NAMES if name in place), ""),
    } | {column: name.strip().lower() for column, name in given.items()}
    return {column: place[names[column]] for column in COLUMNS} if all(name in place for name in names.values()) else None


def box_header(data: bytes, given: Mapping[str, str]) -> tuple[str, dict[str, int], Sequence[str]] | None:
    """The separator, the columns and the header of a table of boxes; None if its first line is not that of one."""
    line = data.decode("utf-8-sig", "replace").partition("\n")[0].strip("\r")
    for separator in SEPARATORS:
        try:
            header = next(csv.reader([line], delimiter=separator, strict=True), [])
        except csv.Error:
            continue
        columns = box_columns(header, given)
        if columns is not None:
            return separator, columns, header
    return None


def _table(path: Path, boxes: str | Path | None) -> tuple[Path, Path]:
    """The table and the folder or zip of the images."""
    if boxes is not None:
        return named_path(path, boxes), path
    if path.suffix.lower() == ".csv":
        return path, path.parent
    tables = sorted(path.glob("*.csv")) if path.is_dir() else []
    if len(tables) != 1:
        what = f"several tables ({', '.join(file.name for file in tables[:5])})" if tables else "no table of boxes (.csv)"
        raise DataError(f"`boxes` is needed for csv: {path} has {what}, pass one (--boxes FILE)")
    return tables[0], path


def _column_map(columns: Mapping[str, str] | str) -> dict[str, str]:
    if isinstance(columns, str):
        pairs = [pair.partition("=") for pair in columns.split(",") if pair.strip()]
        columns = {key.strip(): value.strip() for key, _, value in pairs}
    for key, value in columns.items():
        if key not in COLUMNS:
            raise unknown_choice("columns", key, COLUMNS)
        if not value:
            raise ArgumentError("columns", "pairs such as filename=picture", key)
    return dict(columns)


def _annotations(table: Path, files: FileNames, given: Mapping[str, str], faults: list[Fault]) -> Iterator[Annotation]:
    """One annotation per image, in the order of their first rows; a bad row invalidates its whole image."""
    try:
        data = read_limited(table, MAX_CSV_BYTES)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"`boxes` {table} does not exist: pass a table with the columns {','.join(COLUMNS)}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{table}: not UTF-8 text ({error.reason}): save the table as UTF-8") from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"`boxes` {table} cannot be read ({error}): pass a table with the columns {','.join(COLUMNS)}"
        ) from error
    found = box_header(data[:1_000_000], given)
    if found is None:
        raise DataError(
            f"{table}, row 1: the first line must name the columns {','.join(COLUMNS)}; other names need a map "
            "(--data-option columns=filename=picture,label=animal)"
        )
    separator, columns, header = found
    sizes = [position for name in ("width", "height") for position, own in enumerate(header) if own.strip().lower() == name]
    rows: dict[str, list[tuple[int, str, list[float]]]] = {}
    stated: dict[str, tuple[int, int] | None] = {}
    bad: set[str] = set()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        next(reader)
        for row in reader:
            if not row:
                continue
            image, problem = _image(row, columns, len(header), files)
            corners = [] if problem else _corners(row, columns)
            label = "" if problem else " ".join(row[columns["label"]].split())
            if not problem and corners is None:
                problem = f"a box needs four numbers, got {', '.join(row[columns[name]][:20] for name in CORNERS)}"
            if problem or corners is None:
                faults.append(Fault(str(table), reader.line_num, image, "bad row", problem))
                bad.add(image)
                continue
            boxes = rows.setdefault(image, [])
            stated.setdefault(image, _size([row[position] for position in sizes]))
            if corners:
                boxes.append((reader.line_num, label, corners))
    except csv.Error as error:
        raise DataError(f"{table}, row {reader.line_num}: not a table ({error}): save it as comma-separated text") from error
    for image, several in rows.items():
        if image not in files.all:
            problem = f"{image[:80]} has boxes but no file in the folder: it is left out"
            faults.append(Fault(str(table), several[0][0] if several else None, image, "no image", problem))
        elif image not in bad:
            names = tuple(label for _, label, _ in several)
            corners_of = np.array([one for _, _, one in several], dtype=np.float64).reshape(-1, 4)
            first = several[0][0] if several else None
            yield Annotation(image, str(table), first, names, corners_of, stated[image])


def _image(row: list[str], columns: Mapping[str, int], fields: int, files: FileNames) -> tuple[str, str]:
    """The path of a row's image, and what is wrong with the row, if anything."""
    if len(row) != fields:
        return "", f"a row has {fields} fields, got {len(row)}: check for missing or unquoted commas"
    name = row[columns["filename"]].strip()
    if not is_inside(name):
        return name[:80], f"file name {name[:80]!r} must be a path below the images' folder"
    path = files.find(name.replace("\\", "/"))
    return (name, f"several files are named {name!r}: write the path below the folder") if path is None else (path, "")


def _corners(row: list[str], columns: Mapping[str, int]) -> list[float] | None:
    """The four numbers; an empty list where all are empty, as for an image without objects; None if one is no number."""
    words = [row[columns[name]].strip() for name in CORNERS]
    if not any(words):
        return []
    try:
        return [float(word) for word in words]
    except ValueError:
        return None


def _size(words: list[str]) -> tuple[int, int] | None:
    if len(words) != 2 or not all(word.strip().isdecimal() and 0 < len(word.strip()) < 9 for word in words):
        return None
    width, height = (int(word) for word in words)
    return (width, height) if width and height else None
