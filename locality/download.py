"""Download one file over http or https: resume, retry, verify, rename. Nothing else in locality opens a connection.

The bytes go to `NAME.part`, and what resuming needs to `NAME.part.json`. `NAME` appears only when it is complete, verified
and on the disk.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import json
import os
import re
import ssl
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from locality.connection import Marks, Pace, SlowError, is_private, marks_of, open_address
from locality.errors import ArgumentError
from locality.files import file_hash, is_own_file, move_into_place, write_atomically
from locality.progress import Progress, no_progress
from locality.toml_settings import read_json

try:
    import fcntl
except ImportError:  # Windows has no such locks: two downloads of one file are not kept apart
    fcntl = None  # type: ignore[assignment]

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds before a retry; each waits twice as long, or as Retry-After asks
BLOCK = 1 << 20  # bytes read at once
MAX_BYTES = 16 * 2**30  # of a file whose size is not given
LEAST_RATE, RATE_SECONDS = 1000.0, 60.0  # bytes per second, over so many seconds of waiting
LONGEST = 24 * 3600.0  # seconds for a whole download, retries included
SNIFFED = 512  # first bytes, which tell an HTML page from a file


class DownloadError(OSError):
    """A file that could not be downloaded, or that is not the one expected."""


class _TransferError(Exception):
    # A temporary failure: retried after at least `wait` seconds.
    def __init__(self, happened: str, wait: float = 0.0, slow: bool = False) -> None:
        super().__init__(happened)
        self.wait, self.slow = wait, slow


@dataclass(frozen=True)
class _Job:
    url: str
    path: Path
    checksum: str | None
    size: int | None
    timeout: float
    progress: Progress
    ends: float  # on the monotonic clock

    def beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def is_verified(self) -> bool:
        """Whether the bytes must have a known hash: a published one, or that of an earlier download."""
        return self.checksum is not None or self.beside(".sha256").is_file()

    def failure(self, happened: str) -> DownloadError:
        return DownloadError(
            f"`{self.url}` could not be downloaded: {' '.join(happened.split())}; run the same command to resume, "
            f"or get the file by other means and put it at `{self.path}`"
        )


def download(
    url: str,
    path: str | Path,
    checksum: str | None = None,
    size: int | None = None,
    retries: int = 5,
    timeout: float = 30.0,
    progress: Progress = no_progress,
) -> Path:
    """Download `url` to `path`, unless it exists already, and return the path.

    `checksum` is "sha256:HEX" or "md5:HEX"; the HEX of a sha256 may be its first 8 characters or more, which is what
    torchvision publishes. Without a checksum, the sha256 of the first download is stored in `path` + ".sha256", and later
    downloads must have it too; plain http is refused unless one of the two is known. An interrupted download resumes, also
    in another process. `retries` counts retries in a row that made no progress; `timeout` is the longest silence in seconds;
    `progress(done, total)` counts bytes, and `total` is None if it is unknown.
    """
    if checksum is not None and not re.fullmatch(r"(?i)sha256:[0-9a-f]{8,64}|md5:[0-9a-f]{32}", checksum):
        raise ArgumentError("checksum", "'sha256:' and 8 to 64 hexadecimal digits, or 'md5:' and 32", checksum)
    if not re.fullmatch(r"(?i)https?://[!-~]+", url):
        raise DownloadError(f"`url` must be a percent-encoded http or https address, got {url!r}: nothing was opened")
    job = _Job(url, Path(path), checksum and checksum.lower(), size, timeout, progress, time.monotonic() + LONGEST)
    part, stored = job.beside(".part"), job.beside(".sha256")
    if job.path.exists() and not job.path.is_file():
        raise DownloadError(f"`path` must name a file, got the folder, pipe or device `{path}`: choose another name")
    if wrong := [str(one) for one in (part, stored) if not is_own_file(one)]:
        raise DownloadError(f"`{wrong[0]}` must be a regular file without another name: delete it")
    if not job.path.exists() and not job.is_verified() and not is_private(url):
        raise DownloadError(
            f"`{url}` is plain http, and no checksum of the file is known, so anybody on the way could change it: nothing "
            f"was opened; use an https address, or put a file that you trust at `{job.path}`"
        )
    job.path.parent.mkdir(parents=True, exist_ok=True)
    while not job.path.exists():
        with _locked(part) as file:
            try:
                # While this process waited for the lock, another may have finished the file or removed the part.
                if not job.path.exists() and _is_at(file, part):
                    _fetch(job, file, retries)
                    _finish(job, file)
                    return job.path
            finally:
                if fcntl is not None and _is_at(file, part) and _length(file) == 0:  # Windows keeps open files
                    job.beside(".part.json").unlink(missing_ok=True)
                    part.unlink()
    if fault := _fault(job, job.path):
        raise DownloadError(f"`{job.path}` {fault}: delete the file and try again")
    return job.path


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[io.FileIO]:
    # Unbuffered: received bytes survive a kill. The part itself is locked; filelock would leave another file in the cache.
    never = getattr(os, "O_NOFOLLOW", 0)  # a link would lead to a file that is not ours
    with open(part, "r+b", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_CREAT | never, 0o666)) as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some cluster file systems have no locks; better no lock than no file
                fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _is_at(file: io.FileIO, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _length(file: io.FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _fetch(job: _Job, file: io.FileIO, retries: int) -> None:
    failures, furthest = 0, _length(file)
    while True:
        try:
            return _attempt(job, file)
        except _TransferError as problem:
            # The furthest point ever, not the last one: a server that always stops at the same byte makes no progress.
            # A slow server's progress does not count: it could go on for weeks.
            failures = 1 if _length(file) > furthest and not problem.slow else failures + 1
            furthest = max(furthest, _length(file))
            wait = min(max(problem.wait, FIRST_WAIT * 2.0 ** (failures - 1)), LONGEST_WAIT)
            if failures > retries:
                raise job.failure(str(problem)) from problem
            if time.monotonic() + wait >= job.ends:
                raise job.failure(f"it took longer than {LONGEST:,.0f} seconds ({problem})") from problem
            time.sleep(wait)


def _attempt(job: _Job, file: io.FileIO) -> None:
    marks, total = _resume_note(job)
    # Without a validator, only a checksum tells whether the rest belongs to the same file.
    offset = _length(file) if marks.validator or (total and job.is_verified()) else 0
    if offset and offset == total:
        return  # interrupted between the last byte and the rename
    with _answer(job, offset, marks.validator) as response:
        status, headers = response.status, response.headers
        encoding = headers.get("Content-Encoding", "identity")
        # Some servers say so of a file that is gzip by itself.
        if status < 300 and encoding != "identity" and not job.is_verified() and not job.url.endswith(("gz", ".tgz")):
            raise job.failure(f"the server sent it compressed ({encoding}), which was not requested")
        if offset and status in (206, 416):
            span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", headers.get("Content-Range", ""))
            begins, whole = (int(span[1] or span[2]), int(span[2])) if span else (None, None)
            known = total in (None, whole) if marks.validator else total == whole
            if begins != offset or not known or not marks.is_same(marks_of(headers)):
                response.close()
                file.truncate(0)  # the file has changed, or another part of it came: start over
                _attempt(job, file)
            elif status == 206:
                _receive(job, file, response, offset, whole)
        elif status == 200:
            _receive(job, file, response, 0, response.length)
        elif status in (408, 429) or status >= 500:
            after = headers.get("Retry-After", "")  # in seconds; a date, which is rare, gets the usual wait
            raise _TransferError(f"the server answered {status} {response.reason}", float(after if after.isdecimal() else 0))
        else:
            raise job.failure(f"the server answered {status} {response.reason}")


def _answer(job: _Job, offset: int, validator: str | None) -> http.client.HTTPResponse:
    resume = {"Range": f"bytes={offset}-"} | ({"If-Range": validator} if validator else {})
    headers = {"User-Agent": "locality"} | (resume if offset else {})
    try:
        response = open_address(job.url, headers, job.timeout, job.is_verified(), Pace(job.ends, LEAST_RATE, RATE_SECONDS))
    except urllib.error.HTTPError as problem:  # of redirects only: all other responses are returned
        problem.close()
        raise job.failure(problem.msg.partition("\n")[0]) from problem
    except (OSError, http.client.HTTPException) as problem:
        reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        if isinstance(reason, ssl.SSLCertVerificationError | http.client.InvalidURL):
            raise job.failure(str(reason)) from problem
        raise _TransferError(f"no answer from the server ({reason})", slow=isinstance(reason, SlowError)) from problem
    return response


def _receive(job: _Job, file: io.FileIO, response: http.client.HTTPResponse, offset: int, total: int | None) -> None:
    if job.size is not None and total not in (None, job.size):
        raise job.failure(f"`size` is {job.size:,} bytes but the server's file has {total:,}")
    if job.size is None and (total or 0) > MAX_BYTES:
        raise job.failure(f"it has {total:,} bytes, at most {MAX_BYTES:,} are downloaded")
    limit = job.size if total is None else total
    if response.will_close and not response.chunked:
        response.length = None  # read until the connection closes, or bytes beyond the announced length go unnoticed
    blocks = _blocks(response, None if limit is None else limit - offset)
    first = next(blocks, b"")
    opening = b"" if offset else first.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    page = response.headers.get_content_type() == "text/html" or opening.startswith((b"<!doctype html", b"<html"))
    if page and not urlsplit(job.url).path.lower().endswith((".html", ".htm")):
        raise job.failure("the server sent an HTML page instead of the file (open it in a browser: it may ask for a login)")
    if not offset:
        file.truncate(0)  # before the new validator is written, or old bytes would be taken for the new file's
        os.fsync(file.fileno())
        note = {"url": job.url, "marks": asdict(marks_of(response.headers)), "total": total}
        write_atomically(job.beside(".part.json"), json.dumps(note))
    file.seek(offset)
    for block in itertools.chain([first], blocks):
        offset += len(block)
        if offset > (MAX_BYTES if limit is None else limit):
            file.truncate(0)
            most = f"the {MAX_BYTES:,} bytes that are allowed" if limit is None else f"the expected {limit:,} bytes"
            raise job.failure(f"the server sent more than {most}, which were discarded")
        try:
            while block := block[file.write(block) :]:  # a write may be short
                pass
        except OSError as problem:
            raise job.failure(f"writing to `{job.beside('.part')}` failed ({problem.strerror})") from problem
        job.progress(offset, limit)


def _blocks(response: http.client.HTTPResponse, expected: int | None) -> Iterator[bytes]:
    # The first block has at least SNIFFED bytes or the whole body, so that a page is recognised before anything is written.
    arrived, held, block = 0, b"", b"?"
    while block:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException) as problem:
            if arrived != expected:
                slow = isinstance(problem, SlowError)
                raise _TransferError(f"the transfer was interrupted ({problem})", slow=slow) from problem
            block = b""  # everything was received; a reset afterwards does no harm
        arrived, held = arrived + len(block), held + block
        if not block and expected is not None and arrived < expected:
            raise _TransferError(f"the transfer ended after {arrived:,} of {expected:,} bytes")
        if held and (arrived >= SNIFFED or not block):
            yield held
            held = b""


def _resume_note(job: _Job) -> tuple[Marks, int | None]:
    """What identified the file when its first byte came, and its length."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # lost or damaged
        note = read_json(job.beside(".part.json"))
        if note["url"] == job.url and isinstance(note["total"], int | None):
            return Marks(**note["marks"]).checked(), note["total"]
    return Marks(), None


def _finish(job: _Job, file: io.FileIO) -> None:
    part = job.beside(".part")
    os.fsync(file.fileno())
    if fault := _fault(job, part):
        file.truncate(0)
        raise DownloadError(f"`{job.url}` {fault}: the bytes were discarded; try again, or correct what is expected")
    if job.checksum is None:
        write_atomically(job.beside(".sha256"), f"{file_hash(part)}  {job.path.name}\n")
    if fcntl is None:
        file.close()  # Windows does not rename open files; elsewhere the lock is held until the file has its name
    move_into_place(part, job.path)
    job.beside(".part.json").unlink(missing_ok=True)


def _fault(job: _Job, path: Path) -> str | None:
    if job.size not in (None, length := path.stat().st_size):
        return f"must have {job.size:,} bytes, got {length:,}"
    algorithm, _, expected = (job.checksum or "sha256:").partition(":")
    note, hint = job.beside(".sha256"), ""
    if job.checksum is None and note.exists():
        expected = (note.read_text("utf-8", "replace").split() or [""])[0]
        hint = f" (that of the first download; if the change is expected, delete `{note}`)"
    if not expected or (actual := file_hash(path, algorithm)).startswith(expected):
        return None
    return f"must have {algorithm} {expected[:16]}{hint}, got {actual[:16]}"
