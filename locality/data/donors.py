"""Donors: for each image another one of another class, whose background replaces its own in a region test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from locality.data.dataset import ImageDataset
from locality.errors import DataError
from locality.types import Batch, Sample


def donors(
    data: ImageDataset, ids: Sequence[str], seeds: Sequence[int], decoded: Mapping[int, Sample] | None = None
) -> list[Sample | None]:
    """The donor of each image named by its id; None where all images of the data are of its class, or cannot be read.

    It is drawn from the other images of `data` with the image's own seed. `decoded` has samples that were read already, by
    their index in `data`.

    >>> from locality.data.dataset import load_dataset
    >>> data = load_dataset("shapes", limit=20, count=20)
    >>> [donor] = donors(data, [data[3].id], [0])
    >>> donor.label != data[3].label
    True
    """
    images = data.source.manifest.images
    image_ids, labels, names = (images[column].to_numpy()[data.indices] for column in ("id", "label", "wnid"))
    index_of = {image_id: index for index, image_id in enumerate(image_ids)}
    known = dict(decoded or {})

    def candidates(index: int, seed: int) -> Iterator[int]:
        others = np.flatnonzero(labels != labels[index])
        accepted = set(str(names[index]).split())  # data with numbered classes only have no names
        for offset in range(len(others)):
            other = int(others[(seed + offset) % len(others)])
            if not accepted & set(str(names[other]).split()):
                yield other

    def donor(index: int, seed: int) -> Sample | None:
        for other in candidates(index, seed):
            if other in known:
                return known[other]
            try:
                return data[other]
            except (DataError, OSError):
                continue  # reported as a fault of the image itself
        return None

    return [donor(index_of[image_id], seed) for image_id, seed in zip(ids, seeds, strict=True)]


def unstack(batch: Batch) -> list[Sample]:
    """The samples of a batch, without what a batch does not have: outlines and cues.

    >>> from locality.data.dataset import load_dataset
    >>> data = load_dataset("shapes", limit=2, count=10)
    >>> [sample.id for sample in unstack(data.batch([1, 0]))] == [data[1].id, data[0].id]
    True
    """
    labels = batch.labels.tolist()
    return [
        Sample(batch.ids[row], batch.images[row], labels[row], batch.boxes[row], batch.masks[row], batch.accepted[row])
        for row in range(len(batch))
    ]
