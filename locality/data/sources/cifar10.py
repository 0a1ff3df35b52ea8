"""`cifar10`: CIFAR-10 without boxes, from its official binary batches or from class folders, in a folder or zip.

A batch is a row of records of 3,073 bytes: the label, then 32×32 pixels of red, of green and of blue. Class folders hold one
image file each (`train/airplane/0001.png`). `eval` is the test batch, or the folder `test`. The pickles of CIFAR-10's Python
version are never opened, because reading a pickle can run code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from locality.data.manifest import Entry, Manifest
from locality.data.roots import Root, open_root
from locality.data.source import FileReader, Pixels, Source
from locality.errors import DataError, Fault, unknown_choice

SIDE = 32
RECORD_BYTES = 1 + 3 * SIDE * SIDE
MAX_RECORDS = 10_000  # of an official batch
# CIFAR-10's name of each class by label, and the WordNet id of the same noun: models list their classes by either.
WNIDS = {
    "airplane": "n02691156",
    "automobile": "n02958343",
    "bird": "n01503061",
    "cat": "n02121620",
    "deer": "n02430045",
    "dog": "n02084071",
    "frog": "n01639765",
    "horse": "n02374451",
    "ship": "n04194289",
    "truck": "n04490091",
}
CLASSES = tuple(WNIDS)
BATCHES = {"train": re.compile(r"data_batch_[1-5]\.bin"), "eval": re.compile(r"test_batch\.bin")}
FOLDERS = {"train": "train", "eval": "test"}
NAMES = "batches.meta.txt"
MAX_NAMES_BYTES = 10_000
OTHER_VERSION = re.compile(r"(data_batch_\d+|test_batch|batches\.meta)(\.mat)?")  # of Python, or of Matlab
IMAGE_NAMES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
NO_BOXES = np.empty((0, 4))
LICENCE = "none stated; its authors ask to cite Krizhevsky 2009"


def cifar10(path: str | Path, split: str = "eval") -> Source:
    """The source of one split of the CIFAR-10 at `path`; labels are those of the official files."""
    if split not in BATCHES:
        raise unknown_choice("split", split, BATCHES)
    root = open_root(path)
    names = [name for name in root.names() if "__MACOSX" not in name]
    files = {kind: [name for name in names if pattern.fullmatch(_last(name))] for kind, pattern in BATCHES.items()}
    if any(files.values()):
        return _of_batches(root, files[split], split)
    folders = list(_in_class_folders(names, split))
    if folders:
        return _of_folders(root, folders)
    if any(OTHER_VERSION.fullmatch(_last(name)) for name in names):
        raise DataError(
            f"`{root.path}` is CIFAR-10's Python or Matlab version, whose files can run code when they are read: "
            "get the binary version, cifar-10-binary.tar.gz"
        )
    raise DataError(
        f"`{root.path}` has neither batches ({'data_batch_1.bin' if split == 'train' else 'test_batch.bin'}) nor class "
        f"folders ({FOLDERS[split]}/airplane) of the split {split!r}: pass the folder or zip of CIFAR-10's binary version"
    )


@dataclass(frozen=True, eq=False)
class RecordReader:
    """Reads image i from records that are in memory, since those of a zip cannot be read one by one."""

    records: NDArray[np.uint8]  # N×3073
    root: Root  # where they come from

    def __call__(self, index: int, outline: bool = False) -> Pixels:
        return Pixels(torch.tensor(self.records[index, 1:]).view(3, SIDE, SIDE))

    def contents(self, indices: Sequence[int]) -> list[str]:
        """The sha256 of each record."""
        return [hashlib.sha256(self.records[index].tobytes()).hexdigest() for index in indices]


def _of_batches(root: Root, files: list[str], split: str) -> Source:
    """The source of the records in some batch files; records with impossible labels are faults."""
    if not files:
        missing = "data_batch_1.bin to data_batch_5.bin" if split == "train" else "test_batch.bin"
        raise DataError(f"`{root.path}` has no {missing}: the download is incomplete, download it again")
    folder = files[0].removesuffix(_last(files[0]))
    if any(name != folder + _last(name) for name in files):
        raise DataError(f"`{root.path}` has batches in several folders: pass one of them")
    _check_names(root, f"{folder}{NAMES}")
    faults, entries, records = root.faults(), [], [np.empty((0, RECORD_BYTES), dtype=np.uint8)]
    for name in files:
        location, stem = f"{root.path}: {name}", PurePosixPath(name).stem
        try:
            batch = _records(root.read(name))
        except (DataError, OSError) as error:
            faults.append(Fault(location, None, "", "bad file", str(error)))
            continue
        labels = batch[:, 0].tolist()
        good = [index for index, label in enumerate(labels) if label < len(CLASSES)]
        for index in sorted(set(range(len(labels))) - set(good)):
            problem = f"a label is from 0 to {len(CLASSES) - 1}, got {labels[index]}: use the official files"
            faults.append(Fault(location, index + 1, f"{stem}-{index}", "unknown label", problem))
        entries += [_entry(f"{stem}-{index}", name, labels[index], location, index + 1) for index in good]
        records.append(batch[good])
    manifest = Manifest.of(entries, source="cifar10", licence=LICENCE)
    reader = RecordReader(np.concatenate(records), root)
    return Source("cifar10", manifest, CLASSES, reader, tuple(faults), has_regions=False)


def _records(data: bytes) -> NDArray[np.uint8]:
    """N×3073 of the bytes of a batch."""
    count, rest = divmod(len(data), RECORD_BYTES)
    if rest or not count:
        raise DataError(
            f"{len(data):,} bytes are not a whole number of records of {RECORD_BYTES:,} bytes: "
            "the file is truncated or not a batch of CIFAR-10, download it again"
        )
    if count > MAX_RECORDS:
        raise DataError(f"{count:,} records, but a batch of CIFAR-10 has at most {MAX_RECORDS:,}: use the official files")
    return np.frombuffer(data, dtype=np.uint8).reshape(count, RECORD_BYTES)


def _check_names(root: Root, name: str) -> None:
    """Raise unless the file lists CIFAR-10's classes in their order: labels of other data would mean other things."""
    try:
        data = root.read(name)
    except OSError:
        raise DataError(f"`{root.path}` has no {name}: the download is incomplete, download it again") from None
    if tuple(data[:MAX_NAMES_BYTES].decode("utf-8", "replace").split()) != CLASSES:
        raise DataError(
            f"`{root.path}`: {name} does not list the classes of CIFAR-10 ({', '.join(CLASSES)}): use the official files"
        )


def _in_class_folders(names: list[str], split: str) -> Iterator[tuple[str, str]]:
    """The image files below `train` or `test`, each with the name of its class folder."""
    for name in names:
        folders = PurePosixPath(name).parts[:-1]
        if name.lower().endswith(IMAGE_NAMES) and len(folders) in (2, 3) and folders[-2] == FOLDERS[split]:
            yield name, folders[-1]


def _of_folders(root: Root, files: list[tuple[str, str]]) -> Source:
    """The source of image files in class folders."""
    faults: list[Fault] = root.faults()
    entries: dict[str, Entry] = {}
    for name, folder in files:
        image, location = f"{folder}-{PurePosixPath(name).stem}", f"{root.path}: {name}"
        if folder not in WNIDS:
            problem = f"folder {folder!r} is not a class of CIFAR-10: its folders are {', '.join(CLASSES)}"
            faults.append(Fault(location, None, image, "unknown label", problem))
        elif image in entries:
            problem = f"duplicate id {image!r}: {entries[image].path} has the same name"
            faults.append(Fault(location, None, image, "duplicate id", problem))
        else:
            entries[image] = _entry(image, name, CLASSES.index(folder), location)
    manifest = Manifest.of(list(entries.values()), source="cifar10", licence=LICENCE)
    return Source("cifar10", manifest, CLASSES, FileReader(manifest, root), tuple(faults), has_regions=False)


def _entry(image: str, path: str, label: int, file: str, row: int | None = None) -> Entry:
    """One image without a box, which a model may call by CIFAR-10's name or by its WordNet id."""
    name = CLASSES[label]
    return Entry(image, path, label, f"{name} {WNIDS[name]}", SIDE, SIDE, NO_BOXES, file, row)


def _last(name: str) -> str:
    return PurePosixPath(name).name
