"""Linear imputation (ROAD, Rong et al. 2022): removed pixels become the weighted mean of their eight neighbours.

A neighbour beside a pixel weighs 1/6, one at its corner 1/12; at the border of the image the weights of the others are
divided by their sum. Removed pixels depend on each other, so this is a sparse linear system Ax = b with a row per removed
pixel. Quantus and grad-cam factorise it. Here cycles over coarser grids (`imputation_grids.py`), which carry the error of
large holes, solve it. They start from what the same grids give if each solves its own imputation, the coarsest first; two
cycles are then enough for most masks. All masks of a call are solved together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.errors import ArgumentError
from locality.scores.imputation_grids import Grid, add_blocks, coarse_correction, grids_of, start

TOLERANCE = 1e-3  # root mean square error in pixels: a tenth of ROAD's noise
MAX_CYCLES = 100  # of 25 hard masks of 224×224 none needed more than 4 by default; a very small tolerance may need all
FASTEST, SLOWEST = 1 / 3, 0.99  # an error shrinks to this by a cycle, in estimates
TOGETHER = 2**22  # values of the images that are solved together
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
    values, holes = images.detach().float().cpu().numpy(), removed[:, 0].cpu().numpy()
    counts = holes.sum((1, 2))
    some = np.flatnonzero((counts > 0) & (counts < holes[0].size))
    exact = images.dtype == torch.float32  # then what is known comes back as it was
    size = max(1, TOGETHER // values[0].size)
    if exact and len(some) == len(values) <= size:
        return torch.from_numpy(_imputed(values, holes, tolerance)).to(images.device)
    filled = images.detach().clone()
    filled[torch.from_numpy(counts == holes[0].size).to(images.device)] = torch.nan
    for first in range(0, len(some), size):
        rows = some[first : first + size]
        solved = torch.from_numpy(_imputed(values[rows], holes[rows], tolerance)).to(images)
        places = torch.from_numpy(rows).to(images.device)
        filled[places] = solved if exact else torch.where(removed[places], solved, images[places])
    return filled


def _imputed(images: Array, holes: NDArray[np.bool_], tolerance: float) -> Array:
    """N×C×H×W: the images with their holes imputed."""
    grids, count, rows = grids_of(holes), holes.sum((1, 2)), np.arange(len(images))
    known, values = start(grids, images, holes)
    solution, damping = np.empty_like(images), np.ones(len(images), np.float32)
    last = np.full(len(images), np.inf)
    for cycle in range(MAX_CYCLES):
        change = _improve(grids, known, values, damping)
        # What is left is the sum of all further changes, if they go on to shrink as from the last one to this one.
        rate = np.sqrt(change / last).clip(FASTEST, SLOWEST)
        left = np.sqrt(change / count) * rate / (1 - rate)
        done = ~(left > tolerance) | (cycle + 1 == MAX_CYCLES)
        if done.all() and len(rows) == len(images):
            return np.ascontiguousarray(grids[0].inside(values))
        if done.any():
            solution[rows[done]] = grids[0].inside(values[done])
            keep = ~done
            if not keep.any():
                return solution
            known, values, grids = known[keep], values[keep], [grid.rows(keep) for grid in grids]
            count, rows, damping, change, rate = count[keep], rows[keep], damping[keep], change[keep], rate[keep]
        damping = np.where(rate < SLOWEST, damping, damping / 2)  # without coarser grids it always converges
        last = change
    return solution


def _improve(grids: list[Grid], known: Array, values: Array, damping: Array) -> Array:
    """Correct a solution by the coarser grids; N: the squared length of the change, in the channel where it is largest."""
    if len(grids) == 1:
        return np.zeros(len(values))  # solved at once
    blocks = coarse_correction(grids, 0, known, values)
    blocks *= damping[:, None, None]
    length = np.zeros(values.shape[:2])
    for place in grids[0].places(values):
        part = values[place]
        change = part.copy()
        add_blocks(grids, 0, blocks[place], part, known[place], place)
        change -= part
        length[place] = (change[..., None, :] @ change[..., :, None])[..., 0, 0]
    largest: Array = length.max(1)
    return largest
