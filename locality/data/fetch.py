"""Data sets that `locality data get` fetches, and where it puts them."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from locality.download import download
from locality.errors import DataError
from locality.files import cache_folder

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Archive:
    """A file to fetch. `found_as` is what the loader is given: the file itself, what it unpacks to, or a `member` of it."""

    url: str
    checksum: str | None  # as its publisher or torchvision states it; None: the first one seen is remembered
    bytes: int | None
    found_as: str
    member: str | None = None


@dataclass(frozen=True)
class Entry:
    """A data set that can be fetched; `source` is the loader that reads it."""

    archives: tuple[Archive, ...]
    source: str
    licence: str
    note: str


FETCHABLE = {
    "tiny-imagenet": Entry(
        (
            Archive(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "md5:90528d7ca1a48142e341f4ef8d21d0de",
                248_100_043,
                "tiny-imagenet-200.zip",
            ),
        ),
        "tiny-imagenet",
        "ImageNet terms of access",
        "200 classes with boxes; read straight from the zip",
    ),
    "imagenette": Entry(
        (
            Archive(
                "https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz",
                "md5:3df6f0d01a2c9592104656642f5e78a3",
                None,
                "imagenette2-320",
            ),
        ),
        "imagenet",
        "Apache-2.0; photographs under ImageNet terms of access",
        "ten classes of ImageNet; needs the boxes of ImageNet's training set beside it",
    ),
    "imagenet-boxes": Entry(
        (
            Archive(
                "https://image-net.org/data/ILSVRC/2012/ILSVRC2012_bbox_val_v3.tgz",
                None,
                None,
                "ILSVRC2012_bbox_val_v3",
            ),
        ),
        "imagenet",
        "ImageNet terms of access",
        "boxes of the 50,000 validation photographs as XML files",
    ),
    "coco": Entry(
        (
            Archive(
                "http://images.cocodataset.org/zips/val2017.zip",
                "md5:442b8da7639aecaf257c1dceb8ba8c80",
                815_585_330,
                "val2017.zip",
            ),
            Archive(
                "http://images.cocodataset.org/annotations/annotations_trainval2017.zip",
                "md5:f4bbac642086de4f52a3fdda2de5fa2c",
                252_907_541,
                "instances_val2017.json",
                member="annotations/instances_val2017.json",
            ),
        ),
        "coco",
        "Flickr, per image; annotations CC-BY-4.0",
        "5,000 photographs with boxes and masks",
    ),
}
BY_HAND = {
    "imagenet": "ImageNet needs an account: get ILSVRC2012_img_val.tar from image-net.org (or `imagenet-object-localization-"
    "challenge` from Kaggle), unpack it, and pass `imagenet:FOLDER` with --boxes; "
    "`locality data get imagenet-boxes` fetches the boxes",
}


def cached_data(name: str, part: int = 0) -> Path | None:
    """What the loader of `name` is given if it has been fetched: its images, or its boxes where they are part 1."""
    if name not in FETCHABLE:
        return None
    place = cache_folder() / "data" / FETCHABLE[name].archives[part].found_as
    return place if place.exists() else None


def get_data(name: str, progress: Progress | None = None) -> list[Path]:
    """Fetch a data set into the cache, verify it, unpack what must be; returns what the loader is given."""
    if name in BY_HAND:
        raise DataError(BY_HAND[name])
    if name not in FETCHABLE:
        raise DataError(f"`{name}` cannot be fetched: there is {', '.join(FETCHABLE)} (shapes and photos are already here)")
    folder = cache_folder() / "data"
    found = []
    for archive in FETCHABLE[name].archives:
        place = folder / archive.found_as
        if not place.exists():
            file = archive.url.rsplit("/", 1)[-1]

            def report(done: int, total: int | None, file: str = file) -> None:
                if progress is not None:
                    progress(file, done, total)

            fetched = download(archive.url, folder / file, archive.checksum, archive.bytes, progress=report)
            if archive.member is not None:
                unpack_member(fetched, archive.member, place)
            elif fetched != place:
                unpack_tar(fetched, place)
        found.append(place)
    return found


def unpack_member(archive: Path, member: str, file: Path) -> None:
    """Unpack one file of a zip to `file`, which appears whole or not at all."""
    unfinished = file.with_name(file.name + ".part")
    try:
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as inside, unfinished.open("wb") as out:
            shutil.copyfileobj(inside, out)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        unfinished.unlink(missing_ok=True)
        raise DataError(f"{archive}: {member} cannot be unpacked ({error}): delete the zip and fetch it again") from error
    unfinished.replace(file)


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz into `folder`, which appears whole or not at all; entries and links that climb out are refused."""
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking safely needs Python 3.11.4 or newer: update Python, or unpack the file yourself")
    unfinished = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".unpack-"))
    try:
        with gzip.open(archive) as whole:  # to its end, where the checksum is: tarfile stops before it
            while whole.read(1 << 20):
                pass
        with tarfile.open(archive) as tar:
            tar.extractall(unfinished, filter="data")
        unfinished.chmod(0o755)  # mkdtemp's is for one's own eyes
        # An archive of one folder unpacks to that folder, not to a folder within a folder.
        content = list(unfinished.iterdir())
        (content[0] if len(content) == 1 and content[0].is_dir() else unfinished).rename(folder)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}): delete it and fetch it again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
