"""Manifests on disk: a CSV with one row per box. `data_manifests/README.md` explains the columns.

The file is read in blocks, and each block is checked with array operations. A hostile or broken file results in a list of
faults, never in a crash.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.data.boxes import MAX_BOXES, Array
from locality.data.decode import MAX_ASPECT, Orientation
from locality.data.manifest import Manifest
from locality.errors import DataError, Fault
from locality.files import write_atomically

COLUMNS = ("id", "path", "sha256", "label", "wnid", "x0", "y0", "x1", "y1", "width", "height", "source", "licence")
OPTIONAL = {"orientation": "displayed"}  # columns that a manifest may leave out, with their value then
TEXT = ("id", "path", "sha256", "wnid", "source", "licence", *OPTIONAL)
NUMBERS = ("label", "x0", "y0", "x1", "y1", "width", "height")
# The same in all rows of an image.
PER_IMAGE = ("path", "sha256", "wnid", "label", "width", "height", "source", "licence", *OPTIONAL)
BLOCK = 4_096
MAX_LABEL = 1_000_000
MAX_SIDE = 1_000_000
Block = tuple[list[int], dict[str, tuple[str, ...]]]  # line numbers, and the fields of those lines by column


def read_manifest(path: str | Path) -> tuple[Manifest, list[Fault]]:
    """The valid images of a manifest, and the faults of the others; one bad row invalidates its whole image."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"`{path}` is a folder, but a manifest is a CSV file: pass the file inside it")
    if not path.is_file():
        raise DataError(f"`{path}` does not exist: build a manifest with `locality data build SOURCE --out {path}`")
    faults: list[Fault] = []
    blocks = [_checked_block(str(path), block, faults) for block in _blocks(path, faults)]
    rows = (
        pd.concat(blocks, ignore_index=True)
        if blocks
        else _checked_block(str(path), ([], dict.fromkeys((*COLUMNS, *OPTIONAL), ())), faults)
    )
    return _grouped(str(path), rows, faults), sorted(faults, key=lambda fault: fault.row or 0)


def write_manifest(path: str | Path, manifest: Manifest) -> None:
    """Write the CSV atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    images = manifest.images
    columns = [images[name].tolist() for name in ("id", "path", "sha256", "label", "wnid")]
    last = ["width", "height", "source", "licence"]
    last += [name for name, default in OPTIONAL.items() if (images[name] != default).any()]
    sizes = [images[name].tolist() for name in last]

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*COLUMNS, *(name for name in last if name in OPTIONAL)])
            for index in range(len(images)):
                before, after = [column[index] for column in columns], [column[index] for column in sizes]
                for corners in manifest.boxes(index):
                    writer.writerow([*before, *(np.format_float_positional(c, trim="-") for c in corners), *after])

    write_atomically(path, write)


def _blocks(path: Path, faults: list[Fault]) -> Iterator[Block]:
    """Line numbers and columns of the rows, BLOCK rows at a time."""
    with path.open(newline="", encoding="utf-8-sig", errors="strict") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None)
            order = _column_order(path, header)
            numbers: list[int] = []
            rows: list[list[str]] = []
            for row in reader:
                if len(row) != len(order):
                    if row:  # empty lines are skipped
                        image = row[order["id"]] if order["id"] < len(row) else ""
                        problem = f"a row has {len(order)} fields, got {len(row)}: check for missing or unquoted commas"
                        faults.append(Fault(str(path), reader.line_num, image, "bad row", problem))
                    continue
                numbers.append(reader.line_num)
                rows.append(row)
                if len(rows) == BLOCK:
                    yield numbers, _columns(rows, order)
                    numbers, rows = [], []
            if rows:
                yield numbers, _columns(rows, order)
        except csv.Error as error:
            raise DataError(
                f"{path}, row {reader.line_num}: not a CSV file ({error}): save it as comma-separated text"
            ) from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 text ({error.reason}): save the CSV as UTF-8") from error


def _columns(rows: list[list[str]], order: dict[str, int]) -> dict[str, tuple[str, ...]]:
    columns = list(zip(*rows, strict=True))
    left_out = {name: (default,) * len(rows) for name, default in OPTIONAL.items()}
    return left_out | {name: columns[position] for name, position in order.items()}


def _column_order(path: Path, header: list[str] | None) -> dict[str, int]:
    """The position of each column that the file has."""
    if header is None:
        raise DataError(f"{path}: the file is empty: its first line must be {','.join(COLUMNS)}")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise DataError(f"{path}, row 1: missing column {', '.join(missing)}: the first line must be {','.join(COLUMNS)}")
    extra = [name for name in header if name not in COLUMNS and name not in OPTIONAL]
    if extra or len(set(header)) != len(header):
        names = ", ".join(repr(name) for name in extra) or "one of them twice"
        raise DataError(f"{path}, row 1: unexpected column {names}: a manifest has only {','.join(COLUMNS)}")
    return {name: position for position, name in enumerate(header)}


def _checked_block(file: str, block: Block, faults: list[Fault]) -> pd.DataFrame:
    """The rows as typed columns, with `bad` for rows with a fault; the faults are added to `faults`."""
    numbers, columns = block
    table = {name: pd.Series(columns[name], dtype="str") for name in TEXT}
    table["sha256"] = table["sha256"].str.lower()
    values = {name: _numbers(columns[name]) for name in NUMBERS}
    x0, y0, x1, y1 = (values[name] for name in ("x0", "y0", "x1", "y1"))
    width, height, label = values["width"], values["height"], values["label"]
    path = table["path"].str
    unsafe = path.match(r"(?:.*[/\\])?\.\.(?:[/\\]|$)|[/\\]|[A-Za-z]:") | path.contains("\0", regex=False)
    corners_finite = np.isfinite(x0) & np.isfinite(y0) & np.isfinite(x1) & np.isfinite(y1)
    thin = np.maximum(width, height) > MAX_ASPECT * np.minimum(width, height)
    sized = (
        ~thin
        & (width >= 1)
        & (height >= 1)
        & (width <= MAX_SIDE)
        & (height <= MAX_SIDE)
        & (width % 1 == 0)
        & (height % 1 == 0)
    )
    known = (label >= 0) & (label <= MAX_LABEL) & (label % 1 == 0)
    # Each check: the rows that fail, the kind, and a sentence; a row is reported for its first failed check.
    checks = [
        (table["id"].to_numpy() == "", "bad row", "`id` is empty: give every image a name"),
        (unsafe.to_numpy(dtype=bool), "unsafe path", "`path` {path!r} is outside the data's folder: use a path below it"),
        (
            ~known,
            "unknown label",
            f"`label` must be a whole number from 0 to {MAX_LABEL}, got {{label!r}}: write the class's index",
        ),
        (table["wnid"].str.strip().to_numpy() == "", "unknown label", "`wnid` is empty: write the class's WordNet id"),
        (
            ~table["orientation"].isin(get_args(Orientation)).to_numpy(),
            "bad row",
            "`orientation` must be displayed or stored, got {orientation!r}",
        ),
        (~sized, "bad size", "`width` and `height` must be the pixels of a photograph, got {width!r} and {height!r}"),
        (~corners_finite, "bad box", "box ({x0}, {y0}, {x1}, {y1}) has a corner that is not a number"),
        (
            (x1 < x0) | (y1 < y0),
            "bad box",
            "box ({x0}, {y0}, {x1}, {y1}) has swapped corners: x0 < x1 and y0 < y1 are needed",
        ),
        ((x1 == x0) | (y1 == y0), "bad box", "box ({x0}, {y0}, {x1}, {y1}) is empty: boxes are half-open"),
        (
            (x0 < 0) | (y0 < 0) | (x1 > width) | (y1 > height),
            "bad box",
            "box ({x0}, {y0}, {x1}, {y1}) leaves the image of {width} × {height}",
        ),
    ]
    bad = np.zeros(len(numbers), dtype=np.bool_)
    for failed, kind, sentence in checks:
        for index in np.flatnonzero(failed & ~bad):
            fields = {name: columns[name][index] for name in columns}
            faults.append(Fault(file, numbers[index], fields["id"], kind, sentence.format(**fields)))
        bad |= failed
    whole = {name: np.where(bad, 0, values[name]).astype(np.int64) for name in ("label", "width", "height")}
    corners = {name: values[name] for name in ("x0", "y0", "x1", "y1")}
    return pd.DataFrame({**table, **whole, **corners, "row": np.array(numbers, dtype=np.int64), "bad": bad})


def _numbers(column: Sequence[str]) -> Array:
    """float64, with `nan` for fields that are not numbers."""
    try:
        return np.array(column, dtype=np.float64)
    except ValueError:
        return np.array([_number(field) for field in column], dtype=np.float64)


def _number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        return float("nan")


def _grouped(file: str, rows: pd.DataFrame, faults: list[Fault]) -> Manifest:
    """Group the rows by image: rows of one id must agree on everything but the box."""
    codes, _ = pd.factorize(rows["id"])
    leads = np.flatnonzero(~pd.Series(codes).duplicated().to_numpy())  # the first row of each image
    lead = leads[codes]
    bad = rows["bad"].to_numpy(copy=True)
    for name in PER_IMAGE:
        values = rows[name].to_numpy()
        for index in np.flatnonzero((values != values[lead]) & ~bad & ~bad[lead]):
            problem = (
                f"duplicate id {rows['id'][index]!r}: `{name}` is {values[index]!r} here and {values[lead[index]]!r} in "
                f"row {rows['row'][lead[index]]}: give each image an id of its own"
            )
            faults.append(Fault(file, int(rows["row"][index]), str(rows["id"][index]), "duplicate id", problem))
            bad[index] = True
    bad |= _conflicts(file, rows, bad, "label", "wnid", faults)
    bad |= _conflicts(file, rows, bad, "wnid", "label", faults)
    # With one box missing the mask would be wrong, so a bad row invalidates its whole image.
    bad |= rows["id"].isin({fault.image for fault in faults}).to_numpy()
    bad_images = np.zeros(len(leads), dtype=np.bool_)
    bad_images[codes[bad]] = True
    counts = np.bincount(codes, minlength=len(leads))
    for index in np.flatnonzero((counts > MAX_BOXES) & ~bad_images):
        row, problem = (
            int(rows["row"][leads[index]]),
            f"{counts[index]:,} boxes on one image, at most {MAX_BOXES:,} are allowed",
        )
        faults.append(Fault(file, row, str(rows["id"][leads[index]]), "bad box", problem))
        bad_images[index] = True
    kept = np.flatnonzero(~bad_images[codes])
    order = kept[np.argsort(codes[kept], kind="stable")]
    images = rows.iloc[leads[~bad_images]].drop(columns=["x0", "y0", "x1", "y1", "bad"]).reset_index(drop=True)
    images["file"] = pd.Series([file] * len(images), dtype="str")
    images["row"] = images["row"].astype("Int64")
    first = np.concatenate([[0], np.cumsum(counts[~bad_images])]).astype(np.int64)
    return Manifest(images, rows[["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.float64)[order], first)


def _conflicts(
    file: str, rows: pd.DataFrame, bad: NDArray[np.bool_], key: str, value: str, faults: list[Fault]
) -> NDArray[np.bool_]:
    """Rows whose `key` has another `value` than in its first row: labels and classes must correspond one to one."""
    values = {name: rows[name].to_numpy() for name in ("label", "wnid")}
    codes, wnids = pd.factorize(rows["wnid"])
    values["wnid"] = np.array([(wnid.split() or [""])[0] for wnid in wnids], dtype=object)[codes]
    good = np.flatnonzero(~bad)
    codes, _ = pd.factorize(values[key][good])
    expected = values[value].copy()
    expected[good] = values[value][good][np.flatnonzero(~pd.Series(codes).duplicated().to_numpy())][codes]
    conflicting: NDArray[np.bool_] = np.asarray(values[value] != expected, dtype=np.bool_) & ~bad
    for index in np.flatnonzero(conflicting):
        problem = f"`{key}` {values[key][index]} has the {value} {values[value][index]} here, but {expected[index]} before"
        faults.append(Fault(file, int(rows["row"][index]), str(rows["id"][index]), "unknown label", problem))
    return conflicting
