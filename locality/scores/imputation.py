"""Linear imputation (ROAD, Rong et al. 2022): removed pixels become the weighted mean of their eight neighbours.

A neighbour beside a pixel weighs 1/6, one at its corner 1/12; at the border of the image the weights of the others are
divided by their sum. Removed pixels depend on each other, so this is a sparse linear system Ax = b with a row per removed
pixel. A is symmetric and positive definite. Quantus and grad-cam factorise it. Here conjugate gradients solve it,
preconditioned by a multigrid cycle: blocks of 2×2 pixels, then 4×4, and so on, carry the error of large holes. In numpy,
because most arrays are small, and there an operation of torch costs more than its arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.errors import ArgumentError

TOLERANCE = 1e-3  # root mean square error in pixels: a tenth of ROAD's noise
MAX_ITERATIONS = 200  # reached by no mask that was tried
COARSEST = 4  # pixels on the shorter side
DAMPING = 0.8  # of Jacobi's iteration
OVERCORRECTION = 1.8  # blocks of one value see twice the true resistance of a smooth error
Array = NDArray[Any]  # of float32


def linear_imputation(images: Tensor, removed: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """N×C×H×W images whose `removed` pixels (N×1×H×W bool) are imputed; `nan` everywhere if no pixel is left.

    `tolerance` is an estimate of the root mean square error of the imputed pixels.

    >>> ramp = torch.linspace(0, 1, 5).expand(1, 1, 5, 5)
    >>> hole = torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    >>> hole[..., 2, 2] = True
    >>> torch.allclose(linear_imputation(ramp * ~hole, hole), ramp, atol=1e-3)
    True
    """
    if removed.dtype != torch.bool or removed.shape != (len(images), 1, *images.shape[2:]):
        expected = f"N×1×H×W bool like the images, {(len(images), 1, *images.shape[2:])}"
        raise ArgumentError("removed", expected, f"{removed.dtype} of shape {tuple(removed.shape)}")
    if not 0 < tolerance < math.inf:
        raise ArgumentError("tolerance", "a positive number of pixels", tolerance)
    pairs = zip(images.detach().float().cpu().numpy(), removed[:, 0].cpu().numpy(), strict=True)
    filled = [torch.from_numpy(_impute(image, holes, tolerance)) for image, holes in pairs]
    return torch.stack(filled).to(images)


def _impute(image: Array, holes: NDArray[np.bool_], tolerance: float) -> Array:
    count = int(holes.sum())
    if count == 0 or count == holes.size:
        return image.copy() if count == 0 else np.full_like(image, np.nan)
    channels, height, width = image.shape
    levels = max(0, int(math.log2(min(height, width) / COARSEST)))
    # Padded to whole blocks of the coarsest level, and by a ring of zeros: a flat array may be shifted in any direction.
    rows, columns = (-(-side >> levels) << levels for side in (height, width))
    inside = np.zeros((rows + 2, columns + 2), np.float32)
    inside[1 : height + 1, 1 : width + 1] = 1
    unknown = np.zeros_like(inside)
    unknown[1 : height + 1, 1 : width + 1] = holes
    values = np.zeros((channels, rows + 2, columns + 2), np.float32)
    known = np.where(holes, np.float32(0), image)
    start = known.sum((1, 2), keepdims=True) / (holes.size - count)  # the mean of the pixels left
    values[:, 1 : height + 1, 1 : width + 1] = np.where(holes, start, image)
    grids = _grids(inside, unknown, levels)
    solution = _conjugate_gradients(grids, values.reshape(channels, -1), count, tolerance)
    solved = solution.reshape(values.shape)[:, 1 : height + 1, 1 : width + 1]
    return np.where(holes, solved, image)  # of the image's dtype


@dataclass(frozen=True, eq=False)
class _Grid:
    """The system on one level: a diagonal, and weights to four of the eight neighbours, which symmetry gives the others.

    Arrays are flat with a ring of zeros; `unknown` is 1 where there is something to solve.
    """

    shape: tuple[int, int]  # with the ring
    unknown: Array
    diagonal: Array
    inverse: Array  # of the diagonal, 0 where nothing is unknown; times the damping
    edges: tuple[
        tuple[int, Array], ...
    ]  # offset in the flat array, weight; none on the finest level, where weights are known

    def times(self, error: Array) -> Array:
        """A·error, of C×M values that are 0 where nothing is unknown."""
        if not self.edges:
            product = _weighted_sum(error, self.shape[1])
            product *= np.float32(-1 / 12)
            product += (self.diagonal + np.float32(1 / 3)) * error  # the sum contains the pixel itself, four times
        else:
            product = self.diagonal * error
            for offset, weight in self.edges:
                product[:, :-offset] -= weight[:-offset] * error[:, offset:]
                product[:, offset:] -= weight[:-offset] * error[:, :-offset]
        product *= self.unknown
        return product


def _weighted_sum(values: Array, width: int) -> Array:
    """Of every pixel's 3×3 neighbourhood with weights 1 2 1 in both directions; flat with a ring, where it means nothing."""
    across = np.zeros_like(values)
    np.add(values[:, :-2], values[:, 2:], out=across[:, 1:-1])
    across += values
    across += values
    total = np.zeros_like(values)
    np.add(across[:, : -2 * width], across[:, 2 * width :], out=total[:, width:-width])
    total += across
    total += across
    return total


def _grids(inside: Array, unknown: Array, levels: int) -> list[_Grid]:
    """The system on every level, the finest first."""
    shape, width = (inside.shape[0], inside.shape[1]), inside.shape[1]
    flat, free = inside.reshape(1, -1), unknown.reshape(-1)
    diagonal = (_weighted_sum(flat, width)[0] - 4 * flat[0]) / np.float32(12)  # the sum of the weights that lie inside
    grids = [_Grid(shape, free, diagonal, _inverse(diagonal, free), ())]
    edges = []
    for offset, weight in ((1, 1 / 6), (width, 1 / 6), (width + 1, 1 / 12), (width - 1, 1 / 12)):
        both = np.zeros_like(free)
        both[:-offset] = free[:-offset] * free[offset:] * np.float32(weight)
        edges.append(both)
    diagonal = diagonal * free
    for _ in range(levels):
        shape, diagonal, edges, free = _coarser(shape, diagonal, edges, free)
        offsets = (1, shape[1], shape[1] + 1, shape[1] - 1)
        grids.append(_Grid(shape, free, diagonal, _inverse(diagonal, free), tuple(zip(offsets, edges, strict=True))))
    return grids


def _coarser(
    shape: tuple[int, int], diagonal: Array, edges: list[Array], free: Array
) -> tuple[tuple[int, int], Array, list[Array], Array]:
    """The system of blocks of 2×2 pixels that change together: entries of A are added (Galerkin)."""

    def corner(values: Array, row: int, column: int) -> Array:
        """One pixel of every block."""
        return values.reshape(shape)[1 + row : shape[0] - 1 : 2, 1 + column : shape[1] - 1 : 2]

    def block_sum(values: Array) -> Array:
        return corner(values, 0, 0) + corner(values, 0, 1) + corner(values, 1, 0) + corner(values, 1, 1)

    def ringed(values: Array) -> Array:
        return np.pad(values, 1).reshape(-1)

    right, below, below_right, below_left = edges
    within = corner(right, 0, 0) + corner(right, 1, 0) + corner(below, 0, 0) + corner(below, 0, 1)
    within += corner(below_right, 0, 0) + corner(below_left, 0, 1)
    to_right = corner(right, 0, 1) + corner(right, 1, 1) + corner(below_right, 0, 1)
    to_right[:, :-1] += corner(below_left, 0, 0)[:, 1:]  # from the block on the right back to this one
    to_below = corner(below, 1, 0) + corner(below, 1, 1) + corner(below_right, 1, 0) + corner(below_left, 1, 1)
    blocks = [to_right, to_below, corner(below_right, 1, 1), corner(below_left, 1, 0)]
    coarse = ((shape[0] - 2) // 2 + 2, (shape[1] - 2) // 2 + 2)
    unknown = (block_sum(free) > 0).astype(np.float32)
    return coarse, ringed(block_sum(diagonal) - 2 * within), [ringed(values) for values in blocks], ringed(unknown)


def _inverse(diagonal: Array, free: Array) -> Array:
    inverse: Array = np.float32(DAMPING) * free / np.where(free > 0, diagonal, np.float32(1)).astype(np.float32)
    return inverse


def _conjugate_gradients(grids: list[_Grid], values: Array, count: int, tolerance: float) -> Array:
    """The values with A·error = residual solved at the unknown pixels; every channel has its own step."""
    finest = grids[0]
    residual = _weighted_sum(values, finest.shape[1]) * np.float32(1 / 12)
    residual -= (finest.diagonal + np.float32(1 / 3)) * values
    residual *= finest.unknown
    direction, before = np.zeros_like(values), np.ones((len(values), 1), np.float32)
    for _ in range(MAX_ITERATIONS):
        error = _cycle(grids, 0, residual)  # about what is missing
        if float(_dot(error, error).max()) <= tolerance**2 * count:
            return values + error
        slope = _dot(residual, error)
        direction *= slope / before
        direction += error
        before = np.where(slope > 0, slope, 1).astype(np.float32)  # a channel that is solved stays as it is
        product = finest.times(direction)
        curvature = _dot(direction, product)
        step = slope / np.where(curvature > 0, curvature, 1).astype(np.float32)
        values = values + step * direction
        residual -= step * product
    return values


def _dot(one: Array, other: Array) -> Array:
    product: Array = np.einsum("cm,cm->c", one, other)[:, None]
    return product


def _cycle(grids: list[_Grid], level: int, residual: Array) -> Array:
    """About A⁻¹·residual: smooth, correct by the coarser levels, smooth again. Symmetric, as conjugate gradients need."""
    grid = grids[level]
    error: Array = grid.inverse * residual
    if level + 1 == len(grids):
        for _ in range(2 * COARSEST):
            error += grid.inverse * (residual - grid.times(error))
        return error
    rest = (residual - grid.times(error)).reshape(-1, *grid.shape)
    pairs = rest[:, 1:-1:2] + rest[:, 2:-1:2]
    blocks = np.zeros((len(rest), *grids[level + 1].shape), np.float32)
    np.add(pairs[:, :, 1:-1:2], pairs[:, :, 2:-1:2], out=blocks[:, 1:-1, 1:-1])
    correction = _cycle(grids, level + 1, blocks.reshape(len(rest), -1)).reshape(blocks.shape)[:, 1:-1, 1:-1]
    wide = np.float32(OVERCORRECTION) * np.repeat(correction, 2, axis=2)
    spread = np.zeros_like(rest)
    spread[:, 1:-1:2, 1:-1] = wide
    spread[:, 2:-1:2, 1:-1] = wide
    spread = spread.reshape(error.shape)
    spread *= grid.unknown
    error += spread
    error += grid.inverse * (residual - grid.times(error))
    return error
