"""Fetch one file over http or https: resume, retry, verify, rename. Nothing else in locality opens a connection.

The bytes go to `NAME.part`, what a resume needs to `NAME.part.json`; `NAME` appears whole and verified, or not at all.
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
import urllib.request as web
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from locality.files import file_hash

try:
    import fcntl
except ImportError:  # Windows: two downloads of one target are not kept apart there
    fcntl = None  # type: ignore[assignment]

FIRST_WAIT = 1.0  # seconds before the first retry; each further one waits twice as long
LONGEST_WAIT = 60.0  # seconds, also where a server's Retry-After asks for more
BLOCK = 1 << 20  # bytes, the most that is read or hashed at once
SNIFFED = 512  # bytes looked at to tell an HTML page from a file


class DownloadError(OSError):
    """A file that could not be downloaded, or that is not the one expected."""


class _TransferError(Exception):
    # A failure that may pass: worth another try, after `wait` seconds at least.
    def __init__(self, happened: str, wait: float = 0.0) -> None:
        super().__init__(happened)
        self.wait = wait


class _Answers(web.HTTPRedirectHandler):
    # Gives every answer back, errors too, and follows redirects to http and https only, never from https to http.
    def redirect_request(
        self, req: web.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> web.Request | None:
        if urlsplit(newurl).scheme not in (("https",) if req.type == "https" else ("http", "https")):
            raise urllib.error.HTTPError(newurl, code, f"redirection to url '{newurl}' is not allowed", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_default(self, _request: object, response: IO[bytes], *_: object) -> IO[bytes]:
        return response


@dataclass(frozen=True)
class _Job:
    url: str
    path: Path
    checksum: str | None
    size: int | None
    timeout: float
    progress: Callable[[int, int | None], None]

    def beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def failure(self, happened: str) -> DownloadError:
        return DownloadError(
            f"`{self.url}` could not be downloaded: {happened}; try again (a new try resumes where this one stopped), "
            f"or fetch the file by other means and put it at `{self.path}`"
        )


def download(
    url: str,
    path: str | Path,
    checksum: str | None = None,
    size: int | None = None,
    retries: int = 5,
    timeout: float = 30.0,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Download `url` to `path`, unless it is there already, and give the path back.

    `checksum` is "sha256:HEX" or "md5:HEX"; the HEX of a sha256 may be its first 8 characters or more, which is what
    torchvision publishes. Without one, the sha256 first seen is kept in `path` + ".sha256", and later downloads need
    it too. An interrupted download resumes, also in another process. `retries` are those without progress in between;
    `timeout` is the longest silence in seconds; `progress(done, total)` counts bytes, `total` is None where unknown.
    """
    if checksum is not None and not re.fullmatch(r"(?i)sha256:[0-9a-f]{8,64}|md5:[0-9a-f]{32}", checksum):
        raise ValueError(f"`checksum` must be 'sha256:' and 8 to 64 hex digits or 'md5:' and 32, got {checksum!r}")
    if not re.fullmatch(r"(?i)https?://[!-~]+", url):
        raise DownloadError(f"`url` must be a percent-encoded http or https address, got {url!r}: nothing was opened")
    if Path(path).is_dir():
        raise DownloadError(f"`path` must name a file, got the folder `{path}`: add a file name")
    job = _Job(url, Path(path), checksum and checksum.lower(), size, timeout, progress or (lambda done, total: None))
    part = job.beside(".part")
    job.path.parent.mkdir(parents=True, exist_ok=True)
    while not job.path.exists():
        with _locked(part) as file:
            try:
                # While this process waited for the lock, another may have finished the file or tidied the part away.
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
    # Unbuffered, so that every byte received survives a kill, and a full disk is reported once, where it happens.
    with open(part, "r+b", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
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
            # The furthest point ever, not the last one: a server that always cuts at the same byte makes no progress.
            failures = 1 if _length(file) > furthest else failures + 1
            furthest = max(furthest, _length(file))
            if failures > retries:
                raise job.failure(str(problem)) from problem
            time.sleep(min(max(problem.wait, FIRST_WAIT * 2.0 ** (failures - 1)), LONGEST_WAIT))


def _attempt(job: _Job, file: io.FileIO) -> None:
    validator, total = _remembered(job)
    offset = _length(file) if validator or total else 0  # without either, nothing says what the bytes here belong to
    if offset and offset == total:
        return  # stopped between the last byte and the rename
    with _answer(job, offset, validator) as response:
        status, headers = response.status, response.headers
        if offset and status in (206, 416):
            found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", headers.get("Content-Range", ""))
            begins, whole = (int(found[1] or found[2]), int(found[2])) if found else (None, None)
            same = _validator(headers) in (None, validator) and total in (None, whole) if validator else total == whole
            if begins != offset or not same:
                response.close()
                file.truncate(0)  # another file by now, or another place in it: start over
                _attempt(job, file)
            elif status == 206:
                _receive(job, file, response, offset, whole)
        elif status == 200:
            _receive(job, file, response, 0, response.length)
        elif status in (408, 429) or status >= 500:
            after = headers.get("Retry-After", "")  # seconds; for a date, which is rare, the usual wait will do
            raise _TransferError(f"the answer was {status} {response.reason}", float(after if after.isdecimal() else 0))
        else:
            raise job.failure(f"the answer was {status} {response.reason}")


def _answer(job: _Job, offset: int, validator: str | None) -> http.client.HTTPResponse:
    resume = {"Range": f"bytes={offset}-"} | ({"If-Range": validator} if validator else {})
    request = web.Request(job.url, headers={"User-Agent": "locality"} | (resume if offset else {}))
    opener = web.OpenerDirector()  # put together by hand: the stock one would also open files and ftp
    for handler in (web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPErrorProcessor, _Answers):
        opener.add_handler(handler())
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=job.timeout)
    except urllib.error.HTTPError as problem:  # of redirects only: all other answers are given back
        problem.close()
        raise job.failure(problem.msg.partition("\n")[0]) from problem
    except (OSError, http.client.HTTPException) as problem:
        reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
        if isinstance(reason, ssl.SSLCertVerificationError | http.client.InvalidURL):
            raise job.failure(str(reason)) from problem
        raise _TransferError(f"no answer came ({reason})") from problem
    return response


def _receive(job: _Job, file: io.FileIO, response: http.client.HTTPResponse, offset: int, total: int | None) -> None:
    if job.size is not None and total not in (None, job.size):
        raise job.failure(f"`size` is {job.size:,} bytes but the server's file has {total:,}")
    limit = job.size if total is None else total
    if response.will_close and not response.chunked:
        response.length = None  # read until the server hangs up, or bytes beyond the announced length would go unseen
    blocks = _blocks(response, None if limit is None else limit - offset)
    first = next(blocks, b"")
    opening = b"" if offset else first.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    page = response.headers.get_content_type() == "text/html" or opening.startswith((b"<!doctype html", b"<html"))
    if page and not urlsplit(job.url).path.lower().endswith((".html", ".htm")):
        raise job.failure("an HTML page came instead of the file (a browser may show what it wants, often a login)")
    if not offset:
        file.truncate(0)  # before the new validator is written, or old bytes would pass for the new file's
        note = {"url": job.url, "validator": _validator(response.headers), "total": total}
        job.beside(".part.json").write_text(json.dumps(note), "utf-8")
    file.seek(offset)
    for block in itertools.chain([first], blocks):
        offset += len(block)
        if limit is not None and offset > limit:
            file.truncate(0)
            raise job.failure(f"more than the expected {limit:,} bytes came, which were thrown away")
        try:
            while block := block[file.write(block) :]:  # a write may be short
                pass
        except OSError as problem:
            raise job.failure(f"writing to `{job.beside('.part')}` failed ({problem.strerror})") from problem
        job.progress(offset, limit)


def _blocks(response: http.client.HTTPResponse, expected: int | None) -> Iterator[bytes]:
    # The first block has at least SNIFFED bytes or the whole body, so that a page is known before anything is written.
    arrived, held, block = 0, b"", b"?"
    while block:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException) as problem:
            if arrived != expected:
                raise _TransferError(f"the transfer broke off ({problem})") from problem
            block = b""  # everything came; that the server then hangs or resets does no harm
        arrived, held = arrived + len(block), held + block
        if not block and expected is not None and arrived < expected:
            raise _TransferError(f"the transfer ended after {arrived:,} of {expected:,} bytes")
        if held and (arrived >= SNIFFED or not block):
            yield held
            held = b""


def _remembered(job: _Job) -> tuple[str | None, int | None]:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # lost or damaged
        note = json.loads(job.beside(".part.json").read_text("utf-8"))
        return (note["validator"], note["total"]) if note["url"] == job.url else (None, None)
    return None, None


def _validator(headers: http.client.HTTPMessage) -> str | None:
    tag: str = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")  # If-Range takes no weak tags (W/"…")


def _finish(job: _Job, file: io.FileIO) -> None:
    part = job.beside(".part")
    os.fsync(file.fileno())
    if fault := _fault(job, part):
        file.truncate(0)
        raise DownloadError(f"`{job.url}` {fault}: the bytes were thrown away, try again or correct what is expected")
    if job.checksum is None:
        job.beside(".sha256").write_text(f"{file_hash(part)}  {job.path.name}\n", "utf-8")
    if fcntl is None:
        file.close()  # Windows does not rename open files; elsewhere the lock is held until the name is there
    os.replace(part, job.path)
    job.beside(".part.json").unlink(missing_ok=True)


def _fault(job: _Job, path: Path) -> str | None:
    if job.size not in (None, length := path.stat().st_size):
        return f"must have {job.size:,} bytes, got {length:,}"
    algorithm, _, expected = (job.checksum or "sha256:").partition(":")
    note, hint = job.beside(".sha256"), ""
    if job.checksum is None and note.exists():
        expected = (note.read_text("utf-8").split() or [""])[0]
        hint = f" (as at the first download; if the change is expected, delete `{note}`)"
    if not expected or (found := file_hash(path, algorithm)).startswith(expected):
        return None
    return f"must have {algorithm} {expected[:16]}{hint}, got {found[:16]}"
