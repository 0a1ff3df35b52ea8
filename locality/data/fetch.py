"""Data sets that `locality data get` downloads, and their place in the cache."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from locality.download import download
from locality.errors import DataError, did_you_mean
from locality.files import cache_folder, write_atomically
from locality.progress import OpenProgress, open_no_progress


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    url: str
    checksum: str | None  # as its publisher or torchvision states it; None: that of the first download is stored
    bytes: int | None
    cached_as: str  # what the loader reads: the file itself, the folder it unpacks to, or one file of it
    member: str | None = None  # the one file of the archive that is unpacked


@dataclass(frozen=True)
class Fetchable:
    """A data set that can be downloaded; `source` is the loader that reads it."""

    archives: tuple[Archive, ...]
    source: str
    licence: str
    note: str


FETCHABLE: dict[str, Fetchable] = {
    "tiny-imagenet": Fetchable(
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
        "200 classes with boxes; read from the zip without unpacking",
    ),
    "imagenette": Fetchable(
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
        "ten classes of ImageNet; the boxes of ImageNet's training set are needed, too",
    ),
    "imagenet-boxes": Fetchable(
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
    "coco": Fetchable(
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
    "cifar10": Fetchable(
        (
            Archive(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "md5:c32a1d4ab5d03f1284b67883e8d87530",
                170_052_171,
                "cifar-10-batches-bin",
            ),
        ),
        "cifar10",
        "none stated; its authors ask to cite Krizhevsky 2009",
        "60,000 images of ten classes without boxes: training, robust accuracy, similarity",
    ),
}
BY_HAND = {
    "pets": "Oxford-IIIT Pets is two archives: get images.tar.gz and annotations.tar.gz from "
    "www.robots.ox.ac.uk/~vgg/data/pets, unpack both into one folder, and pass `pets:FOLDER`",
    "imagenet": "ImageNet needs an account: get ILSVRC2012_img_val.tar from image-net.org (or `imagenet-object-localization-"
    "challenge` from Kaggle), unpack it, and pass `imagenet:FOLDER` with --boxes; "
    "`locality data get imagenet-boxes` downloads the boxes",
}


def cached_data(name: str, part: int = 0) -> Path | None:
    """The downloaded data that the loader of `name` reads: its images, or its boxes if they are part 1; else None."""
    if name not in FETCHABLE:
        return None
    path = cache_folder() / "data" / FETCHABLE[name].archives[part].cached_as
    return path if path.exists() else None


def get_data(name: str, progress: OpenProgress = open_no_progress) -> list[Path]:
    """Download a data set into the cache, verify and unpack it; returns the paths that the loader reads.

    `progress` opens one progress per file.
    """
    if name in BY_HAND:
        raise DataError(BY_HAND[name])
    if name not in FETCHABLE:
        hint = did_you_mean(name, FETCHABLE)
        raise DataError(
            f"`{name}` cannot be downloaded, only {', '.join(FETCHABLE)} (shapes and photos are built in)"
            f"{hint and f': {hint}'}"
        )
    folder = cache_folder() / "data"
    paths = [folder / archive.cached_as for archive in FETCHABLE[name].archives]
    for archive, path in zip(FETCHABLE[name].archives, paths, strict=True):
        if path.exists():
            continue
        file = archive.url.rsplit("/", 1)[-1]
        with progress(file) as report:
            downloaded = download(archive.url, folder / file, archive.checksum, archive.bytes, progress=report)
        if archive.member is not None:
            unpack_member(downloaded, archive.member, path)
        elif downloaded != path:
            unpack_tar(downloaded, path)
    return paths


def unpack_member(archive: Path, member: str, file: Path) -> None:
    """Unpack one file of a zip to `file`, atomically."""

    def write(unfinished: Path) -> None:
        with zipfile.ZipFile(archive) as zipped, zipped.open(member) as inside, unfinished.open("wb") as out:
            shutil.copyfileobj(inside, out)

    try:
        write_atomically(file, write)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DataError(f"{archive}: {member} cannot be unpacked ({error}): delete the zip and download it again") from error


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz to `folder`, atomically; entries and links that point outside it are refused."""
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking safely needs Python 3.11.4 or newer: update Python, or unpack the file yourself")
    unfinished = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".unpack-"))
    try:
        with gzip.open(archive) as whole:  # to the end, where the checksum is: tarfile stops before it
            while whole.read(1 << 20):
                pass
        with tarfile.open(archive) as tar:
            tar.extractall(unfinished, filter="data")
        unfinished.chmod(0o755)  # mkdtemp's folders can be read by their owner only
        # An archive with one top folder unpacks to that folder, not to a folder within a folder.
        content = list(unfinished.iterdir())
        (content[0] if len(content) == 1 and content[0].is_dir() else unfinished).rename(folder)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}): delete it and download it again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
