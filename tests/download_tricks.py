"""Tricks of a server, or of anyone who can write to the cache, on a download; `test_download_tricks.py` plays them."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted_server import BODY, Answer

OTHER = random.Random(1).randbytes(len(BODY))
HALF = len(BODY) // 2
SHA256, OTHER_SHA256 = (f"sha256:{hashlib.sha256(body).hexdigest()}" for body in (BODY, OTHER))
PAGE = b"<!DOCTYPE html><title>Please log in</title>" + b" " * 1000
DATE = ("Last-Modified", "Tue, 01 Jul 2025 10:00:00 GMT")
OK = Answer()
HALVED = Answer(cut=HALF)
PART, NOTE, HASH = (f"weights.pth{ending}" for ending in (".part", ".part.json", ".sha256"))
PRECIOUS = b"somebody's only copy"


@dataclass(frozen=True)
class Trick:
    """What the server answers, what is in the folder before, and how the download must end."""

    answers: tuple[Answer, ...] = (OK,)
    refused: str = ""  # a part of the sentence; empty: the right file arrives
    before: Answer | None = None  # of an earlier download, which leaves half a file
    folder: Callable[[Path, str], None] | None = None  # changes the folder, given it and the address
    keeps: tuple[str, ...] = ()  # files that may stay after a refusal: what resuming needs, and what was there before
    body: bytes = BODY
    options: dict[str, Any] = field(default_factory=dict)  # of `download`
    limits: dict[str, float] = field(default_factory=dict)  # constants of the module
    room: int | None = None  # bytes that a file may have


def raw(*lines: str, body: bytes = b"", **more: Any) -> Answer:
    return Answer(raw="\r\n".join([*lines, "", ""]).encode("latin-1") + body, **more)


def redirect(address: str, status: int = 302) -> Answer:
    return Answer(status=status, body=b"", headers=(("Location", address),))


def note(**changes: Any) -> Callable[[Path, str], None]:
    def change(folder: Path, url: str) -> None:
        known = {"url": url, "marks": {"tag": '"one"', "date": None}, "total": len(BODY)}
        (folder / NOTE).write_text(json.dumps(known | changes))

    return change


def file(name: str, content: bytes) -> Callable[[Path, str], None]:
    def change(folder: Path, url: str) -> None:
        (folder / name).write_bytes(content)

    return change


def link(name: str, hard: bool = False) -> Callable[[Path, str], None]:
    def change(folder: Path, url: str) -> None:
        (folder / name).unlink(missing_ok=True)
        precious = folder.parent / "precious"
        os.link(precious, folder / name) if hard else (folder / name).symlink_to(precious)

    return change


def pipe(name: str) -> Callable[[Path, str], None]:
    def change(folder: Path, url: str) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


RESUME = (PART, NOTE)
SLOW = {"RATE_SECONDS": 0.2}
ONCE = {"retries": 0}
HEAD = "HTTP/1.1 200 OK"
CHUNKED = (HEAD, "Transfer-Encoding: chunked", "Connection: close")

TRICKS: dict[str, Trick] = {
    # The transfer breaks off, or never ends.
    "cut in the middle": Trick((HALVED, OK)),
    "cut before the first byte": Trick((Answer(cut=0), OK)),
    "cut before the last byte": Trick((Answer(cut=len(BODY) - 1), OK)),
    "cut again and again, a little further": Trick(
        tuple(Answer(cut=cut) for cut in range(50_000, 300_000, 50_000)),
        options={"retries": 1},
        refused="the transfer ended after 0 of",
        keeps=RESUME,
    ),
    "cut at the same byte for ever": Trick(
        (Answer(cut=HALF, ranges=False),), options={"retries": 2}, refused="150,000 of 300,000 bytes", keeps=RESUME
    ),
    "reset in the middle": Trick((Answer(cut=HALF, reset=True), OK)),
    "reset after the last byte": Trick((Answer(reset=True),)),
    "silence in the middle": Trick((Answer(cut=HALF, stall=True), OK), options={"timeout": 0.2}),
    "silence after the last byte": Trick((Answer(stall=True),), options={"timeout": 0.2}),
    "silence before the answer": Trick((Answer(raw=b"", stall=True), OK), options={"timeout": 0.2}),
    "silence inside the headers": Trick(
        (Answer(raw=b"HTTP/1.1 200 OK\r\nETag: ", stall=True), OK), options={"timeout": 0.2}
    ),
    "no answer at all": Trick((Answer(raw=b""), OK)),
    "a byte now and then": Trick((Answer(drip=0.02),), "bytes per second, at least 1,000", options=ONCE, limits=SLOW),
    "headers a byte at a time": Trick(
        (Answer(drip=0.02, drip_headers=True),), "bytes per second, at least 1,000", options=ONCE, limits=SLOW
    ),
    "longer than a download may take": Trick((Answer(drip=0.02),), "longer than", limits={"LONGEST": 0.3}),
    # Lengths that are not true.
    "a length beyond the body": Trick((Answer(length=len(BODY) + 5), OK), "of 300,005 bytes", options=ONCE, keeps=RESUME),
    "a length within the body": Trick((Answer(length=HALF),), "more than the expected 150,000 bytes"),
    "a negative length": Trick((raw(HEAD, "Content-Length: -5", "Connection: close", body=BODY),)),
    "a length that is no number": Trick((raw(HEAD, "Content-Length: many", "Connection: close", body=BODY),)),
    "two lengths": Trick(
        (raw(HEAD, f"Content-Length: {HALF}", f"Content-Length: {len(BODY)}", "Connection: close", body=BODY),), "more than"
    ),
    "a length of 10³⁰": Trick((raw(HEAD, f"Content-Length: 1{'0' * 30}", body=BODY),), "bytes, at most"),
    "a file above the limit": Trick((OK,), "it has 300,000 bytes, at most", limits={"MAX_BYTES": HALF}),
    "an endless body without a length": Trick(
        (Answer(length=-1),), "more than the 150,000 bytes that are allowed", limits={"MAX_BYTES": HALF}
    ),
    "another length than the stated size": Trick((OK,), "`size` is", options={"size": 5}),
    "no length and fewer bytes than the stated size": Trick((Answer(cut=HALF, length=-1), OK), options={"size": len(BODY)}),
    "no length and more bytes than the stated size": Trick((Answer(length=-1),), "more than", options={"size": HALF}),
    # Chunks.
    "chunks cut off": Trick((Answer(cut=HALF, chunked=True), Answer(chunked=True))),
    "chunks beyond the stated size": Trick((Answer(chunked=True),), "more than", options={"size": HALF}),
    "a chunk shorter than it says": Trick((raw(*CHUNKED, body=b"fffff\r\n" + BODY), OK)),
    "a chunk of a length that is no number": Trick((raw(*CHUNKED, body=b"zz\r\n" + BODY), OK)),
    "a chunk of negative length": Trick((raw(*CHUNKED, body=b"-5\r\n" + BODY), OK)),
    "a chunk with an endless extension": Trick((raw(*CHUNKED, body=b"5;" + b"x" * 100_000), OK)),
    "chunks without an end": Trick((raw(*CHUNKED, body=b"%x\r\n%b\r\n" % (len(BODY), BODY)), OK)),
    # Compression that nobody asked for.
    "compressed without being asked": Trick(
        (Answer(body=gzip.compress(BODY), headers=(("Content-Encoding", "gzip"),)),), "compressed"
    ),
    "a gzip bomb": Trick(
        (Answer(body=gzip.compress(bytes(20_000_000)), headers=(("Content-Encoding", "gzip"),)),), "compressed"
    ),
    # Other bytes than expected.
    "another file than the published one": Trick((Answer(body=OTHER),), "must have sha256", options={"checksum": SHA256}),
    "another file than at the first download": Trick(
        (Answer(body=OTHER),), "that of the first download", folder=file(HASH, SHA256[7:].encode()), keeps=(HASH,)
    ),
    "a page that calls itself one": Trick((Answer(content_type="text/html; charset=x"),), "HTML page"),
    "a page that calls itself a file": Trick((Answer(body=PAGE),), "HTML page"),
    "a page in pieces": Trick((Answer(body=PAGE, dribble=5),), "HTML page"),
    "a page behind a byte order mark": Trick((Answer(body=b"\xef\xbb\xbf\r\n" + PAGE),), "HTML page"),
    "a page while resuming": Trick((Answer(body=PAGE, etag=None, ranges=False),), "HTML page", before=HALVED, keeps=RESUME),
    # Ranges.
    "range ignored": Trick((Answer(ranges=False),), before=HALVED),
    "range ignored, and a shorter file": Trick((Answer(body=OTHER[:1000], ranges=False),), before=HALVED, body=OTHER[:1000]),
    "a range that begins elsewhere": Trick((Answer(begins=HALF - 1), OK), before=HALVED),
    "a range without its place": Trick((Answer(status=206), OK), before=HALVED),
    "a range of another total": Trick((Answer(body=OTHER + b"!"),), before=HALVED, body=OTHER + b"!"),
    "a range longer than it says": Trick(
        (raw("HTTP/1.0 206 P", 'ETag: "one"', f"Content-Range: bytes {HALF}-{len(BODY) - 1}/{len(BODY)}", body=BODY),),
        "more than the expected",
        before=HALVED,
    ),
    "a range that nobody asked for": Trick((Answer(status=206),), "answered 206"),
    "416 while resuming": Trick((Answer(status=416, body=b""), OK), before=HALVED),
    "416 at the first request": Trick((Answer(status=416, body=b""),), "answered 416"),
    # The file changes between two requests.
    "another tag": Trick((Answer(body=OTHER, etag='"two"'),), before=HALVED, body=OTHER),
    "another tag, and If-Range ignored": Trick(
        (Answer(body=OTHER, etag='"two"', if_range=False),), before=HALVED, body=OTHER
    ),
    "a date instead of the tag": Trick(
        (Answer(body=OTHER, etag=None, headers=(DATE,), if_range=False),), before=HALVED, body=OTHER
    ),
    "another weak tag of the same date": Trick(
        (Answer(body=OTHER, etag='W/"b"', headers=(DATE,), if_range=False),),
        before=Answer(etag='W/"a"', cut=HALF, headers=(DATE,)),
        body=OTHER,
    ),
    "another file of the same length without marks": Trick(
        (Answer(body=OTHER, etag=None),), before=Answer(etag=None, cut=HALF), body=OTHER
    ),
    "another file under the same tag": Trick(
        (Answer(body=OTHER),), "must have sha256", before=HALVED, options={"checksum": SHA256}
    ),
    # Answers that are none.
    "500, then the file": Trick((Answer(status=500, body=b""), OK)),
    "503 that asks to wait for a year": Trick(
        (Answer(status=503, body=b"", headers=(("Retry-After", "31536000"),)), OK), limits={"LONGEST_WAIT": 0.01}
    ),
    "502 for ever": Trick((Answer(status=502, body=b""),), "502 Bad Gateway", options={"retries": 1}),
    "404": Trick((Answer(status=404),), "404 Not Found"),
    "403 with a page": Trick((Answer(status=403, body=PAGE, content_type="text/html"),), "403"),
    "204 without content": Trick((Answer(status=204, body=b""),), "answered 204"),
    "304 not modified": Trick((Answer(status=304, body=b""),), "answered 304"),
    "another protocol": Trick((Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n"),), "no answer", options={"retries": 1}),
    "many times 100 Continue": Trick(
        (Answer(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 90 + b"HTTP/1.0 200 OK\r\n\r\n" + BODY),)
    ),
    "a header of 100,000 characters": Trick((raw(HEAD, "X: " + "x" * 100_000),), "no answer", options={"retries": 1}),
    "10,000 headers": Trick((raw(HEAD, *(f"X-{n}: 1" for n in range(10_000))),), "no answer", options={"retries": 1}),
    # Redirects.
    "redirects in a circle": Trick((redirect("/weights.pth"),), "infinite loop"),
    "a long chain of redirects": Trick(tuple(redirect(f"/{n}") for n in range(30)), "infinite loop"),
    "redirect to a file of this machine": Trick((redirect("file:///etc/passwd"), OK), "not allowed"),
    "redirect to ftp": Trick((redirect("ftp://127.0.0.1/a"), OK), "not allowed"),
    "redirect to data in the address": Trick((redirect("data:,a"), OK), "not allowed"),
    "redirect to plain http on the network": Trick((redirect("http://192.0.2.1/weights.pth"),), "not allowed"),
    "redirect without an address": Trick((Answer(status=302, body=b""),), "answered 302"),
    "redirect to a broken address": Trick((redirect("http://[::1/weights.pth"),), "could not be downloaded"),
    "redirect to a port that cannot be": Trick((redirect("http://127.0.0.1:99999999/"),), "could not be", options=ONCE),
    "redirect to control characters": Trick((redirect("/a\x1b]0;b\x07 c"), OK)),
    "redirect to a page": Trick((redirect("/login"), Answer(body=PAGE)), "HTML page"),
    # What lies in the folder.
    "a part of another address": Trick(before=HALVED, folder=note(url="http://127.0.0.1/other")),
    "a part that is too long": Trick(before=HALVED, folder=file(PART, BODY + b"!")),
    "a whole part of other bytes": Trick(
        before=HALVED, folder=file(PART, OTHER), options={"checksum": SHA256}, refused="must have sha256"
    ),
    "a damaged note": Trick(before=HALVED, folder=file(NOTE, b'{"url": "htt\xff')),
    "a note nested 100,000 deep": Trick(before=HALVED, folder=file(NOTE, b"[" * 100_000)),
    "a note with a number for a tag": Trick(before=HALVED, folder=note(marks={"tag": 5, "date": None})),
    "a note that smuggles headers": Trick(before=HALVED, folder=note(marks={"tag": '"a"\r\nX: y', "date": None})),
    "a note with a text for a total": Trick(before=HALVED, folder=note(total="all")),
    "a pipe for a note": Trick(before=HALVED, folder=pipe(NOTE)),
    "a symbolic link for a part": Trick(folder=link(PART), refused="regular file", keeps=(PART,)),
    "a hard link for a part": Trick(folder=link(PART, hard=True), refused="regular file", keeps=(PART,)),
    "a pipe for a part": Trick(folder=pipe(PART), refused="regular file", keeps=(PART,)),
    "a folder for a part": Trick(folder=lambda folder, url: (folder / PART).mkdir(), refused="regular file", keeps=(PART,)),
    "a pipe for the file": Trick(folder=pipe("weights.pth"), refused="must name a file", keeps=("weights.pth",)),
    "a link to nowhere for the file": Trick(folder=lambda folder, url: (folder / "weights.pth").symlink_to("../nowhere")),
    "a pipe for the stored hash": Trick(folder=pipe(HASH), refused="regular file", keeps=(HASH,)),
    "a stored hash of noise": Trick(folder=file(HASH, b"\xff\xfe\x00 noise"), refused="must have sha256", keeps=(HASH,)),
    "another file in its place": Trick(
        folder=file("weights.pth", OTHER), options={"checksum": SHA256}, refused="delete the file", keeps=("weights.pth",)
    ),
    "a full disk": Trick(room=HALF, refused="File too large", keeps=RESUME),
}
