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

from locality.errors import ArgumentError, needing, unknown_choice
from locality.pooled_scores import LEVELS
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
    summed = maps.detach().cpu().double().sum(1).numpy()
    low, high = (extreme(summed, axis=(1, 2), keepdims=True) for extreme in (np.min, np.max))
    with np.errstate(invalid="ignore"):
        scaled = (summed - low) / np.where(high > low, high - low, 1)
    return np.asarray(np.nan_to_num(255 * scaled, nan=0, posinf=0, neginf=0).clip(0, 255), dtype=np.uint8)


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
    for row, levels in enumerate(map_levels(maps)):
        if finite[row] and levels.max() > 0 and boxes[row]:
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


def _overlaps(levels: NDArray[np.uint8], boxes: Array, components: Components) -> Array:
    """255: the best IoU at each threshold. A component exists from the level of its parent to below its own."""
    level, above, parts, sizes = _component_tree(levels)
    wide = np.minimum(parts[:, None, 2], boxes[:, 2]) - np.maximum(parts[:, None, 0], boxes[:, 0])
    high = np.minimum(parts[:, None, 3], boxes[:, 3]) - np.maximum(parts[:, None, 1], boxes[:, 1])
    both = wide.clip(0) * high.clip(0)
    areas = [(corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1]) for corners in (parts, boxes)]
    overlap = (both / (areas[0][:, None] + areas[1] - both)).max(1)
    # Components of equal size count by the better overlap.
    order = np.argsort(overlap) if components == "all" else np.lexsort((overlap, sizes))
    best = np.zeros(LEVELS - 1)
    counts = (level - above)[order]
    # Every component once per threshold of its life, the best ones last: of equal places the last value stays.
    thresholds = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + np.repeat(above[order], counts)
    best[thresholds] = np.repeat(overlap[order], counts)
    return best


def _component_tree(levels: NDArray[np.uint8]) -> tuple[Array, Array, Array, Array]:
    """Every component that some threshold has: its level, its parent's level, its box (x0, y0, x1, y1), its pixels.

    The component of {level > k} for k below its lowest pixel's level is the same until k reaches the level of its parent,
    the component that it is merged into. A threshold below all pixels has the whole image and is left out.
    """
    with needing("`box_overlaps`"):
        from skimage.morphology import max_tree

    levels = np.pad(levels, ((0, 2), (0, 2)))  # of level 0, in no component: max_tree needs three rows
    parents, _ = max_tree(levels, connectivity=2)
    flat, parent = levels.ravel().astype(np.int64), parents.ravel()
    pixels = np.arange(flat.size)
    # All pixels of a component at its lowest level have the same parent, one of them, which stands for the component.
    same = flat[parent] == flat
    home = np.where(same, parent, pixels)
    nodes, node = np.unique(home, return_inverse=True)
    down, right = np.divmod(pixels, levels.shape[1])
    count = len(nodes)
    boxes = np.empty((count, 4), np.int64)
    for column, (values, least) in enumerate(((right, True), (down, True), (right, False), (down, False))):
        extreme = np.full(count, flat.size if least else -1)
        (np.minimum if least else np.maximum).at(extreme, node, values)
        boxes[:, column] = extreme
    sizes = np.bincount(node, minlength=count)
    level, up = flat[nodes], node[parent[nodes]]
    order = np.argsort(-level, kind="stable")
    ends = np.flatnonzero(np.diff(level[order], append=-1)) + 1
    for members in np.split(order, ends[:-1]):  # from the highest level down, so that children are complete
        targets = up[members]
        for column in range(4):
            (np.minimum if column < 2 else np.maximum).at(boxes[:, column], targets, boxes[members, column])
        np.add.at(sizes, targets[targets != members], sizes[members[targets != members]])
    boxes[:, 2:] += 1  # half-open
    inner = level > level.min()
    return level[inner], level[up[inner]], boxes[inner].astype(np.float64), sizes[inner]
