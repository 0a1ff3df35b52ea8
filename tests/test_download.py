"""`locality.download` against a scripted server on 127.0.0.1: what it asks for, what it keeps, what it refuses."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from pathlib import Path

import pytest
from scripted_server import BODY, Answer, Server, running_server

from locality import download as download_module
from locality.connection import _Answers
from locality.download import DownloadError, download
from locality.files import file_hash

ROOT = Path(__file__).resolve().parents[1]
OTHER = random.Random(1).randbytes(300_000)
HALF = 150_000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()
PAGE = b"\n<!DOCTYPE html><title>Please log in</title>" + b" " * 1000


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with running_server(monkeypatch) as running:
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "weights.pth"


def left(target: Path) -> set[str]:
    return {file.name for file in target.parent.iterdir()}


def leave_half(server: Server, target: Path, answer: Answer) -> None:
    server.answers = [answer]
    with pytest.raises(DownloadError):
        download(server.url, target, retries=0)
    assert target.with_name("weights.pth.part").read_bytes() == answer.body[:HALF]
    server.asked.clear()
    server.served.clear()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited 10 s in vain"
        time.sleep(0.005)


def in_another_process(url: str, target: Path) -> subprocess.Popen[bytes]:
    code = f"from locality.download import download; print('ready', flush=True); download({url!r}, {str(target)!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_whole_file_arrives_and_nothing_else_stays(server: Server, target: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    assert download(server.url, target, progress=lambda *call: calls.append(call)) == target
    assert target.read_bytes() == BODY
    assert left(target) == {"weights.pth", "weights.pth.sha256"}
    assert target.with_name("weights.pth.sha256").read_text() == f"{SHA256}  weights.pth\n"
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1] == (len(BODY), len(BODY))
    assert server.ranges() == [None]


def test_bytes_are_on_disk_before_the_name_is(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[object, ...]] = []  # what was done to which file or folder, and how large a synced one was
    fsync, replace = os.fsync, os.replace

    def noted_fsync(number: int) -> None:
        events.append(("fsync", os.fstat(number).st_ino, os.fstat(number).st_size))
        fsync(number)

    def noted_replace(source: Path, destination: Path) -> None:
        events.append(("replace", os.stat(source).st_ino))
        replace(source, destination)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    download(server.url, target)
    file, folder = target.stat(), target.parent.stat()
    renamed = events.index(("replace", file.st_ino))
    assert ("fsync", file.st_ino, file.st_size) in events[:renamed]
    assert events[renamed + 1][:2] == ("fsync", folder.st_ino)


def test_empty_file(server: Server, target: Path) -> None:
    server.answers = [Answer(body=b"")]
    assert download(server.url, target).read_bytes() == b""


def test_target_that_exists_needs_no_network(server: Server, target: Path) -> None:
    download(server.url, target)
    download(server.url, target)
    download(server.url, target, f"sha256:{SHA256}", size=len(BODY))
    assert len(server.asked) == 1


def test_target_put_there_by_hand_is_returned(server: Server, tmp_path: Path) -> None:
    by_hand = tmp_path / "weights.pth"
    by_hand.write_bytes(BODY)
    assert download(server.url, by_hand) == by_hand
    assert server.asked == []


def test_target_that_exists_and_differs_is_an_error(server: Server, target: Path) -> None:
    download(server.url, target)
    target.write_bytes(OTHER)
    for checksum in (None, f"sha256:{SHA256}", f"md5:{MD5}"):
        with pytest.raises(DownloadError, match="delete the file"):
            download(server.url, target, checksum)
    with pytest.raises(DownloadError, match=r"must have 5 bytes, got 300,000: delete the file"):
        download(server.url, target, size=5)
    assert target.read_bytes() == OTHER


def test_folder_as_target_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="got the folder, pipe or device"):
        download(server.url, tmp_path)


@pytest.mark.parametrize(
    "checksum",
    [f"sha256:{SHA256}", f"sha256:{SHA256[:8]}", f"SHA256:{SHA256.upper()}", f"md5:{MD5}"],
)
def test_checksum_that_matches(server: Server, target: Path, checksum: str) -> None:
    download(server.url, target, checksum, size=len(BODY))
    assert target.read_bytes() == BODY
    assert left(target) == {"weights.pth"}


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "sha256:" + "0" * 8, "md5:" + "0" * 32])
def test_checksum_that_differs_keeps_nothing_and_gives_both(server: Server, target: Path, checksum: str) -> None:
    algorithm, digits = checksum.split(":")
    found = {"sha256": SHA256, "md5": MD5}[algorithm][:16]
    with pytest.raises(DownloadError, match=f"must have {algorithm} {digits[:16]}, got {found}"):
        download(server.url, target, checksum)
    assert left(target) == set()


@pytest.mark.parametrize(
    "checksum",
    ["sha256:1234567", "md5:" + "0" * 31, "sha1:" + "0" * 40, "0" * 64, "sha256:01234xyz"],
)
def test_checksum_that_makes_no_sense(server: Server, target: Path, checksum: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(checksum))):
        download(server.url, target, checksum)
    assert server.asked == []


def test_first_seen_hash_refuses_a_changed_file(server: Server, target: Path) -> None:
    server.answers = [Answer(), Answer(body=OTHER, etag='"two"')]
    download(server.url, target)
    target.unlink()
    with pytest.raises(DownloadError, match=r"if the change is expected, delete `.*weights\.pth\.sha256`"):
        download(server.url, target)
    assert left(target) == {"weights.pth.sha256"}
    target.with_name("weights.pth.sha256").unlink()
    assert download(server.url, target).read_bytes() == OTHER


def test_truncated_transfer_goes_on_where_it_stopped(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF), Answer()]
    download(server.url, target)
    assert target.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-"]
    assert server.asked[1]["If-Range"] == '"one"'
    assert server.served == [HALF, len(BODY) - HALF]


def test_stall_goes_on_where_it_stopped(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF, stall=True), Answer()]
    download(server.url, target, timeout=0.3)
    assert target.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-"]


def test_server_that_sends_all_and_then_hangs_does_no_harm(server: Server, target: Path) -> None:
    server.answers = [Answer(stall=True)]
    assert download(server.url, target, retries=0, timeout=0.3).read_bytes() == BODY
    assert len(server.asked) == 1


def test_truncated_chunks_are_noticed(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF, chunked=True), Answer(chunked=True)]
    assert download(server.url, target).read_bytes() == BODY
    assert len(server.asked) == 2


def test_body_without_a_length_is_measured_against_size(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF, length=-1), Answer()]
    assert download(server.url, target, size=len(BODY)).read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-"]


def test_retries_count_failures_without_progress(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=cut) for cut in range(30_000, 300_000, 30_000)] + [Answer()]
    assert download(server.url, target, retries=1).read_bytes() == BODY
    assert len(server.asked) == 10


def test_retries_end_where_a_server_always_cuts_at_the_same_byte(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF, ranges=False)] * 5 + [Answer(status=404)]
    with pytest.raises(DownloadError, match="150,000 of 300,000 bytes") as caught:
        download(server.url, target, retries=2)
    assert len(server.asked) == 3
    for part in (server.url, str(target), "by other means", "to resume"):
        assert part in str(caught.value)
    assert left(target) == {"weights.pth.part", "weights.pth.part.json"}


def test_no_server_at_all_is_one_download_error(server: Server, target: Path) -> None:
    with Server() as closed:
        address = closed.url
    with pytest.raises(DownloadError, match="Connection refused"):
        download(address, target, retries=1)
    assert left(target) == set()


@pytest.mark.parametrize(
    "resumed",
    [Answer(body=OTHER, etag='"two"'), Answer(body=OTHER, etag='"two"', if_range=False)],
)
def test_file_that_changed_in_between_is_fetched_anew(server: Server, target: Path, resumed: Answer) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [resumed]
    assert download(server.url, target).read_bytes() == OTHER
    assert server.ranges()[0] == f"bytes={HALF}-"


def test_another_address_starts_over(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [Answer(body=OTHER)]
    assert download(server.url + "?mirror", target).read_bytes() == OTHER
    assert server.ranges() == [None]


def test_server_that_ignores_ranges_starts_over(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [Answer(body=OTHER[:1000], ranges=False)]  # shorter than what is there already
    assert download(server.url, target).read_bytes() == OTHER[:1000]
    assert server.ranges() == [f"bytes={HALF}-"]


def test_range_that_begins_elsewhere_starts_over(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [Answer(begins=HALF - 1), Answer()]
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [f"bytes={HALF}-", None]


def test_without_a_validator_only_a_checksum_allows_to_resume(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(etag=None, cut=HALF))
    server.answers = [Answer(body=OTHER, etag=None)]  # as long, and another file
    assert download(server.url, target.with_name("weights.pth")).read_bytes() == OTHER
    assert server.ranges() == [None]


def test_without_a_validator_size_and_checksum_decide(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(etag=None, cut=HALF))
    server.answers = [Answer(etag=None)]
    assert download(server.url, target, f"sha256:{SHA256}").read_bytes() == BODY
    assert server.served == [len(BODY) - HALF]
    assert "If-Range" not in server.asked[0]


def test_without_a_validator_another_size_starts_over(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(etag=None, cut=HALF))
    server.answers = [Answer(body=OTHER + b"!", etag=None)]
    digest = hashlib.sha256(OTHER + b"!").hexdigest()
    assert download(server.url, target, f"sha256:{digest}").read_bytes() == OTHER + b"!"
    assert server.ranges() == [f"bytes={HALF}-", None]


DATE = ("Last-Modified", "Tue, 01 Jul 2025 10:00:00 GMT")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Answer(etag=None, cut=HALF), Answer(body=OTHER)),  # none before, one now
        (Answer(cut=HALF), Answer(body=OTHER, etag=None, headers=(DATE,), if_range=False)),  # a tag before, a date now
        (Answer(etag='W/"a"', cut=HALF, headers=(DATE,)), Answer(body=OTHER, etag='W/"b"', headers=(DATE,), if_range=False)),
    ],
)
def test_parts_with_different_validators_are_never_joined(server: Server, target: Path, first: Answer, then: Answer) -> None:
    leave_half(server, target, first)
    server.answers = [then]
    digest = hashlib.sha256(OTHER).hexdigest()
    assert download(server.url, target, f"sha256:{digest}").read_bytes() == OTHER
    assert server.ranges() == [f"bytes={HALF}-", None]


def test_a_file_above_the_limit_is_not_downloaded(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "MAX_BYTES", HALF)
    with pytest.raises(DownloadError, match="it has 300,000 bytes, at most 150,000 are downloaded"):
        download(server.url, target)
    server.answers = [Answer(length=-1)]
    with pytest.raises(DownloadError, match="more than the 150,000 bytes that are allowed"):
        download(server.url, target)
    assert left(target) == set()
    assert download(server.url, target, size=len(BODY)).read_bytes() == BODY  # a stated size is its own limit


@pytest.mark.parametrize("in_headers", [False, True])
def test_a_server_that_sends_a_byte_now_and_then(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, in_headers: bool
) -> None:
    monkeypatch.setattr(download_module, "RATE_SECONDS", 0.3)
    server.answers = [Answer(drip=0.02, drip_headers=in_headers)]
    begin = time.monotonic()
    with pytest.raises(DownloadError, match="bytes per second, at least 1,000 are needed"):
        download(server.url, target, retries=1)
    assert time.monotonic() - begin < 5
    assert len(server.asked) == 2  # progress of a slow server does not count


def test_the_whole_download_has_a_time(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "LONGEST", 0.3)
    server.answers = [Answer(drip=0.02)]
    begin = time.monotonic()
    with pytest.raises(DownloadError, match="longer than 0 seconds"):
        download(server.url, target)
    assert time.monotonic() - begin < 5


def test_weak_tag_is_not_sent_but_a_date_is(server: Server, target: Path) -> None:
    date = "Tue, 01 Jul 2025 10:00:00 GMT"
    leave_half(server, target, Answer(etag='W/"weak"', cut=HALF, headers=(("Last-Modified", date),)))
    server.answers = [Answer(etag=date)]
    assert download(server.url, target).read_bytes() == BODY
    assert server.asked[0]["If-Range"] == date


def test_complete_part_needs_no_bytes(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    target.with_name("weights.pth.part").write_bytes(BODY)
    assert download(server.url, target).read_bytes() == BODY
    assert server.asked == []


def test_complete_part_of_unknown_length_is_accepted_by_416(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    target.with_name("weights.pth.part").write_bytes(BODY)
    note = {"url": server.url, "marks": {"tag": '"one"', "date": None}, "total": None}
    target.with_name("weights.pth.part.json").write_text(json.dumps(note))
    server.answers = [Answer()]
    assert download(server.url, target).read_bytes() == BODY
    assert server.served == [0]


def test_part_that_is_too_long_starts_over(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    target.with_name("weights.pth.part").write_bytes(BODY + b"!")
    server.answers = [Answer()]
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [f"bytes={len(BODY) + 1}-", None]


@pytest.mark.parametrize("note", ["", '{"url": "http', "[]", "{}"])
def test_damaged_note_starts_over(server: Server, target: Path, note: str) -> None:
    leave_half(server, target, Answer(cut=HALF))
    target.with_name("weights.pth.part.json").write_text(note)
    server.answers = [Answer()]
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [None]


@pytest.mark.parametrize(
    "page",
    [Answer(body=PAGE), Answer(body=PAGE, dribble=5), Answer(content_type="text/html; x"), Answer(body=b"<HTML>")],
)
def test_page_instead_of_the_file_is_an_error_at_once(server: Server, target: Path, page: Answer) -> None:
    server.answers = [page]
    with pytest.raises(DownloadError, match="HTML page"):
        download(server.url, target)
    assert len(server.asked) == 1
    assert left(target) == set()


def test_page_does_not_cost_the_bytes_there_are(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [Answer(body=PAGE, etag=None, ranges=False), Answer()]
    with pytest.raises(DownloadError, match="HTML page"):
        download(server.url, target)
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [f"bytes={HALF}-"] * 2


def test_page_is_fine_where_the_address_says_so(server: Server, target: Path) -> None:
    server.answers = [Answer(body=PAGE, content_type="text/html")]
    address = server.url.replace("weights.pth", "Index.HTML?x=1")
    assert download(address, target).read_bytes() == PAGE


def test_busy_server_is_asked_again(server: Server, target: Path) -> None:
    server.answers = [Answer(status=status, body=b"") for status in (503, 429, 408, 500)] + [Answer()]
    assert download(server.url, target).read_bytes() == BODY


@pytest.mark.parametrize(("retry_after", "waited"), [("7", 7.0), ("3600", 60.0), ("soon", 0.005)])
def test_retry_after_is_honoured_up_to_a_minute(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, retry_after: str, waited: float
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.answers = [Answer(status=503, body=b"", headers=(("Retry-After", retry_after),)), Answer()]
    download(server.url, target)
    assert waits == [waited]


def test_waits_double(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.answers = [Answer(status=502, body=b"")]
    with pytest.raises(DownloadError, match="502 Bad Gateway"):
        download(server.url, target, retries=3)
    assert waits == [0.005, 0.01, 0.02]


@pytest.mark.parametrize("status", [403, 404, 410, 416])
def test_refusal_fails_at_once(server: Server, target: Path, status: int) -> None:
    server.answers = [Answer(status=status, body=b"no"), Answer()]
    with pytest.raises(DownloadError, match=str(status)) as caught:
        download(server.url, target)
    assert len(server.asked) == 1
    assert str(target) in str(caught.value)
    assert left(target) == set()


@pytest.mark.parametrize(
    "url",
    ["file:///etc/hosts", "ftp://127.0.0.1/a", "data:,a", "weights.pth", "http://127.0.0.1/a b"],
)
def test_only_http_addresses_are_opened(target: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="http or https address"):
        download(url, target)
    assert not target.parent.exists()


def test_plain_http_needs_a_checksum(target: Path) -> None:
    with pytest.raises(DownloadError, match=r"plain http, and no checksum .* nothing was opened"):
        download("http://192.0.2.1/weights.pth", target)  # an address of documentation, which nobody has
    assert not target.parent.exists()


def test_no_redirect_to_plain_http_without_a_checksum(server: Server, target: Path) -> None:
    server.answers = [Answer(status=302, body=b"", headers=(("Location", "http://192.0.2.1/weights.pth"),))]
    with pytest.raises(DownloadError, match="not allowed"):
        download(server.url, target)
    assert len(server.asked) == 1


@pytest.mark.parametrize("address", ["file://{secret}", "ftp://127.0.0.1/a", "data:,a"])
def test_redirect_to_anything_else_is_refused(server: Server, target: Path, tmp_path: Path, address: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(BODY)
    location = ("Location", address.format(secret=secret))
    server.answers = [Answer(status=302, body=b"", headers=(location,)), Answer()]
    with pytest.raises(DownloadError, match="not allowed"):
        download(server.url, target)
    assert len(server.asked) == 1
    assert left(target) == set()


def test_redirect_keeps_the_range(server: Server, target: Path) -> None:
    leave_half(server, target, Answer(cut=HALF))
    server.answers = [Answer(status=302, body=b"", headers=(("Location", "/elsewhere"),)), Answer()]
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [f"bytes={HALF}-"] * 2


def test_redirects_in_circles_end(server: Server, target: Path) -> None:
    server.answers = [Answer(status=301, body=b"", headers=(("Location", "/weights.pth"),))]
    with pytest.raises(DownloadError, match="infinite loop"):
        download(server.url, target)


@pytest.mark.parametrize(
    ("begin", "end", "allowed"),
    [("https", "http", 0), ("https", "https", 1), ("http", "https", 1)],
)
def test_redirect_never_leaves_https(begin: str, end: str, allowed: int) -> None:
    # Asked of the handler itself: a server with a certificate would test no more of it.
    request, headers = urllib.request.Request(f"{begin}://127.0.0.1/a"), HTTPMessage()
    with io.BytesIO() as body:
        if allowed:
            assert _Answers(True).redirect_request(request, body, 302, "", headers, f"{end}://127.0.0.1/b") is not None
        else:
            with pytest.raises(urllib.error.HTTPError, match="not allowed"):
                _Answers(True).redirect_request(request, body, 302, "", headers, f"{end}://127.0.0.1/b")


@pytest.mark.parametrize("size", [len(BODY) - 1, len(BODY) + 1])
def test_announced_length_must_be_the_size(server: Server, target: Path, size: int) -> None:
    with pytest.raises(DownloadError, match="`size` is"):
        download(server.url, target, size=size)
    assert len(server.asked) == 1
    assert left(target) == set()


@pytest.mark.parametrize(
    ("answer", "size"),
    [(Answer(length=HALF), None), (Answer(length=-1), HALF), (Answer(chunked=True), HALF)],
    ids=["more than announced", "more than size", "chunks beyond size"],
)
def test_too_many_bytes_are_an_error(server: Server, target: Path, answer: Answer, size: int | None) -> None:
    server.answers = [answer]
    with pytest.raises(DownloadError, match="more than the expected 150,000 bytes"):
        download(server.url, target, size=size)
    assert len(server.asked) == 1
    assert left(target) == set()


def test_full_disk_is_said_and_not_retried(server: Server, target: Path) -> None:
    # Room for all bytes but one: the last write comes out short, and only the next one fails.
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(BODY) - 1}, {len(BODY) - 1}))\n"
        f"from locality.download import download\ndownload({server.url!r}, {str(target)!r})"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "weights.pth.part` failed (File too large)" in ended.stderr
    assert len(server.asked) == 1
    assert not target.exists()


def test_interrupt_from_the_keyboard_keeps_the_part(server: Server, target: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done == HALF:
            raise KeyboardInterrupt

    server.answers = [Answer(cut=HALF, stall=True), Answer()]
    with pytest.raises(KeyboardInterrupt):
        download(server.url, target, progress=interrupt)
    assert left(target) == {"weights.pth.part", "weights.pth.part.json"}
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-"]


def test_killed_process_is_resumed_by_another(server: Server, target: Path) -> None:
    server.answers = [Answer(cut=HALF, stall=True), Answer()]
    part = target.with_name("weights.pth.part")
    with in_another_process(server.url, target) as process:
        wait_until(lambda: part.exists() and part.stat().st_size == HALF)
        process.kill()
    assert process.returncode == -9
    assert not target.exists()
    assert download(server.url, target).read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={HALF}-"]
    assert server.served == [HALF, len(BODY) - HALF]
    assert left(target) == {"weights.pth", "weights.pth.sha256"}


def test_two_processes_share_one_download(server: Server, target: Path) -> None:
    server.answers = [Answer(stall=True)]  # the first process waits with all bytes there, but not under the final name
    part = target.with_name("weights.pth.part")
    with in_another_process(server.url, target) as first:
        wait_until(lambda: part.exists() and part.stat().st_size == len(BODY))
        with in_another_process(server.url, target) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == b"ready\n"
            time.sleep(0.3)  # time enough to do harm
            assert second.poll() is None
            server.release.set()
            assert second.communicate()[1] == b""
        assert first.communicate()[1] == b""
    assert (first.returncode, second.returncode) == (0, 0)
    assert target.read_bytes() == BODY
    assert len(server.asked) == 1
    assert left(target) == {"weights.pth", "weights.pth.sha256"}


def test_several_threads_on_one_target(server: Server, target: Path) -> None:
    faults: list[BaseException] = []

    def fetch() -> None:
        try:
            assert download(server.url, target).read_bytes() == BODY
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(server.asked) == 1
    assert left(target) == {"weights.pth", "weights.pth.sha256"}


@pytest.mark.parametrize("algorithm", ["sha256", "md5", "sha1"])
def test_file_hash_is_that_of_hashlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    monkeypatch.setattr(download_module, "BLOCK", 1000)
    (tmp_path / "file").write_bytes(BODY)
    assert file_hash(tmp_path / "file", algorithm) == hashlib.new(algorithm, BODY, usedforsecurity=False).hexdigest()
