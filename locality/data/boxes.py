"""Boxes as rows of a K×4 array (x0, y0, x1, y1): masks, areas, and the effect of resize and crop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.types import Box

Array = NDArray[np.float64]
MAX_BOXES = 1_000  # per image; people do not annotate more, and the exact union would need much memory


def box_array(boxes: Sequence[Box]) -> Array:
    """K×4 corners of K boxes."""
    return np.array([(box.x0, box.y0, box.x1, box.y1) for box in boxes], dtype=np.float64).reshape(-1, 4)


def boxes_of(corners: Array) -> tuple[Box, ...]:
    """The boxes behind K×4 corners."""
    return tuple(Box(*map(float, row)) for row in corners)


def box_mask(boxes: Sequence[Box], height: int, width: int) -> Tensor:
    """1×H×W: True where a pixel's centre lies in any of the boxes.

    >>> box_mask([Box(1, 0, 3, 1)], height=2, width=4).int().tolist()
    [[[0, 1, 1, 0], [0, 0, 0, 0]]]
    """
    mask = np.zeros((height, width), dtype=np.bool_)
    for x0, y0, x1, y1 in pixel_corners(clip(box_array(boxes), width, height)):
        mask[y0:y1, x0:x1] = True
    return torch.from_numpy(mask)[None]


def pixel_corners(corners: Array) -> NDArray[np.int64]:
    """K×4 integers: the pixels whose centres lie in each box; equal corners if there are none."""
    # The centre of pixel j is j + 0.5, so [x0, x1) holds the pixels from ceil(x0 − 0.5) to before ceil(x1 − 0.5).
    return np.ceil(corners - 0.5).astype(np.int64)


def union_area(corners: Array) -> float:
    """Exact area of the union of K boxes.

    >>> union_area(np.array([[0, 0, 2, 2], [1, 1, 3, 3]], dtype=float))
    7.0
    """
    if len(corners) == 0:
        return 0.0
    if len(corners) == 1:
        x0, y0, x1, y1 = corners[0]
        return float((x1 - x0) * (y1 - y0))
    columns = np.unique(corners[:, [0, 2]])
    rows = np.unique(corners[:, [1, 3]])
    # Between neighbouring corners nothing changes, so each cell of this grid is covered completely or not at all.
    covered = np.zeros((len(rows) - 1, len(columns) - 1), dtype=np.bool_)
    for x0, y0, x1, y1 in corners:
        covered[
            np.searchsorted(rows, y0) : np.searchsorted(rows, y1),
            np.searchsorted(columns, x0) : np.searchsorted(columns, x1),
        ] = True
    return float(np.diff(rows) @ covered @ np.diff(columns))


def union_areas(corners: Array, first: NDArray[np.int64]) -> Array:
    """Union area of each image's boxes; image i has the rows first[i] to before first[i + 1]."""
    counts = np.diff(first)
    areas = np.zeros(len(counts))
    single = counts == 1
    alone = corners[first[:-1][single]]
    areas[single] = (alone[:, 2] - alone[:, 0]) * (alone[:, 3] - alone[:, 1])
    for index in np.flatnonzero(counts > 1):
        areas[index] = union_area(corners[first[index] : first[index + 1]])
    return areas


def box_share(boxes: Sequence[Box], height: int, width: int) -> float:
    """Share of the image's area that the union of the boxes covers; parts outside the image do not count."""
    return union_area(clip(box_array(boxes), width, height)) / (height * width)


def clip(corners: Array, width: float | Array, height: float | Array) -> Array:
    """Boxes clipped to the image; one outside it becomes empty (x0 = x1 or y0 = y1)."""
    x0, y0, x1, y1 = corners.T
    return np.stack([x0.clip(0, width), y0.clip(0, height), x1.clip(0, width), y1.clip(0, height)], axis=1)


@dataclass(frozen=True)
class View:
    """The view of an image after resize and crop: x ↦ x·scale_x − left, y ↦ y·scale_y − top, clipped to width × height.

    The fields are numbers, or arrays with one entry per box, so that one call maps a whole manifest.
    """

    scale_x: float | Array
    scale_y: float | Array
    left: float | Array
    top: float | Array
    width: float | Array
    height: float | Array

    def corners(self, corners: Array) -> Array:
        """K×4 boxes in the view; those cropped away are empty."""
        x0, y0, x1, y1 = corners.T
        moved = np.stack(
            [
                x0 * self.scale_x - self.left,
                y0 * self.scale_y - self.top,
                x1 * self.scale_x - self.left,
                y1 * self.scale_y - self.top,
            ],
            axis=1,
        )
        return clip(moved, self.width, self.height)


def cut_boxes(corners: Array, width: int, height: int, overhang: float = 0.0) -> tuple[Array, str]:
    """The boxes clipped to the image, and the first fault ("" if there is none).

    Annotators' boxes may cross an edge by up to `overhang` pixels; more is a fault.
    """
    if len(corners) > MAX_BOXES:
        return corners, f"{len(corners):,} boxes on one image, at most {MAX_BOXES:,} are allowed"
    cut = clip(corners, width, height)
    for before, after in zip(corners.tolist(), cut.tolist(), strict=True):
        x0, y0, x1, y1 = before
        shown = f"box ({x0:g}, {y0:g}, {x1:g}, {y1:g})"
        if not np.isfinite(before).all():
            return cut, f"{shown} has a corner that is not a number"
        if x1 < x0 or y1 < y0:
            return cut, f"{shown} has swapped corners: x0 < x1 and y0 < y1 are needed"
        if x1 == x0 or y1 == y0:
            return cut, f"{shown} is empty: boxes are half-open"
        if (
            max(abs(a - b) for a, b in zip(before, after, strict=True)) > overhang
            or after[0] == after[2]
            or after[1] == after[3]
        ):
            return cut, f"{shown} leaves the image of {width} × {height}"
    return cut, ""


def nonempty(corners: Array | NDArray[np.int64]) -> NDArray[np.bool_]:
    """K: True where a box has an area."""
    wide: NDArray[np.bool_] = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    return wide
