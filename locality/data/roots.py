"""The folder or zip that contains a data set's files, which are read by relative names that cannot leave it."""

from __future__ import annotations

import functools
import hashlib
import io
import lzma
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from locality.errors import DataError, Fault

MAX_FILE_BYTES = 256 * 2**20  # no photograph is larger; a zip entry that unpacks to more is an attack
# Errors of Python's zip reader for archives that are damaged, encrypted or compressed by an unknown method.
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)

OUTSIDE = "is a link out of the folder, which is not followed: copy what it points to, or pass that folder"
NOT_A_FILE = "is neither a file nor a folder (a pipe, socket, device or broken link): remove it"


def open_root(path: str | Path) -> Root:
    """The folder or zip at `path`."""
    path = Path(path).expanduser()
    if path.is_dir():
        return Folder(path)
    if not path.exists():
        raise DataError(f"`{path}` does not exist: pass the folder or zip that contains the data")
    if not path.is_file() or not zipfile.is_zipfile(path):  # a pipe would block, a device never end
        raise DataError(f"`{path}` is neither a folder nor a zip: unpack it and pass the folder")
    return ZipRoot(path)


def is_inside(name: str) -> bool:
    """True for a relative name that cannot leave its folder."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    absolute = name.startswith(("/", "\\")) or (bool(parts) and ":" in parts[0])
    return bool(parts) and not absolute and ".." not in parts and "\0" not in name


class Root(Protocol):
    """Files by relative names with forward slashes, wherever they are stored."""

    @property
    def path(self) -> Path: ...

    def names(self) -> list[str]: ...

    def faults(self) -> list[Fault]: ...

    def read(self, name: str) -> bytes: ...

    def open(self, name: str) -> IO[bytes]: ...

    def checksum(self, name: str) -> str: ...


@dataclass(frozen=True)
class Folder:
    """Files below a folder."""

    path: Path

    @cached_property
    def _real(self) -> str:
        return os.path.realpath(self.path)

    @cached_property
    def _walked(self) -> tuple[list[str], list[Fault]]:
        """Names of regular files, and faults for everything else: links out of the folder, FIFOs, sockets, devices."""
        names: list[str] = []
        faults: list[Fault] = []
        seen: set[tuple[int, int]] = set()
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            try:
                status = os.stat(self.path / prefix)
                entries = sorted(os.scandir(self.path / prefix), key=lambda entry: entry.name)
            except OSError as error:
                faults.append(self._fault(prefix, "bad file", f"cannot be read ({error.strerror})"))
                continue
            if (status.st_dev, status.st_ino) in seen:
                continue  # a link to a folder above would be followed for ever
            seen.add((status.st_dev, status.st_ino))
            folders = []
            for entry in entries:
                name, is_link = prefix + entry.name, entry.is_symlink()
                if is_link and not self._holds(entry.path):
                    faults.append(self._fault(name, "unsafe path", OUTSIDE))
                elif os.path.isdir(entry.path) if is_link else entry.is_dir():
                    folders.append(f"{name}/")
                elif not (os.path.isfile(entry.path) if is_link else entry.is_file()):
                    faults.append(self._fault(name, "bad file", NOT_A_FILE))
                elif not _is_text(name):
                    faults.append(self._fault(name, "bad name", "is not UTF-8: rename it"))
                else:
                    names.append(name)
            waiting += reversed(folders)
        return sorted(names), sorted(faults, key=lambda fault: fault.image)

    def _holds(self, path: str | Path) -> bool:
        """Whether a path is below the folder after all links are followed."""
        real = os.path.realpath(path)
        return real == self._real or real.startswith(os.path.join(self._real, ""))

    def _fault(self, name: str, kind: str, problem: str) -> Fault:
        shown = os.fsencode(name).decode("utf-8", "replace")
        return Fault(str(self.path), None, shown, kind, f"file name {shown!r} {problem}")

    def names(self) -> list[str]:
        """All files, sorted, as relative names with forward slashes."""
        return list(self._walked[0])

    def faults(self) -> list[Fault]:
        """Files that cannot be used: links out of the folder, what is no regular file, names that are no text."""
        return list(self._walked[1])

    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError if there is none."""
        with self.open(name) as file:
            return _limited(file, str(self.path / name))

    def open(self, name: str) -> IO[bytes]:
        """A regular file inside the folder to read from; FileNotFoundError if there is none."""
        if not is_inside(name):
            raise DataError(f"{self.path}: file name {name!r} is outside the folder: use a path below it")
        if not self._holds(self.path / name):
            raise DataError(f"{self.path}: file name {name!r} {OUTSIDE}")
        handle = os.open(self.path / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):  # a FIFO was opened without waiting for its writer
            os.close(handle)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(f"{name} in {self.path}")
            raise DataError(f"{self.path}: file name {name!r} {NOT_A_FILE}")
        return os.fdopen(handle, "rb")

    def checksum(self, name: str) -> str:
        """The sha256 of a file, cached until its size or modification time changes: every model and part asks for it."""
        try:
            status = (self.path / name).stat()
            return _file_sha256(self, name, status.st_size, status.st_mtime_ns)
        except (DataError, OSError, ValueError):
            return "cannot be read"


@functools.lru_cache(maxsize=200_000)
def _file_sha256(folder: Folder, name: str, size: int, changed: int) -> str:
    return hashlib.sha256(folder.read(name)).hexdigest()


@dataclass(frozen=True)
class ZipRoot:
    """Files inside a zip, which is not unpacked."""

    path: Path
    _opened: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    def _archive(self) -> zipfile.ZipFile:
        # One handle per process: data loaders fork, and two processes must not share a file position.
        process = os.getpid()
        if process not in self._opened:
            self._opened.clear()
            try:
                self._opened[process] = zipfile.ZipFile(self.path)
            except DAMAGE as error:
                raise DataError(f"`{self.path}` is a damaged zip ({error}): download it again") from error
        return self._opened[process]

    def __reduce__(self) -> tuple[type[ZipRoot], tuple[Path]]:
        return type(self), (self.path,)

    def names(self) -> list[str]:
        """All files, sorted; `faults` lists those with unusable names."""
        return sorted(e.filename for e in self._archive().infolist() if not e.is_dir() and _name_problem(e.filename) is None)

    def faults(self) -> list[Fault]:
        """Entries whose names leave the archive or cannot be used."""
        faults = []
        for entry in self._archive().infolist():
            problem = _name_problem(entry.filename)
            if problem is not None:
                sentence = f"entry {entry.filename!r} {problem[1]}"
                faults.append(Fault(str(self.path), None, entry.filename, problem[0], sentence))
        return faults

    def read(self, name: str) -> bytes:
        """An entry's bytes; FileNotFoundError if there is none."""
        try:
            with self._archive().open(name) as file:
                return _limited(file, f"{self.path}: entry {name!r}")
        except KeyError:
            raise FileNotFoundError(f"{name} in {self.path}") from None
        except DataError:
            raise
        except DAMAGE as error:
            raise DataError(f"{self.path}: entry {name!r} is damaged ({error}): download the zip again") from error

    def open(self, name: str) -> IO[bytes]:
        """An entry to read from; FileNotFoundError if there is none."""
        return io.BytesIO(self.read(name))

    def checksum(self, name: str) -> str:
        """The checksum and size that the zip lists for an entry; reading checks them."""
        try:
            entry = self._archive().getinfo(name)
        except (KeyError, DataError):
            return "cannot be read"
        return f"{entry.CRC:08x} {entry.file_size}"


def _name_problem(name: str) -> tuple[str, str] | None:
    """The kind and description of a problem with an entry's name, or None."""
    if not is_inside(name):
        return "unsafe path", "leaves the archive: do not unpack this zip, get it from its publisher"
    if "\\" in name:
        return "bad name", "has backslashes in its name: create the zip with forward slashes"
    return None


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _limited(file: IO[bytes], name: str) -> bytes:
    """All of a file, unless it is larger than any photograph: a zip may state a small size and unpack to a large one."""
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"{name}: larger than {MAX_FILE_BYTES // 2**20} MB, which no photograph is")
    return data
