"""A manifest: what images there are, where, of which class, with which boxes. On disk a CSV with one row a box.

`data_manifests/README.md` explains the columns. Reading streams the file in blocks and checks each block at once with
array operations, so that a hostile or broken file costs a list of faults and never a crash.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.data.boxes import Array, union_areas
from locality.types import DataError, Fault

COLUMNS = ("id", "path", "sha256", "label", "wnid", "x0", "y0", "x1", "y1", "width", "height", "source", "licence")
TEXT = ("id", "path", "sha256", "wnid", "source", "licence")
NUMBERS = ("label", "x0", "y0", "x1", "y1", "width", "height")
PER_IMAGE = ("path", "sha256", "wnid", "label", "width", "height")  # the same in all rows of an image
BLOCK = 16_384
MAX_LABEL = 1_000_000
MAX_SIDE = 1_000_000
Block = tuple[list[int], dict[str, tuple[str, ...]]]  # line numbers, and the fields of those lines by column


@dataclass(frozen=True, eq=False)
class Manifest:
    """N images and their B boxes. `images` has one row an image; image i owns corners[first[i] : first[i + 1]]."""

    file: str  # where it came from, for error messages
    images: pd.DataFrame  # id, path, sha256, label, wnid, width, height, source, licence, row
    corners: Array  # B×4: x0, y0, x1, y1 in the pixels of the original image
    first: NDArray[np.int64]  # N+1

    @staticmethod
    def of(
        *,
        file: str,
        ids: Sequence[str],
        labels: Sequence[int] | NDArray[np.int64],
        wnids: Sequence[str],
        widths: Sequence[int] | NDArray[np.int64],
        heights: Sequence[int] | NDArray[np.int64],
        corners: Array,
        source: str,
        licence: str,
        counts: Sequence[int] | None = None,
        paths: Sequence[str] | None = None,
        rows: Sequence[int | None] | None = None,
    ) -> Manifest:
        """A manifest from columns; `counts` says how many boxes each image has (one each by default)."""
        number = len(ids)
        images = pd.DataFrame(
            {
                "id": pd.Series(ids, dtype="str"),
                "path": pd.Series([""] * number if paths is None else paths, dtype="str"),
                "sha256": pd.Series([""] * number, dtype="str"),
                "label": np.asarray(labels, dtype=np.int64),
                "wnid": pd.Series(wnids, dtype="str"),
                "width": np.asarray(widths, dtype=np.int64),
                "height": np.asarray(heights, dtype=np.int64),
                "source": source,
                "licence": licence,
                "row": pd.array([None] * number if rows is None else rows, dtype="Int64"),
            }
        )
        first = np.concatenate([[0], np.cumsum(np.ones(number) if counts is None else counts)]).astype(np.int64)
        return Manifest(file, images, np.asarray(corners, dtype=np.float64).reshape(-1, 4), first)

    def __len__(self) -> int:
        return len(self.images)

    def boxes(self, index: int) -> Array:
        """K×4 corners of one image's boxes."""
        return self.corners[self.first[index] : self.first[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> Manifest:
        """The manifest of some of the images, in the order of `indices`."""
        counts = np.diff(self.first)[indices]
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Row k of the new corners lies as far from its image's first box as it did before.
        rows = np.arange(first[-1]) + np.repeat(self.first[:-1][indices] - first[:-1], counts)
        return Manifest(self.file, self.images.iloc[indices].reset_index(drop=True), self.corners[rows], first)

    def areas(self) -> Array:
        """N: area of the union of each image's boxes."""
        return union_areas(self.corners, self.first)

    def classes(self) -> tuple[str, ...]:
        """WordNet ids by label; "" for a label that no image has. The first id of several accepted ones counts."""
        pairs = self.images[["label", "wnid"]].drop_duplicates("label")
        names = [""] * (int(pairs["label"].max()) + 1 if len(pairs) else 0)
        for label, wnid in zip(pairs["label"], pairs["wnid"], strict=True):
            names[label] = wnid.split(" ")[0]
        return tuple(names)

    def fault(self, index: int, kind: str, problem: str) -> Fault:
        """A fault of one image, with its place."""
        image = self.images.iloc[index]
        return Fault(self.file, None if pd.isna(image["row"]) else int(image["row"]), str(image["id"]), kind, problem)


def read_manifest(path: str | Path) -> tuple[Manifest, list[Fault]]:
    """The good images of a manifest and the faults of the others; one bad row takes its whole image out."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"`{path}` is a folder, a manifest is a CSV file: pass the file inside it")
    if not path.is_file():
        raise DataError(f"`{path}` does not exist: build a manifest with `locality data build SOURCE --out {path}`")
    faults: list[Fault] = []
    blocks = [_checked_block(str(path), block, faults) for block in _blocks(path, faults)]
    rows = pd.concat(blocks, ignore_index=True) if blocks else _empty_rows()
    return _grouped(str(path), rows, faults), sorted(faults, key=lambda fault: fault.row or 0)


def write_manifest(path: str | Path, manifest: Manifest) -> None:
    """Write the CSV; the file appears whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    images = manifest.images
    columns = [images[name].tolist() for name in ("id", "path", "sha256", "label", "wnid")]
    sizes = [images[name].tolist() for name in ("width", "height", "source", "licence")]
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for index in range(len(images)):
            before, after = [column[index] for column in columns], [column[index] for column in sizes]
            for corners in manifest.boxes(index):
                writer.writerow([*before, *(np.format_float_positional(c, trim="-") for c in corners), *after])
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _blocks(path: Path, faults: list[Fault]) -> Iterator[Block]:
    """Line numbers and columns of the rows, some thousands at a time."""
    with path.open(newline="", encoding="utf-8-sig", errors="strict") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None)
            order = _column_order(path, header)
            numbers: list[int] = []
            rows: list[list[str]] = []
            for row in reader:
                if len(row) != len(order):
                    problem = f"a row has {len(order)} fields, got {len(row)}: is a comma missing or not quoted?"
                    faults.append(Fault(str(path), reader.line_num, row[0] if row else "", "bad row", problem))
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


def _columns(rows: list[list[str]], order: list[int]) -> dict[str, tuple[str, ...]]:
    columns = list(zip(*rows, strict=True))
    return {name: columns[place] for name, place in zip(COLUMNS, order, strict=True)}


def _column_order(path: Path, header: list[str] | None) -> list[int]:
    if header is None:
        raise DataError(f"{path}: the file is empty: its first line must be {','.join(COLUMNS)}")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise DataError(f"{path}, row 1: missing column {', '.join(missing)}: the first line must be {','.join(COLUMNS)}")
    extra = [name for name in header if name not in COLUMNS]
    if extra or len(header) != len(COLUMNS):
        names = ", ".join(repr(name) for name in extra) or "one of them twice"
        raise DataError(f"{path}, row 1: unexpected column {names}: a manifest has just {','.join(COLUMNS)}")
    return [header.index(name) for name in COLUMNS]


def _checked_block(file: str, block: Block, faults: list[Fault]) -> pd.DataFrame:
    """The rows as typed columns, with `bad` where something is wrong; what is wrong goes to `faults`."""
    numbers, columns = block
    table = {name: pd.Series(columns[name], dtype="str") for name in TEXT}
    values = {name: _numbers(columns[name]) for name in NUMBERS}
    x0, y0, x1, y1 = (values[name] for name in ("x0", "y0", "x1", "y1"))
    width, height, label = values["width"], values["height"], values["label"]
    path = table["path"].str
    unsafe = path.match(r"(?:.*[/\\])?\.\.(?:[/\\]|$)|[/\\]|[A-Za-z]:") | path.contains("\0", regex=False)
    corners_finite = np.isfinite(x0) & np.isfinite(y0) & np.isfinite(x1) & np.isfinite(y1)
    sized = (width >= 1) & (height >= 1) & (width <= MAX_SIDE) & (height <= MAX_SIDE) & (width % 1 == 0) & (height % 1 == 0)
    known = (label >= 0) & (label <= MAX_LABEL) & (label % 1 == 0)
    # Each check: which rows are bad, the kind, and a sentence; a row is reported under the first that fits.
    checks = [
        (table["id"].to_numpy() == "", "bad row", "`id` is empty: give every image a name"),
        (unsafe.to_numpy(dtype=bool), "unsafe path", "`path` {path!r} leaves the data's folder: use a path below it"),
        (~known, "unknown label", "`label` must be a whole number from 0, got {label!r}: write the class's index"),
        (table["wnid"].str.strip().to_numpy() == "", "unknown label", "`wnid` is empty: write the class's WordNet id"),
        (~sized, "bad size", "`width` and `height` must be whole numbers from 1, got {width!r} and {height!r}"),
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
            fields = {name: columns[name][index] for name in COLUMNS}
            faults.append(Fault(file, numbers[index], fields["id"], kind, sentence.format(**fields)))
        bad |= failed
    whole = {name: np.where(bad, 0, values[name]).astype(np.int64) for name in ("label", "width", "height")}
    corners = {name: values[name] for name in ("x0", "y0", "x1", "y1")}
    return pd.DataFrame({**table, **whole, **corners, "row": np.array(numbers), "bad": bad})


def _numbers(column: Sequence[str]) -> Array:
    """float64, `nan` where a field is not a number."""
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
    """Rows to images: box rows of one id belong together and must agree on everything but the box."""
    codes, _ = pd.factorize(rows["id"])
    leads = np.flatnonzero(~pd.Series(codes).duplicated().to_numpy())  # the first row of each image
    lead = leads[codes] if len(codes) else codes
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
    bad |= _label_conflicts(file, rows, bad, faults)
    bad_images = np.zeros(len(leads), dtype=np.bool_)
    bad_images[codes[bad]] = True
    kept = np.flatnonzero(~bad_images[codes]) if len(codes) else np.arange(0)
    order = kept[np.argsort(codes[kept], kind="stable")]
    images = rows.iloc[leads[~bad_images]].drop(columns=["x0", "y0", "x1", "y1", "bad"]).reset_index(drop=True)
    images["row"] = images["row"].astype("Int64")
    counts = np.bincount(codes[kept], minlength=len(leads))[~bad_images] if len(codes) else np.arange(0)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Manifest(file, images, rows[["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.float64)[order], first)


def _label_conflicts(file: str, rows: pd.DataFrame, bad: NDArray[np.bool_], faults: list[Fault]) -> NDArray[np.bool_]:
    """Rows whose label stands for another WordNet id than it did at its first use."""
    labels, wnids = rows["label"].to_numpy(), rows["wnid"].str.split(" ").str[0].to_numpy()
    good = np.flatnonzero(~bad)
    used, where = np.unique(labels[good], return_index=True)
    expected = wnids[good[where]][np.searchsorted(used, labels).clip(max=max(len(used) - 1, 0))] if len(used) else wnids
    conflict = (wnids != expected) & ~bad
    for index in np.flatnonzero(conflict):
        problem = f"`label` {labels[index]} is {wnids[index]} here and {expected[index]} before: one label, one class"
        faults.append(Fault(file, int(rows["row"][index]), str(rows["id"][index]), "unknown label", problem))
    found: NDArray[np.bool_] = np.asarray(conflict, dtype=np.bool_)
    return found


def _empty_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            **dict.fromkeys(TEXT, pd.Series([], dtype="str")),
            **dict.fromkeys(NUMBERS, pd.Series([], dtype="float64")),
            "row": pd.Series([], dtype="int64"),
            "bad": pd.Series([], dtype="bool"),
        }
    )
