"""A manifest lists images with their files, classes and boxes. `manifest_csv.py` reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from locality.data.boxes import Array
from locality.errors import Fault


@dataclass(frozen=True, eq=False)
class Entry:
    """One image as a source lists it."""

    id: str
    path: str
    label: int
    wnid: str  # further accepted classes follow, separated by spaces
    width: int
    height: int
    corners: Array  # K×4
    file: str = ""  # the annotation file that names it, and the line there
    row: int | None = None


@dataclass(frozen=True, eq=False)
class Manifest:
    """N images and their B boxes. `images` has one row per image; image i has corners[first[i] : first[i + 1]]."""

    images: pd.DataFrame  # id, path, sha256, label, wnid, width, height, source, licence, orientation, file, row
    corners: Array  # B×4: x0, y0, x1, y1 in the pixels of the original image, turned as `orientation` says
    first: NDArray[np.int64]  # N+1

    @staticmethod
    def of(entries: Sequence[Entry], source: str, licence: str | Sequence[str]) -> Manifest:
        """The manifest of a source's entries; the licence is one for all, or one for each."""
        text = {name: pd.Series([getattr(e, name) for e in entries], dtype="str") for name in ("id", "path", "wnid", "file")}
        whole = {
            name: np.array([getattr(e, name) for e in entries], dtype=np.int64) for name in ("label", "width", "height")
        }
        rows = pd.array([entry.row for entry in entries], dtype="Int64")
        images = pd.DataFrame({**text, **whole, "sha256": "", "source": source, "row": rows})
        images["licence"] = pd.Series([licence] * len(images) if isinstance(licence, str) else list(licence), dtype="str")
        images["orientation"] = pd.Series(["displayed"] * len(images), dtype="str")
        first = np.concatenate([[0], np.cumsum([len(entry.corners) for entry in entries])]).astype(np.int64)
        return Manifest(images, np.concatenate([np.empty((0, 4)), *(entry.corners for entry in entries)]), first)

    def __len__(self) -> int:
        return len(self.images)

    def boxes(self, index: int) -> Array:
        """K×4 corners of one image's boxes."""
        return self.corners[self.first[index] : self.first[index + 1]]

    def take(self, indices: NDArray[np.int64]) -> Manifest:
        """The manifest of some of the images, in the order of `indices`."""
        return Manifest(self.images.iloc[indices].reset_index(drop=True), *self.take_boxes(indices))

    def take_boxes(self, indices: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        """`corners` and `first` of some of the images, in the order of `indices`."""
        counts = self.first[indices + 1] - self.first[indices]
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # Row k of the new corners is as far from its image's first box as it was before.
        rows = np.arange(first[-1]) + np.repeat(self.first[indices] - first[:-1], counts)
        return self.corners[rows], first

    def classes(self) -> tuple[str, ...]:
        """WordNet ids by label; "" for a label without images. Of several accepted ids, the first one is used."""
        pairs = self.images[["label", "wnid"]].drop_duplicates("label")
        names = [""] * (int(pairs["label"].max()) + 1 if len(pairs) else 0)
        for label, wnid in zip(pairs["label"], pairs["wnid"], strict=True):
            names[label] = wnid.split()[0]
        return tuple(names)

    def fault(self, index: int, kind: str, problem: str) -> Fault:
        """A fault of one image, with its file and row."""
        image = self.images.iloc[index]
        row = None if pd.isna(image["row"]) else int(image["row"])
        return Fault(str(image["file"]), row, str(image["id"]), kind, problem)
