"""The connected components of {level > k} for all thresholds k of a map of 256 levels, with their boxes.

Every pixel belongs to the maximum that the steepest ascent leads to, so that components are unions of such basins. Two
basins touch from the level of their saddle down. Joining each basin with the one of its highest saddle, and each union of
basins again, says at which level a basin loses its name, and to which other one. Then every pixel, and every component that
lost its name, is an event of one component at one level; a component's box at a level is that of its events so far. Every
step is an operation on arrays.
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
SIGNS = np.array([1, 1, -1, -1])  # of the sides of a box


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
    death, into = _joined(*_edges(basin.reshape(levels.shape), levels, count), count)
    pixels = np.flatnonzero(levels)
    level = levels.ravel()[pixels].astype(np.int64)
    home = _alive(basin[pixels], level, death, into)
    down, right = np.divmod(pixels, levels.shape[1])
    gone = np.flatnonzero(death)
    # Events: the pixels, and the components that are gone, of whose boxes nothing is known yet.
    root, level = np.concatenate((home, into[gone])), np.concatenate((level, death[gone]))
    order = np.sort(((root * LEVELS + LEVELS - 1 - level) << 32) | np.arange(len(root))) & INDEX
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    root, level = root[order], level[order]
    first = np.flatnonzero(np.diff(root, prepend=-1))
    names = root[first]  # not of basins that lose theirs at the level of their maximum
    corners = np.full((4, len(root)), levels.size)  # so that the box of a union is the minimum; ~x is −(x + 1)
    corners[:, place[: len(pixels)]] = right, down, ~right, ~down
    sizes = np.zeros(len(root), np.int64)
    sizes[place[: len(pixels)]] = 1
    whole, total = np.full((4, count), levels.size), np.zeros(count, np.int64)
    if len(first):
        whole[:, names], total[names] = np.minimum.reduceat(corners, first, axis=1), np.add.reduceat(sizes, first)
    for some in _from_the_leaves(gone, into, count):
        for corner in whole:
            np.minimum.at(corner, into[some], corner[some])
        np.add.at(total, into[some], total[some])
    corners[:, place[len(pixels) :]], sizes[place[len(pixels) :]] = whole[:, gone], total[gone]
    # Minima from each component's first event on, since the numbers of the next one are smaller than all before.
    apart = root * (4 * levels.size)
    box = np.minimum.accumulate(corners - apart, axis=1) + apart
    size, before = sizes.cumsum(), np.zeros(count, np.int64)
    before[names] = size[first] - sizes[first]
    size -= before[root]
    below = np.append(level, 0)[1:]  # the level of the component's next event
    below[first - 1] = np.roll(death[names], 1)
    lives = np.flatnonzero(below < level)
    return ComponentTree(level[lives], below[lives], box[:, lives].T * SIGNS, size[lives])


def _basins(fine: NDArray[np.int64]) -> tuple[Array, int]:
    """The number of each pixel's basin, and how many there are. Of equal values the later pixel counts as higher."""
    places = np.arange(fine.size)
    keys = np.full((fine.shape[0] + 2, fine.shape[1] + 2), -1)
    keys[1:-1, 1:-1] = (fine << 32) | places.reshape(fine.shape)
    highest = np.maximum(np.maximum(keys[:-2], keys[1:-1]), keys[2:])
    highest = np.maximum(np.maximum(highest[:, :-2], highest[:, 1:-1]), highest[:, 2:])
    towards = (highest & INDEX).ravel()
    top = towards == places
    return (top.cumsum() - 1)[_ends(towards)], int(top.sum())


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


def _joined(one: Array, other: Array, saddle: Array, count: int) -> tuple[Array, Array]:
    """The level at which each basin's name is lost, 0 if never, and the name of its component from that level down.

    The pairs are sorted, the highest saddle first.
    """
    death, into = np.zeros(count, np.int64), np.arange(count)
    rank = np.arange(len(one))
    while len(one):
        best = np.full(count, len(saddle))
        np.minimum.at(best, one, rank)
        np.minimum.at(best, other, rank)
        joined = np.flatnonzero(best < len(saddle))
        towards = np.arange(count)
        chosen = np.searchsorted(rank, best[joined])
        towards[joined] = one[chosen] + other[chosen] - joined
        keeps = joined[(towards[towards[joined]] == joined) & (joined < towards[joined])]  # one of two that chose each other
        towards[keeps] = keeps
        lost = joined[towards[joined] != joined]
        death[lost], into[lost] = saddle[best[lost]], towards[lost]
        towards = _ends(towards)
        one, other = towards[one], towards[other]
        apart = np.flatnonzero(one != other)
        one, other, rank = one[apart], other[apart], rank[apart]
    lost = np.flatnonzero(death)
    into[lost] = _alive(into[lost], death[lost], death, into.copy())
    return death, into


def _alive(names: Array, level: Array, death: Array, into: Array) -> Array:
    """The names at these levels of the components with these names at higher ones."""
    names = names.copy()
    gone = np.flatnonzero(death[names] >= level)
    while len(gone):
        names[gone] = into[names[gone]]
        gone = gone[death[names[gone]] >= level[gone]]
    return names


def _ends(towards: Array) -> Array:
    """Where chains end."""
    while True:
        further = towards[towards]
        if np.array_equal(further, towards):
            return towards
        towards = further


def _from_the_leaves(gone: Array, into: Array, count: int) -> list[Array]:
    """The names that are lost, by the number of names that their component has afterwards, the most first."""
    depth, names = np.zeros(count, np.int64), gone
    ends = into[gone]
    rounds = 0
    while len(names):
        depth[names] += 1
        further = into[ends]
        names, ends = names[further != ends], further[further != ends]
        rounds += 1
    return [gone[depth[gone] == number] for number in range(rounds, 0, -1)]
