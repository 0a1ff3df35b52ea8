"""Where image files lie: a folder or a zip, read by relative names that never leave it."""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from locality.types import DataError, Fault

MAX_FILE_BYTES = 256 * 2**20  # no photograph is larger; a zip entry that unpacks to more is a bomb


def open_root(path: str | Path) -> Root:
    """The folder or zip at `path`."""
    path = Path(path).expanduser()
    if path.is_dir():
        return Folder(path)
    if not path.exists():
        raise DataError(f"`{path}` does not exist: pass the folder or zip that holds the data")
    if not zipfile.is_zipfile(path):
        raise DataError(f"`{path}` is neither a folder nor a zip: unpack it and pass the folder")
    return ZipRoot(path)


def is_inside(name: str) -> bool:
    """True for a relative name that cannot climb out of its folder."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return (
        bool(parts) and not name.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0] and "\0" not in name
    )


@dataclass(frozen=True)
class Folder:
    """Files below a folder."""

    path: Path

    def names(self) -> list[str]:
        """All files, sorted, as relative names with forward slashes."""
        found = []
        for folder, folders, files in os.walk(self.path, followlinks=True):
            folders.sort()
            found += [Path(folder, file).relative_to(self.path).as_posix() for file in files]
        return sorted(found)

    def faults(self) -> list[Fault]:
        return []

    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError where there is none."""
        with self.open(name) as file:
            return _limited(file, str(self.path / name))

    def open(self, name: str) -> IO[bytes]:
        """A file to read from; FileNotFoundError where there is none."""
        if not is_inside(name):
            raise DataError(f"{self.path}: file name {name!r} leaves the folder: use a path below it")
        return (self.path / name).open("rb")


@dataclass(frozen=True)
class ZipRoot:
    """Files inside a zip, read in place; nothing is unpacked to disk."""

    path: Path
    _opened: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    def _archive(self) -> zipfile.ZipFile:
        # One handle a process: data loaders fork, and two processes must not share a file position.
        process = os.getpid()
        if process not in self._opened:
            self._opened.clear()
            self._opened[process] = zipfile.ZipFile(self.path)
        return self._opened[process]

    def __reduce__(self) -> tuple[type[ZipRoot], tuple[Path]]:
        return type(self), (self.path,)

    def names(self) -> list[str]:
        return sorted(e.filename for e in self._archive().infolist() if not e.is_dir() and is_inside(e.filename))

    def faults(self) -> list[Fault]:
        """Entries that would leave the folder they are unpacked to."""
        sentence = "entry {!r} climbs out of the archive: do not unpack this zip, get it from its publisher"
        return [
            Fault(str(self.path), None, entry.filename, "unsafe path", sentence.format(entry.filename))
            for entry in self._archive().infolist()
            if not is_inside(entry.filename)
        ]

    def read(self, name: str) -> bytes:
        """An entry's bytes; FileNotFoundError where there is none."""
        try:
            with self.open(name) as file:
                return _limited(file, f"{self.path}: entry {name!r}")
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(f"{self.path}: entry {name!r} is damaged ({error}): fetch the zip again") from error

    def open(self, name: str) -> IO[bytes]:
        """An entry to read from; FileNotFoundError where there is none."""
        try:
            return self._archive().open(name)
        except KeyError:
            raise FileNotFoundError(f"{name} in {self.path}") from None
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            # Damaged, compressed in an unknown way, or encrypted.
            raise DataError(f"{self.path}: entry {name!r} cannot be read ({error}): fetch the zip again") from error


Root = Folder | ZipRoot


def _limited(file: IO[bytes], place: str) -> bytes:
    """All of a file, unless it is larger than any photograph: archives can claim little and unpack to much."""
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"{place}: larger than {MAX_FILE_BYTES // 2**20} MB: this is no photograph")
    return data
