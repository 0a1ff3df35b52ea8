"""The connected components of {level > k} for all thresholds k of a map of 256 levels, with their boxes.

Every pixel belongs to the maximum that the steepest ascent leads to, so that components are unions of such basins. Two
basins touch from the level of their saddle down. Their graph has far fewer edges than that of the pixels, and a pass over
the levels, from the highest, joins the basins and widens the boxes. Every step is an operation on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locality.pooled_scores import LEVELS

Array = NDArray[Any]
FINE = 22  # bits below a level: 2**30 values, and 2**32 pixels fit into an int64 with them
INDEX = 2**32 - 1  # the lower bits of a packed number
COLUMNS = np.arange(4)


@dataclass(frozen=True, eq=False)
class ComponentTree:
    """Every component of {level > k} for `above` ≤ k < `level`; at other thresholds it is larger, smaller or none."""

    level: Array
    above: Array
    box: Array  # K×4: x0, y0, x1, y1, half-open
    size: Array  # pixels


def component_tree(fine: NDArray[np.int64]) -> ComponentTree:
    """The components, of eight neighbours, at thresholds of 0 and more, of an H×W map of levels times 2**FINE.

    The finer values do not change the components, but a smooth map has few maxima if its pixels of one level have an order.

    >>> tree = component_tree(np.array([[0, 3, 1, 2]]) << FINE)
    >>> sorted(zip(tree.level.tolist(), tree.above.tolist(), tree.box.tolist()))
    [(1, 0, [1, 0, 4, 1]), (2, 1, [3, 0, 4, 1]), (3, 1, [1, 0, 2, 1])]
    """
    basin, count = _basins(fine)
    levels = (fine >> FINE).astype(np.uint8)
    flat = levels.ravel()
    order = np.argsort(flat, kind="stable")[::-1]
    order = order[: int(np.count_nonzero(flat))]
    down, right = np.divmod(order, levels.shape[1])
    corners = np.stack((right, down, ~right, ~down), axis=1)  # so that the box of a union is the minimum; ~x is −(x + 1)
    home, one, other, saddle = basin[order], *_edges(basin.reshape(levels.shape), levels, count)
    first_pixel, first_edge = (_starts(values) for values in (flat[order], saddle))
    root = np.arange(count)  # of each basin's component
    boxes, sizes = np.full((count, 4), levels.size), np.zeros(count, np.int64)
    changed: list[tuple[int, Array, Array, Array]] = []  # level, roots, their boxes and sizes
    dead: list[tuple[int, Array]] = []
    for level in range(int(flat.max()), 0, -1):
        edges = slice(first_edge[level], first_edge[level - 1])
        gone = _join(root, one[edges], other[edges])
        pixels = slice(first_pixel[level], first_pixel[level - 1])
        grown = root[home[pixels]]
        _widen(boxes, grown, corners[pixels])
        np.add.at(sizes, grown, 1)
        if len(gone):
            into = root[gone]
            _widen(boxes, into, boxes[gone])
            np.add.at(sizes, into, sizes[gone])
            grown = np.concatenate((grown, into))
            dead.append((level, gone))
        changed.append((level, grown, boxes[grown], sizes[grown]))
    return _with_lives(changed, dead)


def _basins(fine: NDArray[np.int64]) -> tuple[Array, int]:
    """The number of each pixel's basin, and how many there are. Of equal values the later pixel counts as higher."""
    places = np.arange(fine.size)
    keys = np.full((fine.shape[0] + 2, fine.shape[1] + 2), -1)
    keys[1:-1, 1:-1] = (fine << 32) | places.reshape(fine.shape)
    highest = np.maximum(np.maximum(keys[:-2], keys[1:-1]), keys[2:])
    highest = np.maximum(np.maximum(highest[:, :-2], highest[:, 1:-1]), highest[:, 2:])
    towards = (highest & INDEX).ravel()
    top = towards == places
    while True:
        further = towards[towards]
        if np.array_equal(further, towards):
            return (top.cumsum() - 1)[towards], int(top.sum())
        towards = further


def _edges(basin: Array, levels: NDArray[np.uint8], count: int) -> tuple[Array, Array, Array]:
    """Pairs of basins that touch and the highest level at which they do, the highest pair first."""
    packed = []
    for here, there in (
        (np.s_[:, :-1], np.s_[:, 1:]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:-1, :-1], np.s_[1:, 1:]),
        (np.s_[:-1, 1:], np.s_[1:, :-1]),
    ):
        lower = np.minimum(levels[here], levels[there])
        apart = np.flatnonzero((basin[here] != basin[there]) & (lower > 0))
        pair = basin[here].ravel()[apart], basin[there].ravel()[apart]
        pairs = np.minimum(*pair) * count + np.maximum(*pair)
        packed.append((pairs << 8) | (LEVELS - 1 - lower.ravel()[apart]))
    keys = np.sort(np.concatenate(packed))
    pairs = keys >> 8
    highest = np.flatnonzero(np.diff(pairs, prepend=-1))
    saddle = (LEVELS - 1 - (keys[highest] & (LEVELS - 1))).astype(np.uint8)
    order = np.argsort(saddle, kind="stable")[::-1]
    one, other = np.divmod(pairs[highest][order], count)
    return one, other, saddle[order]


def _starts(descending: NDArray[np.uint8]) -> list[int]:
    """For each level where its entries begin among levels in descending order; those of level l end where l − 1 begins."""
    counts = np.bincount(descending, minlength=LEVELS)
    starts: list[int] = (len(descending) - counts.cumsum()).tolist()
    return starts


def _join(root: Array, one: Array, other: Array) -> Array:
    """Join the components of these pairs of basins in `root`; the former roots that are none any more."""
    gone: list[Array] = []
    one, other = root[one], root[other]
    while True:
        apart = one != other
        if not apart.any():
            break
        one, other = one[apart], other[apart]
        high = np.maximum(one, other)
        np.minimum.at(root, high, np.minimum(one, other))
        gone.append(high)
        one, other = _ends(root, one), _ends(root, other)
    if not gone:
        return root[:0]
    root[:] = _ends(root, root)
    once = np.sort(np.concatenate(gone))
    return np.concatenate((once[:1], once[1:][once[1:] != once[:-1]]))


def _ends(root: Array, places: Array) -> Array:
    """Where the roots of roots end."""
    while True:
        further = root[places]
        if (further == places).all():
            return places
        places = further


def _widen(boxes: Array, rows: Array, corners: Array) -> None:
    np.minimum.at(boxes.reshape(-1), (4 * rows[:, None] + COLUMNS).ravel(), corners.ravel())


def _with_lives(changed: list[tuple[int, Array, Array, Array]], dead: list[tuple[int, Array]]) -> ComponentTree:
    """A component as it was left at one level lives until the next level at which it changed or died."""
    if not changed:
        nothing = np.zeros(0, np.int64)
        return ComponentTree(nothing, nothing, nothing.reshape(0, 4), nothing)
    roots = np.concatenate([*(rows for _, rows, _, _ in changed), *(rows for _, rows in dead)])
    counts = [*(len(rows) for _, rows, _, _ in changed), *(len(rows) for _, rows in dead)]
    level = np.repeat([*(level for level, *_ in changed), *(level for level, _ in dead)], counts)
    order = np.sort(((roots * LEVELS + LEVELS - 1 - level) << 32) | np.arange(len(roots))) & INDEX
    above = np.zeros_like(level)
    same = roots[order[1:]] == roots[order[:-1]]
    above[order[:-1]] = level[order[1:]] * same
    alive = sum(len(rows) for _, rows, _, _ in changed)
    lives = np.flatnonzero(above[:alive] < level[:alive])
    box = np.concatenate([boxes for _, _, boxes, _ in changed])[lives]
    box[:, 2:] = -box[:, 2:]
    size = np.concatenate([sizes for *_, sizes in changed])[lives]
    return ComponentTree(level[lives], above[lives], box, size)
