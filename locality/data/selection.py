"""Select images for evaluation: those whose boxes do not fill the view, balanced over the classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from locality.data.boxes import Array, nonempty, pixel_corners, union_areas
from locality.data.manifest import Manifest
from locality.data.preprocess import fit_view
from locality.errors import ArgumentError
from locality.types import ModelSpec

# Boxes that cover this share of the view or more leave no room to miss them; in training that does not matter.
MAX_BOX_SHARE = {"eval": 0.8, "train": None}


def box_shares(manifest: Manifest, spec: ModelSpec | None) -> Array:
    """N: share of the view of the model of `spec` that the boxes cover (of the whole image without a `spec`).

    0 if the boxes are cropped away or contain no pixel's centre.
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


def usable_images(
    manifest: Manifest, spec: ModelSpec | None, max_box_share: float | None
) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Indices of the images whose boxes cover something, but less than `max_box_share` of the view; and what is left out.

    None uses all images.
    """
    if max_box_share is None:
        return np.arange(len(manifest)), {}
    if not 0 < max_box_share <= 1:
        raise ArgumentError("max_box_share", "a share such as 0.8, or None", max_box_share)
    shares = box_shares(manifest, spec)
    left_out = {
        "with nothing left of their box": int((shares <= 0).sum()),
        f"with a box of {max_box_share:.0%} or more": int((shares >= max_box_share).sum()),
    }
    return np.flatnonzero((shares > 0) & (shares < max_box_share)), left_out


def even_order(labels: NDArray[np.int64], ids: Sequence[str], seed: int) -> NDArray[np.int64]:
    """All images in an order whose every prefix is balanced over the classes, as far as there are images.

    The order within a class is random by (seed, id). It depends neither on the other images nor on the number selected: the
    first 100 are among the first 200.
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
