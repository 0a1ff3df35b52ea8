"""Linear imputation (ROAD, Rong et al. 2022): removed pixels become the weighted mean of their eight neighbours.

A neighbour beside a pixel weighs 1/6, one at its corner 1/12; at the border of the image the weights of the others are
divided by their sum. Removed pixels depend on each other, so this is a sparse linear system Ax = b with a row per removed
pixel. A is symmetric and positive definite. Quantus and grad-cam factorise it. Here conjugate gradients solve it,
preconditioned by a cycle over coarser grids (`imputation_grids.py`), which carry the error of large holes. They start from
what the same grids give if each solves its own imputation, the coarsest first. All masks of a call are solved together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.errors import ArgumentError
from locality.scores.imputation_grids import correction, grids_of, start

TOLERANCE = 1e-3  # root mean square error in pixels: a tenth of ROAD's noise
MAX_ITERATIONS = 200  # reached by no mask that was tried
CYCLE_LEAVES = 0.35  # of an error at least, in estimates
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
    count, channels = holes.sum((1, 2)), images.shape[1]
    grids = grids_of(holes)
    finest, (height, width) = grids[0], holes.shape[1:]
    values = start(grids, images, holes)
    solution = np.empty_like(images)
    rows = np.arange(len(images))
    residual = np.zeros_like(values)
    for place in finest.places(values):
        # What is known stays as it is.
        finest.residual(values[place], None, place, residual[place])
    direction, before, last = np.zeros_like(values), np.ones((len(rows), channels), np.float32), None
    for _ in range(MAX_ITERATIONS):
        error = correction(grids, residual)  # about what is missing
        slope, length = np.empty_like(before), np.empty_like(before)
        for place in np.ndindex(before.shape):
            slope[place], length[place] = _dot(residual[place], error[place]), _dot(error[place], error[place])
        largest = length.max(1)
        # What is left after this correction, if corrections go on to shrink as from the last one to this one.
        rate = np.clip(largest / last, CYCLE_LEAVES**2, 1) if last is not None else np.ones_like(largest)
        done = largest * rate <= tolerance**2 * count
        if done.all() and len(rows) == len(images):
            values += error
            return np.ascontiguousarray(finest.inside(values)[..., :height, :width])
        if done.any():
            solution[rows[done]] = finest.inside(values[done] + error[done])[..., :height, :width]
            keep = ~done
            rows, count, largest, slope, before = rows[keep], count[keep], largest[keep], slope[keep], before[keep]
            if not len(rows):
                return solution
            values, residual, direction, error = values[keep], residual[keep], direction[keep], error[keep]
            grids = [grid.rows(keep) for grid in grids]
            finest = grids[0]
        ratio = slope / before
        for place in np.ndindex(before.shape):
            ahead = direction[place]
            ahead *= ratio[place]
            ahead += error[place]
            finest.residual(ahead, None, place, product := error[place])  # −A·direction; the error is not needed any more
            curvature = -_dot(ahead, product)
            step = slope[place] / (curvature if curvature > 0 else np.float32(1))
            product *= step
            residual[place] += product
            np.multiply(ahead, step, out=product)
            values[place] += product
        before = np.where(slope > 0, slope, np.float32(1))  # a channel that is solved stays as it is
        last = largest
    solution[rows] = finest.inside(values)[..., :height, :width]
    return solution


def _dot(one: Array, other: Array) -> Any:
    return np.einsum("m,m->", one, other)
