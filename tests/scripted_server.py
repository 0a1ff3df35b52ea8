"""A server on 127.0.0.1 that does what it is told with each request: cut, stall, lie, change the file."""

from __future__ import annotations

import random
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from locality import download as download_module

BODY = random.Random(0).randbytes(300_000)


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    body: bytes = BODY
    status: int = 200
    etag: str | None = '"one"'
    ranges: bool = True  # honours Range
    if_range: bool = True  # honours If-Range
    begins: int | None = None  # where it claims and begins a range, whatever was asked for
    cut: int | None = None  # hangs up after so many bytes of the body …
    stall: bool = False  # … or falls silent instead
    length: int | None = None  # a Content-Length that is not true
    content_type: str = "application/octet-stream"
    chunked: bool = False
    dribble: int = 0  # sends so many bytes alone at first
    headers: tuple[tuple[str, str], ...] = ()
    drip: float = 0.0  # sends one byte after the other, with so many seconds in between, until nobody listens
    drip_headers: bool = False  # … also those of the headers
    raw: bytes | None = None  # sends these bytes and nothing else
    reset: bool = False  # ends the connection with a reset


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        with self.server.counting:
            self.server.asked.append(dict(self.headers))
            self.server.served.append(0)
            number = len(self.server.asked) - 1
        answer = self.server.answers[min(number, len(self.server.answers) - 1)]
        begin, body, status = 0, answer.body, answer.status
        self.protocol_version = "HTTP/1.1" if answer.chunked else "HTTP/1.0"
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = not answer.if_range or self.headers.get("If-Range", answer.etag) == answer.etag
        if asked and answer.ranges and same and status == 200:
            begin = int(asked[1]) if answer.begins is None else answer.begins
            status, body = (206, body[begin:]) if begin < len(body) else (416, b"")
        if answer.drip_headers:
            self._drip(b"HTTP/1.0 200 OK\r\nX: " + b"x" * 10_000, answer.drip)
            return
        if answer.raw is not None:
            self.close_connection = True
            self.wfile.write(answer.raw)
            if answer.stall:
                self.server.release.wait(20)
            return
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{len(answer.body) - 1}/{len(answer.body)}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{len(answer.body)}")
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
        elif answer.length != -1:
            self.send_header("Content-Length", str(len(body) if answer.length is None else answer.length))
        if answer.etag:
            self.send_header("ETag", answer.etag)
        self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        sent = body if answer.cut is None else body[: max(answer.cut - begin, 0)]
        self.server.served[number] = len(sent)
        if answer.drip:
            self._drip(sent, answer.drip)
        elif answer.chunked:
            ended = b"" if answer.cut is not None else b"\r\n0\r\n\r\n"
            self.wfile.write(b"%x\r\n%b%b" % (len(body), sent, ended))
        else:
            self.wfile.write(sent[: answer.dribble])
            if answer.dribble:
                self.server.release.wait(0.1)
            self.wfile.write(sent[answer.dribble :])
        if answer.stall:
            self.server.release.wait(20)
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def _drip(self, data: bytes, pause: float) -> None:
        for place in range(len(data)):
            if self.server.release.wait(pause):
                break
            self.wfile.write(data[place : place + 1])

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Gives its answers in order, the last one for ever, and notes what was asked and how much was sent."""

    daemon_threads = False  # so that closing waits for them and leaves no socket open

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = [Answer()]
        self.asked: list[dict[str, str]] = []
        self.served: list[int] = []
        self.counting = threading.Lock()
        self.release = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/weights.pth"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # the client disconnects on purpose in some tests
            super().handle_error(request, client_address)

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for headers in self.asked]


@contextmanager
def running_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server, reached without a proxy, and a download that does not wait long between its tries."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download_module, "FIRST_WAIT", 0.005)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.release.set()
        running.shutdown()
        thread.join()
