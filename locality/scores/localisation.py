"""Weakly supervised localisation (Choe et al. 2020): boxes and pixels found by a threshold that a whole data set shares.

MaxBoxAccV2: the share of images with a box of IoU ≥ δ at the best threshold for the data set, as a mean over δ = 0.3, 0.5
and 0.7. Boxes are drawn around the connected components (of eight neighbours) of {map > threshold}; the best match with one
of the person's boxes counts. PxAP: the area under the precision-recall curve of the pixels of all images.

One number belongs to the data set, so what is stored per image is what both are made of: the best IoU at each threshold, and
histograms of the map inside and outside the region. `pooled_scores.py` makes the numbers. Every map, summed over its
channels, is scaled to [0, 1] and cut into 256 levels, as in the authors' code. Their boxes end one pixel late on the right
and below, and holes have boxes too; here they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from locality.errors import ArgumentError, unknown_choice
from locality.pooled_scores import LEVELS
from locality.scores.component_tree import FINE, ComponentTree, component_tree
from locality.scores.map_features import check_maps
from locality.types import Box

Components = Literal["all", "largest"]
Array = NDArray[Any]


def map_levels(maps: Tensor) -> NDArray[np.uint8]:
    """N×H×W: ⌊255·(A − min A)/(max A − min A)⌋ of each map, its channels summed first; 0 for constant maps.

    >>> import torch
    >>> map_levels(torch.tensor([[[[-1.0, 0.0, 1.0]]]])).tolist()
    [[[0, 127, 255]]]
    """
    return (_fine_levels(maps) >> FINE).astype(np.uint8)


def _fine_levels(maps: Tensor) -> NDArray[np.int64]:
    """N×H×W: `map_levels` with FINE more bits, which order the pixels of one level."""
    summed = maps.detach().cpu().double().sum(1).numpy()
    low, high = (extreme(summed, axis=(1, 2), keepdims=True) for extreme in (np.min, np.max))
    with np.errstate(invalid="ignore"):
        scaled = (summed - low) / np.where(high > low, high - low, 1)
        scaled = np.nan_to_num((LEVELS - 1) * scaled, nan=0, posinf=0, neginf=0).clip(0, LEVELS - 1)
    return np.asarray(2**FINE * scaled, dtype=np.int64)


def box_overlaps(maps: Tensor, boxes: Sequence[Sequence[Box]], components: Components = "all") -> NDArray[np.float32]:
    """N×255: the best IoU of a box around a component of {level > k} with one of the image's boxes, for k = 0 … 254.

    `components="largest"` takes the component of most pixels alone (MaxBoxAcc, the authors' first definition). `nan` for
    images without a box, maps that are not finite and constant maps, which have no threshold.

    >>> import torch
    >>> box_overlaps(torch.tensor([[[[0.0, 2.0, 2.0, 1.0, 1.0]]]]), [[Box(1, 0, 3, 1)]])[0, [0, 200]].tolist()
    [0.5, 1.0]
    """
    if components not in get_args(Components):
        raise unknown_choice("components", components, get_args(Components))
    if len(boxes) != len(maps):
        raise ArgumentError("boxes", f"a list of boxes for each of the {len(maps)} maps", len(boxes))
    overlaps = np.full((len(maps), LEVELS - 1), np.nan, np.float32)
    finite = maps.detach().flatten(1).isfinite().all(1).tolist()
    for row, levels in enumerate(_fine_levels(maps)):
        if finite[row] and levels.any() and boxes[row]:
            corners = np.array([(box.x0, box.y0, box.x1, box.y1) for box in boxes[row]])
            overlaps[row] = _overlaps(levels, corners, components)
    return overlaps


def level_histograms(maps: Tensor, masks: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """N×256 and N×256: how many pixels inside and outside the region have each level; 0 where the map is not finite.

    >>> import torch
    >>> inside, outside = level_histograms(torch.tensor([[[[0.0, 2.0]]]]), torch.tensor([[[[False, True]]]]))
    >>> inside[0, 255], outside[0, 0], inside.sum(), outside.sum()
    (np.int64(1), np.int64(1), np.int64(1), np.int64(1))
    """
    check_maps(maps, masks, "sum")
    finite = maps.detach().flatten(1).isfinite().all(1).cpu().numpy()
    # Bins of one image after another, first those outside.
    places = map_levels(maps).astype(np.int64) + LEVELS * masks[:, 0].cpu().numpy()
    places += 2 * LEVELS * np.arange(len(maps))[:, None, None]
    counts = np.bincount(places.ravel(), minlength=2 * LEVELS * len(maps)).reshape(len(maps), 2, LEVELS)
    counts[~finite] = 0
    return counts[:, 1], counts[:, 0]


def _overlaps(levels: NDArray[np.int64], boxes: Array, components: Components) -> Array:
    """255: the best IoU at each threshold."""
    tree = component_tree(levels)
    columns = [column[:, None] for column in tree.box.T.astype(np.float64)]
    wide = np.minimum(columns[2], boxes[:, 2]) - np.maximum(columns[0], boxes[:, 0])
    high = np.minimum(columns[3], boxes[:, 3]) - np.maximum(columns[1], boxes[:, 1])
    both = wide.clip(0) * high.clip(0)
    area = (columns[2] - columns[0]) * (columns[3] - columns[1])
    overlap = (both / (area + (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) - both)).max(1)
    if components == "all":
        return _best_alive(tree, overlap)
    order = np.lexsort((overlap, tree.size))  # components of equal size count by the better overlap
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    sorted_overlaps: Array = np.concatenate(([0.0], overlap[order]))
    return sorted_overlaps[_best_alive(tree, rank).astype(np.int64)]


def _best_alive(tree: ComponentTree, value: Array) -> Array:
    """255: the largest value of the components that exist at each threshold, 0 if there are none."""
    largest = np.zeros((LEVELS, LEVELS))  # by the threshold from which on, and by the level below which a component exists
    np.maximum.at(largest.reshape(-1), tree.above * LEVELS + tree.level, value)
    best: Array = np.triu(np.maximum.accumulate(largest, axis=0), 1).max(1)[:-1]
    return best
