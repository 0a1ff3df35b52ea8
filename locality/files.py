"""Files: written whole or not at all, hashed, cached, and those that come with locality."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

# A folder inside the wheel, and where its files lie in a checkout; pyproject.toml copies the one to the other.
PACKAGED = {"manifests": "data_manifests", "suites": "bench/suites"}
PACKAGE = Path(__file__).resolve().parent
BLOCK = 1 << 20


def write_atomically(path: Path, content: bytes | str | Callable[[Path], object]) -> None:
    """Write a file so that it is either there, complete and on the disk, or not there at all, whenever power is cut.

    `content` is bytes, a text (written as UTF-8), or a function that writes to the path it is given.
    """
    unfinished = path.with_name(f".{path.name}-{os.getpid()}.part")
    try:
        if callable(content):
            content(unfinished)
        else:
            unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Put the rename itself on the disk; systems that cannot open folders do it by themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Where downloads go: LOCALITY_CACHE, else the platform's cache."""
    place = os.environ.get("LOCALITY_CACHE")
    return Path(place).expanduser() if place else Path(platformdirs.user_cache_dir("locality"))


def packaged_file(name: str) -> Path:
    """A manifest or suite that comes with locality, inside the wheel or in the checkout; the error lists what there is.

    >>> packaged_file("manifests/photos.csv").name
    'photos.csv'
    """
    folder, _, file = name.partition("/")
    if folder not in PACKAGED:
        raise FileNotFoundError(f"`{name}` must start with {' or '.join(f'{folder}/' for folder in PACKAGED)}")
    folders = [PACKAGE / "shipped_files" / folder, PACKAGE.parent / PACKAGED[folder]]
    for place in folders:
        if file and (place / file).is_file():
            return place / file
    there = sorted({path.name for place in folders if place.is_dir() for path in place.iterdir() if path.is_file()})
    raise FileNotFoundError(f"locality ships no `{name}`: there is {', '.join(there) or 'nothing'} in {folder}/")


def file_hash(path: str | Path, algorithm: str = "sha256") -> str:
    """The hash of a file in hexadecimal, read in pieces.

    >>> file_hash(os.devnull)[:16]
    'e3b0c44298fc1c14'
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
