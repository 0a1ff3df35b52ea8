"""Files: written atomically, hashed, cached, and those that ship with locality."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

if TYPE_CHECKING:
    import pandas as pd

# Folder inside the wheel ↦ folder in a checkout; pyproject.toml copies the latter to the former.
PACKAGED = {"manifests": "data_manifests", "suites": "bench/suites"}
PACKAGE = Path(__file__).resolve().parent
BLOCK = 1 << 20
FORMULA = re.compile(r"[=+\-@\t\r]")  # the starts of what a spreadsheet would run
# Parts of locality that cannot influence a measured number, except for some files of the runner.
WITHOUT_NUMBERS = (
    "cli",
    "report",
    "results",
    "training",
    "runner",
    "progress.py",
    "download.py",
    "connection.py",
    "__main__.py",
)
RUNNER_WITH_NUMBERS = ("runner/explain_batch.py", "runner/measurement.py", "runner/measurements/")
SEAL = "content_sha256"  # key of a JSON file that holds the hash of the others
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)  # a file system without locks: no other run is assumed
FULL_DISK = 1 << 16  # free bytes: with fewer, a failed write is put down to the full disk


class FullDiskError(OSError):
    """No space is left where a file was to be written; `filename` is the folder.

    >>> print(FullDiskError(errno.ENOSPC, "No space left on device", "results"))
    no space left on the disk of `results`: free some space there or choose another folder
    """

    def __str__(self) -> str:
        return f"no space left on the disk of `{self.filename}`: free some space there or choose another folder"


def write_atomically(path: Path, content: bytes | str | Callable[[Path], object]) -> None:
    """Write a file atomically and durably: after a crash or power cut it is either complete or as it was before.

    `content` is bytes, a text (written as UTF-8), or a function that writes to the path it is given. The file gets the mode
    of any new file, also where the function would restrict it. Unfinished files of killed processes are removed.
    """
    _remove_leftovers(path.parent.absolute())
    unfinished = path.with_name(f".{path.name}-{_machine()}-{os.getpid()}.part")
    try:
        unfinished.touch()
        mode = stat.S_IMODE(unfinished.stat().st_mode)
        if callable(content):
            content(unfinished)
        else:
            unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.chmod(mode)  # safetensors writes files that only their owner can read
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        move_into_place(unfinished, path)
    except BaseException as error:
        full = isinstance(error, Exception) and _disk_is_full(error, path.parent)
        unfinished.unlink(missing_ok=True)
        if full:
            raise FullDiskError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path.parent)) from error
        raise


def _disk_is_full(error: Exception, folder: Path) -> bool:
    """Whether a write failed for want of space; libraries that write in other languages raise errors of their own."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    try:
        return shutil.disk_usage(folder).free < FULL_DISK
    except OSError:
        return False


@functools.cache
def _machine() -> str:
    """A few digits for this machine: the number of a process means nothing on another one that shares the folder."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@functools.cache
def _remove_leftovers(folder: Path) -> None:
    """Remove, once per folder, the unfinished files of processes of this machine that no longer exist."""
    for leftover in folder.glob(f".*-{_machine()}-*.part"):
        number = leftover.name.removesuffix(".part").rpartition("-")[2]
        if number.isdigit() and not _is_running(int(number)):
            leftover.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere signal 0 would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def is_own_file(path: Path) -> bool:
    """Whether the path names nothing, or a regular file: no link to another, no second name of one, no folder or pipe."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(about.st_mode) and about.st_nlink == 1


def move_into_place(unfinished: Path, path: Path) -> None:
    """Rename a finished file, whose bytes are on the disk, to its final name; the rename is durable, too."""
    os.replace(unfinished, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write the rename itself to the disk; systems that cannot open folders do it by themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def spreadsheet_text(text: str) -> str:
    """The text for a CSV file; one that a spreadsheet would run as a formula is prefixed with an apostrophe.

    >>> spreadsheet_text("=1+1"), spreadsheet_text("a.png")
    ("'=1+1", 'a.png')
    """
    return f"'{text}" if FORMULA.match(text) else text


def write_csv(path: Path, rows: pd.DataFrame) -> None:
    """Write rows as CSV atomically; no text in them is a formula to a spreadsheet."""
    texts = {name: column.map(_guarded) for name, column in rows.items() if column.dtype.kind not in "biuf"}
    write_atomically(path, lambda unfinished: rows.assign(**texts).to_csv(unfinished, index=False))


def _guarded(cell: object) -> object:
    return spreadsheet_text(cell) if isinstance(cell, str) else cell


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Held by one run at a time, and released by the system however the run ends; the lock is the file `.lock` inside.

    A forked process, such as a data loader's, does not keep it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"`{folder}` is being written by another run: wait for it, or pass another --out") from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def cache_folder() -> Path:
    """The folder for downloads: LOCALITY_CACHE, else the platform's cache folder."""
    folder = os.environ.get("LOCALITY_CACHE")
    return Path(folder).expanduser() if folder else Path(platformdirs.user_cache_dir("locality"))


def packaged_file(name: str) -> Path:
    """A manifest or suite that ships with locality, in the wheel or in the checkout; the error lists what there is.

    >>> packaged_file("manifests/photos.csv").name
    'photos.csv'
    """
    folder, _, file = name.partition("/")
    if folder not in PACKAGED:
        raise FileNotFoundError(f"`{name}` must start with {' or '.join(f'{folder}/' for folder in PACKAGED)}")
    folders = [PACKAGE / "shipped_files" / folder, PACKAGE.parent / PACKAGED[folder]]
    for candidate in folders:
        if file and (candidate / file).is_file():
            return candidate / file
    files = sorted({path.name for parent in folders if parent.is_dir() for path in parent.iterdir() if path.is_file()})
    raise FileNotFoundError(f"locality ships no `{name}`: {folder}/ has {', '.join(files) or 'no files'}")


def file_hash(path: str | Path, algorithm: str = "sha256") -> str:
    """The hash of a file in hexadecimal digits; the file is read in blocks.

    >>> file_hash(os.devnull)[:16]
    'e3b0c44298fc1c14'
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a JSON file with a hash of itself, which `is_intact` checks after reading."""
    return {**content, SEAL: _content_hash(content)}


def is_intact(content: Mapping[str, Any]) -> bool:
    """Whether the content is what was sealed. One without a seal, of an earlier version, counts as intact.

    >>> is_intact(sealed({"rows": 3})), is_intact(sealed({"rows": 3}) | {"rows": 2}), is_intact({"rows": 3})
    (True, False, True)
    """
    return SEAL not in content or content[SEAL] == _content_hash(content)


def _content_hash(content: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps({key: value for key, value in content.items() if key != SEAL}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@functools.cache
def source_hashes() -> Mapping[str, str]:
    """The sha256 of each of locality's own source files that can influence a measured number.

    >>> "boundary/bisect.py" in source_hashes(), "cli/bench.py" in source_hashes()
    (True, False)
    """
    names = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    chosen = (
        name for name in names if name.startswith(RUNNER_WITH_NUMBERS) or name.partition("/")[0] not in WITHOUT_NUMBERS
    )
    return {name: file_hash(PACKAGE / name) for name in chosen}


def source_hash() -> str:
    """One hash of all of `source_hashes`: stored numbers are of this code."""
    return _content_hash(source_hashes())
