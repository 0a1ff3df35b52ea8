"""`load_dataset`: images from any source, selected and preprocessed for a model, as a torch `Dataset`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from locality.data.boxes import boxes_of
from locality.data.labels import accepted_labels
from locality.data.manifest import Manifest
from locality.data.preprocess import NO_CUE, fit, region_mask
from locality.data.selection import MAX_BOX_SHARE, even_order, usable_images
from locality.data.source import FileReader, Source, StoredReader, readable
from locality.data.sources import open_source
from locality.errors import ArgumentError, DataError, Fault, unknown_choice
from locality.pictures import pictures_html
from locality.types import SHOWN_IMAGES, Batch, ModelSpec, Region, Sample

# Kinds of faults that are not mistakes: such images cannot be scored.
NOTES = {
    "no box": "without a box",
    "no image": "with boxes but no file",
    "several classes": "with objects of several classes",
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
    """Images with their labels and boxes: a name of `data.kinds.KINDS`, or the path of a folder, zip or CSV.

    `NAME:PATH` gives the location of the data; `shapes:none` and `shapes:swapped` choose the cue. The kind of a path alone
    is guessed from its files. Further arguments are options of the source, such as `boxes`, the path of annotations.

    - `limit` is the maximum number of images, balanced over the classes. `seed` determines which (and, for `shapes`, the
      images themselves).
    - With a `spec`, images and boxes are resized and cropped as for that model, and labels index its classes.
    - `max_box_share` leaves out images whose boxes fill this share of the view or more, or are cropped away. It defaults to
      0.8 for `split="eval"` and to None, which keeps all images, for `split="train"`. Data without boxes are kept.
    - `region="object"` scores against the object's own pixels, if the source has them, and `region="cue"` against a planted
      cue.
    - `cue="sticker"` pastes a sticker on every image whose colours name its class, "swapped" that of the next class, and
      "none" none (`data.cues`). `cue_size` is its side as a share of the image's short side (default 0.2), `cue_seed` the
      seed of its place. For `shapes`, "background", "none" and "swapped" choose its own cue; `shapes:none` takes stickers.
    - `skip_bad` leaves out images that cannot be read instead of raising an error; `data.faults` lists them.

    >>> data = load_dataset("shapes", limit=20, count=100)
    >>> len(data), data[0].image.shape
    (20, torch.Size([3, 64, 64]))
    """
    source = open_source(str(name), split, seed=seed, **source_options)
    share = MAX_BOX_SHARE[split] if max_box_share == "default" else max_box_share
    return ImageDataset.select(source, limit, seed, spec, share, region, skip_bad)


class ImageDataset(Dataset[Sample]):
    """A torch data set of samples. `data.batch(indices)` stacks some of them, `print(data)` summarises them.

    `matched` maps names of classes to the model's classes, where the two are written differently.
    """

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
        self._accepted, self.matched = accepted_labels(source, source.manifest.images.iloc[indices], spec)

    @staticmethod
    def select(
        source: Source,
        limit: int | None = None,
        seed: int = 0,
        spec: ModelSpec | None = None,
        max_box_share: float | None = MAX_BOX_SHARE["eval"],
        region: Region = "box",
        skip_bad: bool = False,
    ) -> ImageDataset:
        """The data set of the usable images, at most `limit` of them."""
        if limit is not None and limit < 1:
            raise ArgumentError("limit", "at least 1", limit)
        if region not in get_args(Region):
            raise unknown_choice("region", region, get_args(Region))
        if region == "cue" and not source.has_cue:
            raise ArgumentError("region", f"box or object for {source.name}, which has no planted cue", region, NO_CUE)
        faults = [fault for fault in source.faults if fault.kind not in NOTES]
        if faults and not skip_bad:
            raise DataError.of(faults)
        manifest = source.manifest
        left_out = {sentence: sum(f.kind == kind for f in source.faults) for kind, sentence in NOTES.items()}
        usable, filled = usable_images(manifest, spec, max_box_share if source.has_regions else None)
        left_out |= filled
        images = manifest.images.iloc[usable]
        order = usable[even_order(images["label"].to_numpy(), images["id"].tolist(), seed)]
        if skip_bad and isinstance(source.read, FileReader):
            chosen, bad = readable(source.read, order, limit)
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

    def for_model(self, spec: ModelSpec) -> ImageDataset:
        """The same images, fitted to the model of `spec`; labels index its classes, or the data's own if it lists none."""
        return ImageDataset(self.source, self.indices, spec, self.region, self.left_out, self.faults)

    def take(self, places: NDArray[np.int64]) -> ImageDataset:
        """The images at some places of this data set."""
        return ImageDataset(self.source, self.indices[places], self.spec, self.region, self.left_out, self.faults)

    def on(self, source: Source, region: Region | None = None) -> ImageDataset:
        """The same images of an edition of the source, such as one with stickers; `region` replaces their region."""
        return ImageDataset(source, self.indices, self.spec, region or self.region, self.left_out, self.faults)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def has_regions(self) -> bool:
        """Whether the images have boxes, outlines or the planted cue, which locality is measured against."""
        return self.source.has_regions or self.region == "cue"

    @property
    def manifest(self) -> Manifest:
        """The manifest of the chosen images."""
        return self.source.manifest.take(self.indices)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that labels index: the model's WordNet ids if a spec lists them, else the data set's own."""
        return self._model_classes or self.source.classes

    def contents(self, first: int = 0, last: int | None = None) -> list[str]:
        """What identifies the content of each image, from `first` to before `last`.

        A generated image is identified, with its id, by the settings of its generator.
        """
        indices = self.indices[first:last].tolist()
        contents = self._contents_read(indices)
        return contents if self.source.cue is None else [f"{content} {self.source.cue}" for content in contents]

    def _contents_read(self, indices: list[int]) -> list[str]:
        """What identifies what the reader reads, without a sticker."""
        reader = self.source.read
        if isinstance(reader, StoredReader):
            return reader.contents(indices)
        if type(reader).__module__.startswith("locality."):  # a record of settings; its code is part of every key
            return [repr(reader)] * len(indices)
        pixels = (reader(index).image for index in indices)
        return [hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest() for image in pixels]

    def fingerprint_indices(self) -> list[int]:
        """The indices of the images, up to 16, whose pixels are part of the fingerprint."""
        indices: list[int] = np.linspace(0, len(self) - 1, min(16, len(self))).astype(int).tolist()
        return indices

    def fingerprint(self, pixels: Mapping[int, torch.Tensor] | None = None) -> str:
        """A hash of the chosen images: names, labels, boxes, contents, and the preprocessed pixels of up to 16 of them.

        `pixels` has images that were decoded already, by index; others are read.
        """
        digest = hashlib.sha256()
        manifest = self.manifest
        for part in (self.name, self.region, self.classes, manifest.images["id"].tolist(), self._accepted):
            digest.update(repr(part).encode())
        for index in range(len(manifest)):
            digest.update(np.ascontiguousarray(manifest.boxes(index)).tobytes())
        digest.update(repr(self.contents()).encode())
        decoded = pixels or {}
        for index in self.fingerprint_indices():
            image = decoded[index] if index in decoded else self[index].image
            digest.update((image * 255).round().byte().numpy().tobytes())
        return digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """The number of images of each class, in the order of the data set's own classes."""
        counted = Counter(self.source.manifest.images["label"].to_numpy()[self.indices].tolist())
        return {self.source.classes[label]: counted[label] for label in sorted(counted)}

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Sample:
        source_index = int(self.indices[index])
        pixels = self.source.read(source_index, outline=self.region == "object")
        boxes = boxes_of(self.source.manifest.boxes(source_index))
        height, width = pixels.image.shape[-2:]
        row = self.source.manifest.images.iloc[source_index]
        if self.source.cue is not None:
            pixels = self.source.cue.planted(pixels, str(row["id"]), int(row["label"]), len(self.source.classes))
        sample = Sample(
            id=str(row["id"]),
            image=pixels.image,
            label=self._accepted[index][0],
            boxes=boxes,
            mask=region_mask(boxes, pixels.outline, self.region, height, width, pixels.cue),
            accepted=tuple(label for label in self._accepted[index] if label >= 0),
            outline=pixels.outline,
            region=self.region,
            cue=pixels.cue,
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
        boxes = "" if self.has_regions else ", without boxes"
        text = f"{self.name}: {len(self):,} images of {len(counts)} classes, {spread} each{boxes}"
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        return text + (f"; left out: {left_out}" if left_out else "")

    def __repr__(self) -> str:
        return f"<ImageDataset {self}>"

    def _repr_html_(self) -> str:
        samples = (self[index] for index in range(min(SHOWN_IMAGES, len(self))))
        return pictures_html(str(self), [(sample.image, sample.boxes, sample.id) for sample in samples])


def stack(samples: Sequence[Sample]) -> Batch:
    """Stack samples of one size to a batch; also a `collate_fn` for torch's DataLoader."""
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
