"""Which images are evaluated: a region that leaves room to miss it, and as many of each class as the supply allows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from locality.data.boxes import Array, nonempty, pixel_corners, union_areas
from locality.data.manifest import Manifest
from locality.data.preprocess import fit_view
from locality.types import ModelSpec


def box_shares(manifest: Manifest, spec: ModelSpec | None) -> Array:
    """N: share that the boxes take of what the model of `spec` sees (of the whole image without one).

    0 where nothing is left: the boxes are cropped away, or no pixel's centre lies in them.
    """
    widths, heights = manifest.images["width"].to_numpy(), manifest.images["height"].to_numpy()
    owner = np.repeat(np.arange(len(manifest)), np.diff(manifest.first))
    if spec is None:
        seen, pixels = manifest.corners, widths * heights
    else:
        seen = fit_view(spec, widths[owner], heights[owner]).corners(manifest.corners)
        pixels = spec.input_size[0] * spec.input_size[1]
    visible = np.zeros(len(manifest), dtype=np.bool_)
    np.logical_or.at(visible, owner, nonempty(pixel_corners(seen)))
    shares: Array = union_areas(seen, manifest.first) / pixels
    return np.where(visible, shares, 0.0)


def even_order(labels: NDArray[np.int64], ids: Sequence[str], seed: int) -> NDArray[np.int64]:
    """All images in an order whose every beginning is as even over the classes as the supply allows.

    The order within a class is drawn by (seed, id), so it depends neither on the other images nor on how many are asked
    for: the first 100 are among the first 200.
    """
    draws = np.array(
        [int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big") for name in ids],
        dtype=np.uint64,
    )
    by_class = np.lexsort((draws, labels))
    starts = np.flatnonzero(np.diff(labels[by_class], prepend=-1))
    lengths = np.diff(np.append(starts, len(by_class)))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_class] = np.arange(len(by_class)) - np.repeat(starts, lengths)
    return np.lexsort((draws, rank))
