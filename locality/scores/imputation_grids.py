"""The coarser grids of linear imputation, and a cycle over them that takes a residual to about its error.

A pixel of the next grid is a block of 2×2, and is unknown if all four are; the weights are the same on all grids. Let T be
the sum over a 3×3 neighbourhood with weights 1 2 1 in both directions, and D the same sum of ones inside the image, 16 but
at its border. Then 12·A = D − T, and Jacobi's iteration with damping 1 − 4/D is x ← T(x)/D: smoothing is a binomial filter.
A block's correction is given to its four pixels, and the smoothing that follows makes that a linear interpolation.

Arrays are flat with a ring of zeros, so that they may be shifted in any direction. In numpy, one plane at a time where they
are large: what is in the processor's cache is computed several times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

COARSEST = 64  # pixels: a dense inverse
DENSE = 256  # pixels, up to which there is one
VISITS = (1, 2, 2)  # of the coarser grid, from each of the finest grids; 1 from the others
SWEEPS = 2  # before and after the correction by the coarser grid
START_SWEEPS = 16  # on a coarsest grid without an inverse
STABLE = 1.001  # times the diagonal on the coarsest grid, where everything may be unknown
CACHED = 2**15  # values
Array = NDArray[Any]  # of float32


class Scratch(dict[tuple[int, ...], tuple[Array, Array]]):
    """Two arrays of a shape, made once, whose values mean nothing."""

    def __missing__(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        self[shape] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        return self[shape]


@dataclass(frozen=True, eq=False)
class Grid:
    """One grid of N masks: H×W pixels, even numbers if there is a coarser grid."""

    height: int
    width: int
    unknown: Array  # N×1×M of 0 and 1, M the pixels with the ring
    weights: Array  # N×1×M: 1/D where unknown, else 0
    diagonal: Array  # M: D
    inverse: Array | None  # N×HW×HW, of D − T on the coarsest grid
    scratch: Scratch = field(default_factory=lambda: Scratch())

    def rows(self, keep: NDArray[np.bool_]) -> Grid:
        inverse = None if self.inverse is None else self.inverse[keep]
        return replace(self, unknown=self.unknown[keep], weights=self.weights[keep], inverse=inverse)

    def ringed(self, count: int, channels: int) -> Array:
        return np.zeros((count, channels, (self.height + 2) * (self.width + 2)), np.float32)

    def square(self, values: Array) -> Array:
        """The same values in rows and columns, with the ring."""
        return values.reshape(*values.shape[:-1], self.height + 2, self.width + 2)

    def inside(self, values: Array) -> Array:
        return self.square(values)[..., 1:-1, 1:-1]

    def places(self, values: Array) -> Iterator[tuple[int, ...]]:
        """Indices of parts of N×C×M values that fit into the cache: a plane, the planes of an image, or all."""
        if values[0].size > CACHED:
            return iter(np.ndindex(values.shape[:2]))
        return iter(np.ndindex(values.shape[:1])) if values.size > CACHED else iter([()])

    def smoothed(self, values: Array, residual: Array | None, place: tuple[int, ...], out: Array) -> None:
        """(T(values) + residual)/D where unknown, else 0: one sweep. `out` has a ring of zeros, and may be `values`."""
        _filtered(values, self.width + 2, self.scratch, out)
        if residual is not None:
            out += residual
        out *= self._of(self.weights, place)

    def residual(self, values: Array, residual: Array | None, place: tuple[int, ...], out: Array) -> None:
        """residual − (D − T)(values) where unknown, else 0; known values count as neighbours. Not in place."""
        _filtered(values, self.width + 2, self.scratch, out)
        if residual is not None:
            out += residual
        part = self.scratch[values.shape][0]
        np.multiply(values, self.diagonal, out=part)
        out -= part
        out *= self._of(self.unknown, place)

    def _of(self, masks: Array, place: tuple[int, ...]) -> Array:
        """The masks of a place: of one plane M, of an image 1×M, of all N×1×M."""
        chosen: Array = masks[place[0], 0] if len(place) == 2 else masks[place]
        return chosen


def _filtered(values: Array, width: int, scratch: Scratch, out: Array) -> None:
    """T(values) into `out`; its ring and what lies beside it mean nothing."""
    one, two = scratch[values.shape]
    np.add(values[..., :-1], values[..., 1:], out=one[..., :-1])
    np.add(one[..., :-2], one[..., 1:-1], out=two[..., :-2])  # two[m]: around m + 1
    np.add(two[..., : -2 - width], two[..., width:-2], out=one[..., : -2 - width])
    np.add(one[..., : -2 - 2 * width], one[..., width : -2 - width], out=out[..., width + 1 : -1 - width])


def grids_of(holes: NDArray[np.bool_]) -> list[Grid]:
    """The grids of N×H×W masks, the finest first."""
    inside, grids = np.ones((1, *holes.shape[1:]), np.bool_), []
    while True:
        height, width = holes.shape[1:]
        last = height * width <= COARSEST or min(height, width) < 2
        if not last:
            even = ((0, 0), (0, height % 2), (0, width % 2))
            holes, inside = np.pad(holes, even), np.pad(inside, even)
        grids.append(_grid(holes, inside[0], dense=last and height * width <= DENSE))
        if last:
            return grids
        holes, inside = (
            values[:, ::2, ::2] & values[:, 1::2, ::2] & values[:, ::2, 1::2] & values[:, 1::2, 1::2]
            for values in (holes, inside)
        )


def _grid(holes: NDArray[np.bool_], inside: NDArray[np.bool_], dense: bool) -> Grid:
    count, height, width = holes.shape
    unknown = np.pad(holes, ((0, 0), (1, 1), (1, 1))).astype(np.float32).reshape(count, 1, -1)
    ones = np.pad(inside, 1).astype(np.float32).reshape(-1)
    diagonal = np.zeros_like(ones)
    _filtered(ones, width + 2, Scratch(), diagonal)
    diagonal = np.where(ones > 0, diagonal, np.float32(16))
    inverse = (
        _dense_inverse(holes.reshape(count, -1), diagonal.reshape(height + 2, width + 2)[1:-1, 1:-1]) if dense else None
    )
    return Grid(height, width, unknown, unknown / diagonal, diagonal, inverse)


def _dense_inverse(unknown: NDArray[np.bool_], diagonal: Array) -> Array:
    """N×HW×HW: (D − T)⁻¹ of the unknown pixels, 0 elsewhere."""
    (height, width), size = diagonal.shape, diagonal.size
    near = [np.maximum(2 - np.abs(np.subtract.outer(np.arange(side), np.arange(side))), 0) for side in (height, width)]
    matrix = STABLE * np.diag(diagonal.ravel()) - np.kron(*near)
    both = unknown[:, :, None] & unknown[:, None, :]
    inverse = np.linalg.inv(np.where(both, matrix, np.eye(size)).astype(np.float32))
    masked: Array = np.where(both, inverse, np.float32(0))
    return masked


def correction(grids: list[Grid], residual: Array) -> Array:
    """About (D − T)⁻¹·residual of N×C×M values; symmetric, as conjugate gradients need."""
    return _cycle(grids, 0, residual)


def _cycle(grids: list[Grid], level: int, residual: Array) -> Array:
    """Smooth, correct by the coarser grid, smooth again; on some grids twice."""
    grid, error = grids[level], np.zeros_like(residual)
    if level + 1 == len(grids):
        _solve(grid, residual, error)
        return error
    below = grids[level + 1]
    coarse = below.ringed(*residual.shape[:2])
    rest = np.empty(residual[next(grid.places(residual))].shape, np.float32)
    for visit in range(VISITS[level] if level < len(VISITS) else 1):
        for place in grid.places(residual):
            part = error[place]
            for sweep in range(SWEEPS):
                if visit == sweep == 0:
                    np.multiply(residual[place], grid._of(grid.weights, place), out=part)
                else:
                    grid.smoothed(part, residual[place], place, part)
            rest[...] = 0
            grid.residual(part, residual[place], place, rest)
            _restrict(grid, below, rest, coarse[place])
        blocks = _cycle(grids, level + 1, coarse)
        for place in grid.places(residual):
            part = error[place]
            _spread(grid, below, blocks[place], part)
            for _ in range(SWEEPS):
                grid.smoothed(part, residual[place], place, part)
    return error


def _solve(grid: Grid, residual: Array, error: Array) -> None:
    """On the coarsest grid."""
    if grid.inverse is None:
        for place in grid.places(error):
            for _ in range(START_SWEEPS):
                grid.smoothed(error[place], residual[place], place, error[place])
        return
    inside = grid.inside(residual)
    flat = np.ascontiguousarray(inside).reshape(*inside.shape[:2], -1)
    grid.inside(error)[...] = (flat @ grid.inverse).reshape(inside.shape)


def _restrict(grid: Grid, below: Grid, values: Array, blocks: Array) -> None:
    """The sums of blocks of four."""
    square = grid.square(values)
    pairs = square[..., 1:-1:2, 1:-1] + square[..., 2:-1:2, 1:-1]
    np.add(pairs[..., ::2], pairs[..., 1::2], out=below.inside(blocks)[..., : grid.height // 2, : grid.width // 2])


def _spread(grid: Grid, below: Grid, blocks: Array, values: Array) -> None:
    """Add each block's value to its four pixels."""
    wide = np.repeat(below.inside(blocks)[..., : grid.height // 2, : grid.width // 2], 2, axis=-1)
    square = grid.square(values)
    square[..., 1:-1:2, 1:-1] += wide
    square[..., 2:-1:2, 1:-1] += wide


def start(grids: list[Grid], images: Array, holes: NDArray[np.bool_]) -> Array:
    """N×C×M images with about the values that are missing: an imputation on each grid, of what the coarser one leaves."""
    count, channels, height, width = images.shape
    known = [grids[0].ringed(count, channels)]
    # Bits, because a removed pixel may be nan, and because a choice by scattered pixels takes 20 times as long.
    bits = images.view(np.int32) & (holes[:, None].astype(np.int32) - 1)
    grids[0].inside(known[0])[:, :, :height, :width] = bits.view(np.float32)
    there = [grids[0].ringed(count, 1)]  # 1 where at least one pixel of a block is known
    grids[0].inside(there[0])[:, 0, :height, :width] = ~holes
    for grid, below in pairwise(grids):
        sums, numbers = below.ringed(count, channels), below.ringed(count, 1)
        for place in grid.places(known[-1]):
            _restrict(grid, below, known[-1][place], sums[place])
        _restrict(grid, below, there[-1], numbers)
        known.append(sums / np.maximum(numbers, 1))
        there.append((numbers > 0).astype(np.float32))
    mean = known[-1].sum(2, keepdims=True) / np.maximum(there[-1].sum(2, keepdims=True), 1)
    last = grids[-1]
    values: Array = known[-1] + grids[-1].unknown * mean
    rest = np.zeros_like(values)
    error = np.zeros_like(values)
    for place in last.places(values):
        last.residual(values[place], None, place, rest[place])
    _solve(last, rest, error)
    values += error
    for level in range(len(grids) - 2, -1, -1):
        grid, coarse = grids[level], values
        values = grid.ringed(count, channels)
        for place in grid.places(values):
            part, given = values[place], known[level][place]
            _spread(grid, grids[level + 1], coarse[place], part)
            missing = 1 - grid._of(there[level], place)
            part *= missing
            part += given
            grid.smoothed(part, None, place, part)
            part += given
    return values
