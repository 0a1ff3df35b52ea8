"""The grids of linear imputation, and a cycle over them that takes most of the error out of a solution.

A pixel of the next grid is a block of 2×2, and is unknown if all pixels of the image in it are; the weights are the same on
all grids. Let T be the sum over a 3×3 neighbourhood with weights 1 2 1 in both directions, and D the same sum of ones
inside the image, 16 but at its border. Then 12·A = D − T. A solution x of a residual r, divided by D, satisfies
x = T(x)/D + r where unknown, and the error that x leaves satisfies the same with the residual T(x)/D + r − x. An image
satisfies it with r = its known pixels, where T(x)/D counts as 0.

The eigenvalues λ of (D − T)/D lie between 0 and 1, those of detail above 1/2. A step x ← T(x)/D + r leaves 1 − λ of an
error, and one of STRONG times its length 1 − 1.75λ; both together leave at most 0.09 of detail. A block's correction is
given to its pixels, and the smoothing that follows makes that a linear interpolation.

Arrays are flat with a ring of zeros, so that they may be shifted in any direction. In numpy, one plane at a time where they
are large: what is in the processor's cache is computed several times as fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

COARSEST = 64  # pixels: a dense inverse
VISITS = (1, 2)  # of the coarser grid, from each of the finest grids; 1 from the others
NESTED = 2  # the finest grid on which an imputation begins with a cycle
STRONG = np.float32(1.75)
CACHED = 2**16  # values
Array = NDArray[Any]  # of float32
Place = tuple[int | slice, ...]


class Scratch(dict[tuple[int, ...], tuple[Array, Array]]):
    """Two arrays of a shape, made once, whose values mean nothing."""

    def __missing__(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        self[shape] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        return self[shape]


@dataclass(frozen=True, eq=False)
class Grid:
    """One grid of N masks of H×W pixels."""

    height: int
    width: int
    weights: Array  # N×1×M: 1/D where unknown, else 0; M the pixels with the ring
    diagonal: Array  # M: D
    inverse: Array | None  # N×HW×HW, of D − T on the coarsest grid
    scratch: Scratch = field(default_factory=lambda: Scratch())

    def rows(self, keep: NDArray[np.bool_]) -> Grid:
        inverse = None if self.inverse is None else self.inverse[keep]
        return replace(self, weights=self.weights[keep], inverse=inverse)

    def ringed(self, count: int, channels: int) -> Array:
        return np.zeros((count, channels, (self.height + 2) * (self.width + 2)), np.float32)

    def square(self, values: Array) -> Array:
        """The same values in rows and columns, with the ring."""
        return values.reshape(*values.shape[:-1], self.height + 2, self.width + 2)

    def inside(self, values: Array) -> Array:
        return self.square(values)[..., 1:-1, 1:-1]

    def places(self, values: Array) -> list[Place]:
        """Indices of parts of N×C×M values that fit into the cache: single planes, or the planes of some images."""
        size = values[0].size
        if size > CACHED:
            return list(np.ndindex(values.shape[:2]))
        step = CACHED // size
        return [(slice(first, first + step),) for first in range(0, len(values), step)]

    def of(self, masks: Array, place: Place) -> Array:
        """The masks of a place: of one plane M, of images N×1×M."""
        chosen: Array = masks[place[0], 0] if len(place) == 2 else masks[place]
        return chosen

    def filtered(self, values: Array, place: Place, out: Array) -> Array:
        """T(values)/D where unknown, else 0, into `out`, which may be `values`."""
        _filter(values, self.width + 2, self.scratch[values.shape][0], out)
        out *= self.of(self.weights, place)
        return out

    def smooth(self, values: Array, residual: Array, place: Place) -> None:
        """Two steps on the solution of a residual. The second keeps what is known to the bit."""
        step = self.filtered(values, place, self.scratch[values.shape][1])
        step += residual
        step *= STRONG
        values *= 1 - STRONG
        values += step
        self.filtered(values, place, values)
        values += residual

    def solved(self, residual: Array) -> Array:
        """On the coarsest grid."""
        values = np.zeros_like(residual)
        inside = self.inside(residual * self.diagonal)
        flat = np.ascontiguousarray(inside).reshape(*inside.shape[:2], -1)
        self.inside(values)[...] = (flat @ self.inverse).reshape(inside.shape)
        return values


def _filter(values: Array, width: int, sums: Array, out: Array) -> None:
    """T(values); what is in the ring of `out` means nothing."""
    np.add(values[..., :-1], values[..., 1:], out=sums[..., :-1])
    np.add(sums[..., :-2], sums[..., 1:-1], out=out[..., 1:-1])
    np.add(out[..., :-width], out[..., width:], out=sums[..., :-width])
    np.add(sums[..., : -2 * width], sums[..., width:-width], out=out[..., width:-width])


def grids_of(holes: NDArray[np.bool_]) -> list[Grid]:
    """The grids of N×H×W masks, the finest first."""
    grids = []
    while True:
        height, width = holes.shape[1:]
        ones = np.pad(np.ones((height, width), np.float32), 1)
        diagonal = np.zeros(ones.size, np.float32)
        _filter(ones.ravel(), width + 2, np.zeros_like(diagonal), diagonal)
        diagonal = np.where(ones > 0, diagonal.reshape(ones.shape), np.float32(16))
        weights = np.zeros((len(holes), 1, *ones.shape), np.float32)
        np.divide(holes, diagonal[1:-1, 1:-1], out=weights[:, 0, 1:-1, 1:-1])
        last = height * width <= COARSEST
        inverse = _dense_inverse(holes.reshape(len(holes), -1), diagonal[1:-1, 1:-1]) if last else None
        grids.append(Grid(height, width, weights.reshape(len(holes), 1, -1), diagonal.ravel(), inverse))
        if last:
            return grids
        even = np.pad(holes, ((0, 0), (0, height % 2), (0, width % 2)), constant_values=True)
        rows = even[:, ::2] & even[:, 1::2]
        holes = rows.view(np.uint16) == 0x0101  # two bytes of True


def _dense_inverse(unknown: NDArray[np.bool_], diagonal: Array) -> Array:
    """N×HW×HW: (D − T)⁻¹ of the unknown pixels, 0 elsewhere. There is always a known one, so that the inverse exists."""
    (height, width), size = diagonal.shape, diagonal.size
    near = [np.maximum(2 - np.abs(np.subtract.outer(np.arange(side), np.arange(side))), 0) for side in (height, width)]
    matrix = np.diag(diagonal.ravel()) - np.kron(*near)
    both = unknown[:, :, None] & unknown[:, None, :]
    inverse = np.linalg.inv(np.where(both, matrix, np.eye(size)).astype(np.float32))
    masked: Array = np.where(both, inverse, np.float32(0))
    return masked


def correction(grids: list[Grid], level: int, residual: Array) -> Array:
    """About the solution of N×C×M residuals."""
    grid, values = grids[level], np.empty_like(residual)
    if grid.inverse is not None:
        return grid.solved(residual)
    for place in grid.places(values):
        part = np.multiply(residual[place], STRONG, out=values[place])
        grid.filtered(part, place, part)
        part += residual[place]
    for _ in range(VISITS[level] if level < len(VISITS) else 1):
        blocks = coarse_correction(grids, level, residual, values)
        for place in grid.places(values):
            add_blocks(grids, level, blocks[place], values[place], residual[place], place)
    return values


def coarse_correction(grids: list[Grid], level: int, residual: Array, values: Array) -> Array:
    """What the next grid finds in what a smoothed solution leaves of its residual."""
    grid, below = grids[level], grids[level + 1]
    blocks = below.ringed(*residual.shape[:2])
    for place in grid.places(residual):
        part = values[place]
        rest = grid.filtered(part, place, grid.scratch[part.shape][1])
        rest += residual[place]
        rest -= part
        rest *= grid.diagonal
        _restrict(grid, below, rest, blocks[place])
    blocks *= below.weights
    return correction(grids, level + 1, blocks)


def add_blocks(grids: list[Grid], level: int, blocks: Array, values: Array, residual: Array, place: Place) -> None:
    """Add what the next grid found to the solution of a place, and smooth."""
    grid = grids[level]
    _spread(grid, grids[level + 1], blocks, values)
    grid.smooth(values, residual, place)


def _restrict(grid: Grid, below: Grid, values: Array, blocks: Array) -> None:
    """The sums of blocks of four; the ring takes part where the number of rows or columns is odd."""
    square = grid.square(values)
    high, wide = 2 * below.height, 2 * below.width
    pairs = grid.scratch[*values.shape[:-1], below.height, wide][0]
    np.add(square[..., 1 : 1 + high : 2, 1 : 1 + wide], square[..., 2 : 2 + high : 2, 1 : 1 + wide], out=pairs)
    np.add(pairs[..., ::2], pairs[..., 1::2], out=below.inside(blocks))


def _spread(grid: Grid, below: Grid, blocks: Array, values: Array) -> None:
    """Add each block's value to its pixels."""
    rows = grid.scratch[*values.shape[:-1], below.height, 2 * below.width + 2][0]
    rows[..., 1:-1:2] = rows[..., 2:-1:2] = below.inside(blocks)
    if grid.width % 2:
        rows[..., -2] = 0
    inside = grid.square(values)[..., 1:-1, :]
    inside += np.repeat(rows, 2, axis=-2)[..., : grid.height, : grid.width + 2]


def start(grids: list[Grid], images: Array, holes: NDArray[np.bool_]) -> tuple[Array, Array]:
    """N×C×H×W images without what is missing, and with about what is missing: each grid begins with the coarser one's."""
    known = _known(grids, images, holes)
    values = known[-1] + grids[-1].solved(grids[-1].filtered(known[-1], (), np.zeros_like(known[-1])))
    for level in range(len(grids) - 2, -1, -1):
        grid, given, coarse = grids[level], known[level], values
        values = np.zeros_like(given)
        for place in grid.places(given):
            part = values[place]
            _spread(grid, grids[level + 1], coarse[place], part)
            part *= grid.of(grid.weights, place)
            part *= grid.diagonal
            part += given[place]
            grid.smooth(part, given[place], place)
        if level >= NESTED:
            blocks = coarse_correction(grids, level, given, values)
            for place in grid.places(values):
                add_blocks(grids, level, blocks[place], values[place], given[place], place)
    return known[0], values


def _known(grids: list[Grid], images: Array, holes: NDArray[np.bool_]) -> list[Array]:
    """The known pixels on each grid, 0 where unknown: a block is the mean of those in it."""
    count, channels = images.shape[:2]
    values, there = grids[0].ringed(count, channels), grids[0].ringed(count, 1)
    # Bits, because a removed pixel may be nan, and because a choice by scattered pixels takes 20 times as long.
    for image, hole, bits in zip(images.view(np.int32), holes, grids[0].inside(values).view(np.int32), strict=True):
        np.bitwise_and(image, hole.astype(np.int32) - 1, out=bits)
    grids[0].inside(there)[:, 0] = ~holes
    known = [values]
    for grid, below in pairwise(grids):
        sums, numbers = below.ringed(count, channels), below.ringed(count, 1)
        for place in grid.places(values):
            _restrict(grid, below, values[place], sums[place])
        _restrict(grid, below, there, numbers)
        values, there = sums / np.maximum(numbers, 1), (numbers > 0).astype(np.float32)
        known.append(values)
    return known
