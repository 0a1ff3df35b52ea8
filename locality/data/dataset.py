"""`load_dataset`: images with boxes from any source, selected and fitted to a model, as a torch `Dataset` of `Sample`."""

from __future__ import annotations

import hashlib
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from locality.data.boxes import boxes_of
from locality.data.fetch import cached_data
from locality.data.manifest import Manifest
from locality.data.manifest_csv import read_manifest
from locality.data.preprocess import fit, region_mask
from locality.data.roots import open_root
from locality.data.selection import box_shares, even_order
from locality.data.source import FileReader, Source
from locality.data.sources.coco import coco
from locality.data.sources.imagenet import imagenet
from locality.data.sources.photos import photos
from locality.data.sources.shapes import shapes
from locality.data.sources.tiny_imagenet import tiny_imagenet
from locality.errors import DataError, Fault
from locality.types import Batch, ModelSpec, Region, Sample

# Every source by name. Those in LOCATIONS need a path: `NAME:PATH`, the environment's variable, or the cache.
SOURCES: dict[str, Callable[..., Source]] = {
    "shapes": shapes,
    "photos": photos,
    "tiny-imagenet": tiny_imagenet,
    "imagenet": imagenet,
    "coco": coco,
}
# Training does not look at boxes.
MAX_BOX_SHARE = {"eval": 0.8, "train": None}
# What is nobody's mistake and just cannot be scored.
NOTES = {"no box": "without a box", "no image": "with boxes but no file"}
LOCATIONS = {
    "tiny-imagenet": "LOCALITY_TINY_IMAGENET",
    "imagenet": "LOCALITY_IMAGENET",
    "coco": "LOCALITY_COCO",
}


def load_dataset(
    name: str | Path,
    split: str = "eval",
    limit: int | None = None,
    seed: int = 0,
    spec: ModelSpec | None = None,
    max_box_share: float | Literal["default"] | None = "default",
    region: Region = "box",
    skip_bad: bool = False,
    **source_options: Any,
) -> ImageDataset:
    """Images with boxes: `shapes`, `photos`, `tiny-imagenet`, `imagenet`, `coco`, or the path of a manifest.

    `NAME:PATH` says where the data lies; `shapes:none` and `shapes:swapped` choose the cue.

    - `limit` takes that many images, as even over the classes as the supply allows; `seed` draws which (and, for `shapes`,
      the images themselves).
    - With a `spec`, images and boxes are resized and cropped as that model sees them, and labels index its classes.
    - `max_box_share` leaves out images whose boxes fill as much of the view or more, or are cropped away. By default 0.8 for
      `split="eval"` and None, which keeps all, for `split="train"`.
    - `region="object"` scores against the object's own pixels where the source has them.
    - `skip_bad` leaves out what cannot be read instead of stopping; `data.faults` lists it.

    >>> data = load_dataset("shapes", limit=20, count=100)
    >>> len(data), data[0].image.shape
    (20, torch.Size([3, 64, 64]))
    """
    source = open_source(str(name), split, seed=seed, **source_options)
    share = MAX_BOX_SHARE[split] if max_box_share == "default" else max_box_share
    return ImageDataset.select(source, limit, seed, spec, share, region, skip_bad)


def open_source(name: str, split: str = "eval", seed: int = 0, **options: Any) -> Source:
    """The source behind a name such as `shapes:none`, `tiny-imagenet:PATH` or `val.csv`."""
    kind, _, rest = name.partition(":")
    if split not in MAX_BOX_SHARE:
        raise DataError(f"`split` must be one of {', '.join(MAX_BOX_SHARE)}, got {split!r}")
    if kind not in SOURCES:
        if not name.lower().endswith(".csv") and not Path(name).exists():
            known = ", ".join(SOURCES)
            raise DataError(f"`{name}` is no data set: pass one of {known}, or the path of a manifest (.csv)")
        _check_options(name, manifest_source, options)
        return manifest_source(name, **options)
    _check_options(kind, SOURCES[kind], options)
    if kind == "shapes":
        return shapes(split, seed=seed, **(options | {"cue": rest} if rest else options))
    if kind == "photos":
        if rest:
            raise DataError(f"`photos` lies inside installed packages, got photos:{rest}: pass `photos` alone")
        return photos(split)
    return SOURCES[kind](rest or _location(kind), split, **options)


def _check_options(name: str, source: Callable[..., Source], options: dict[str, Any]) -> None:
    known = set(inspect.signature(source).parameters) - {"path", "split", "seed"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise DataError(f"`{name}` has no option {', '.join(unknown)}: it has {', '.join(sorted(known)) or 'none'}")


def manifest_source(path: str | Path, root: str | Path | None = None) -> Source:
    """The source of a manifest; paths in it are relative to `root` (folder or zip), by default the manifest's folder."""
    manifest, faults = read_manifest(path)
    place = open_root(Path(path).parent if root is None else root)
    return Source(Path(path).stem, manifest, manifest.classes(), FileReader(manifest, place), tuple(faults))


def _location(kind: str) -> str:
    variable = LOCATIONS[kind]
    place = os.environ.get(variable) or cached_data(kind)
    if place is None:
        raise DataError(
            f"`{kind}` is not on this machine: pass `{kind}:PATH`, set {variable}, or run `locality data get {kind}`"
        )
    return str(place)


class ImageDataset(Dataset[Sample]):
    """A torch data set of samples; `data.batch(indices)` stacks some of them, `print(data)` tells what is in it."""

    def __init__(
        self,
        source: Source,
        indices: NDArray[np.int64],
        spec: ModelSpec | None = None,
        region: Region = "box",
        left_out: dict[str, int] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.source = source
        self.indices = indices
        self.spec = spec
        self.region: Region = region
        self.left_out = left_out or {}
        self.faults = tuple(faults)
        self._model_classes = spec.classes if spec is not None else ()
        self._accepted = self._accepted_labels()

    @staticmethod
    def select(
        source: Source,
        limit: int | None = None,
        seed: int = 0,
        spec: ModelSpec | None = None,
        max_box_share: float | None = 0.8,
        region: Region = "box",
        skip_bad: bool = False,
    ) -> ImageDataset:
        """The data set of the images that may be used, `limit` of them if given."""
        if limit is not None and limit < 1:
            raise DataError(f"`limit` must be at least 1, got {limit}")
        if region not in ("box", "object"):
            raise DataError(f"`region` must be 'box' or 'object', got {region!r}")
        if max_box_share is not None and not 0 < max_box_share <= 1:
            raise DataError(f"`max_box_share` must be a share such as 0.8, or None, got {max_box_share}")
        faults = [fault for fault in source.faults if fault.kind not in NOTES]
        if faults and not skip_bad:
            raise DataError.of(faults)
        manifest = source.manifest
        left_out = {sentence: sum(f.kind == kind for f in source.faults) for kind, sentence in NOTES.items()}
        usable = np.arange(len(manifest))
        if max_box_share is not None:
            shares = box_shares(manifest, spec)
            left_out["with nothing left of their box"] = int((shares <= 0).sum())
            left_out[f"with a box of {max_box_share:.0%} or more"] = int((shares >= max_box_share).sum())
            usable = np.flatnonzero((shares > 0) & (shares < max_box_share))
        images = manifest.images.iloc[usable]
        order = usable[even_order(images["label"].to_numpy(), images["id"].tolist(), seed)]
        if skip_bad and isinstance(source.read, FileReader):
            chosen, bad = _readable(source.read, order, limit)
            faults += bad
        else:
            chosen = order[:limit]
        left_out["that cannot be used"] = len(faults)
        if not len(chosen):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
            first = f"; the first: {faults[0]}" if faults else ""
            raise DataError(f"no image of {source.name} is left ({reasons or 'it is empty'}){first}", tuple(faults))
        if limit is not None:
            left_out["beyond the limit"] = len(order) - len(chosen)
        return ImageDataset(source, np.sort(chosen), spec, region, {k: n for k, n in left_out.items() if n}, faults)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def manifest(self) -> Manifest:
        """The manifest of the chosen images."""
        return self.source.manifest.take(self.indices)

    @property
    def classes(self) -> tuple[str, ...]:
        """What labels index: the model's WordNet ids where a spec lists them, else the data set's own."""
        return self._model_classes or self.source.classes

    def fingerprint(self) -> str:
        """A hash of which images these are: names, labels, boxes, and the pixels of up to 16 as the model sees them."""
        digest = hashlib.sha256()
        manifest = self.manifest
        for part in (self.name, self.region, self.classes, manifest.images["id"].tolist(), self._accepted):
            digest.update(repr(part).encode())
        for place in range(len(manifest)):
            digest.update(np.ascontiguousarray(manifest.boxes(place)).tobytes())
        for index in np.linspace(0, len(self) - 1, min(16, len(self))).astype(int).tolist():
            digest.update((self[index].image * 255).round().byte().numpy().tobytes())
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """How many images of each class, in the order of the data set's own classes."""
        labels = self.source.manifest.images["label"].to_numpy()[self.indices]
        counted = Counter(labels.tolist())
        return {self.source.classes[label]: counted[label] for label in sorted(counted)}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        place = int(self.indices[index])
        pixels = self.source.read(place, outline=self.region == "object")
        boxes = boxes_of(self.source.manifest.boxes(place))
        height, width = pixels.image.shape[-2:]
        sample = Sample(
            id=str(self.source.manifest.images["id"].iloc[place]),
            image=pixels.image,
            label=self._accepted[index][0],
            boxes=boxes,
            mask=region_mask(boxes, pixels.outline, self.region, height, width),
            accepted=tuple(label for label in self._accepted[index] if label >= 0),
            outline=pixels.outline,
            region=self.region,
        )
        if self.spec is not None:
            sample = fit(sample, self.spec)
        return replace(sample, image=sample.image.float().div_(255).contiguous())

    def batch(self, indices: Sequence[int]) -> Batch:
        """The samples at `indices`, stacked."""
        return stack([self[index] for index in indices])

    def __str__(self) -> str:
        counts = list(self.counts().values())
        spread = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        text = f"{self.name}: {len(self):,} images of {len(counts)} classes, {spread} each"
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        return text + (f"; left out: {left_out}" if left_out else "")

    def _accepted_labels(self) -> list[tuple[int, ...]]:
        """Accepted labels of each chosen image, the first one first; −1 where the model has no such class."""
        images = self.source.manifest.images.iloc[self.indices]
        if not self._model_classes:
            own = {wnid: label for label, wnid in enumerate(self.source.classes) if wnid}
            return [
                (label, *(own[wnid] for wnid in wnids.split()[1:] if wnid in own))
                for label, wnids in zip(images["label"].tolist(), images["wnid"].tolist(), strict=True)
            ]
        logit = {wnid: index for index, wnid in enumerate(self._model_classes)}
        accepted = [tuple(logit.get(wnid, -1) for wnid in wnids.split()) for wnids in images["wnid"].tolist()]
        unknown = sum(max(labels) < 0 for labels in accepted)
        if unknown:
            name = self.spec.name if self.spec else ""
            warnings.warn(
                f"{unknown:,} of {len(accepted):,} images of {self.name} are of classes that {name} does not know: their "
                "accuracy is undefined, their attributions are not",
                stacklevel=4,
            )
        # A model that knows only the second of several accepted classes is right with that one.
        return [tuple(sorted(labels, key=lambda label: label < 0)) for labels in accepted]


def stack(samples: Sequence[Sample]) -> Batch:
    """Samples of one size as a batch; also a `collate_fn` for torch's DataLoader."""
    sizes = {tuple(sample.image.shape[-2:]) for sample in samples}
    if len(sizes) != 1:
        raise ValueError(
            f"`samples` must be of one size, got {len(sizes)}: pass `spec` to load_dataset to fit them to a model"
        )
    return Batch(
        ids=tuple(sample.id for sample in samples),
        images=torch.stack([sample.image for sample in samples]),
        labels=torch.tensor([sample.label for sample in samples]),
        masks=torch.stack([sample.mask for sample in samples]),
        boxes=tuple(sample.boxes for sample in samples),
        accepted=tuple(sample.accepted for sample in samples),
    )


def _readable(reader: FileReader, order: NDArray[np.int64], limit: int | None) -> tuple[NDArray[np.int64], list[Fault]]:
    """The first `limit` images of the order whose files are good, and what is wrong with those passed over."""
    chosen: list[int] = []
    faults: list[Fault] = []
    for index in order.tolist():
        if limit is not None and len(chosen) == limit:
            break
        try:
            reader.verify(index)
        except DataError as error:
            faults.extend(error.faults)
        else:
            chosen.append(index)
    return np.array(chosen, dtype=np.int64), faults
