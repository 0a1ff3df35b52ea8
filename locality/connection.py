"""Open an http or https address: every response is returned, and redirects cannot lead to a less safe address."""

from __future__ import annotations

import functools
import http.client
import io
import time
import urllib.error
import urllib.request as web
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, cast
from urllib.parse import urlsplit


class SlowError(TimeoutError):
    """A server that is too slow."""


@dataclass
class Pace:
    """The least rate of a connection, and the time at which it must end; `wait` is told of every wait for bytes."""

    ends: float  # on the monotonic clock
    least_rate: float  # bytes per second …
    seconds: float  # … over so many seconds of waiting
    waited: float = 0.0
    arrived: int = 0

    def wait(self, seconds: float, count: int) -> None:
        """Raise if the server is too slow, or time is up."""
        self.waited, self.arrived = self.waited + seconds, self.arrived + count
        if self.waited >= self.seconds:
            rate, self.waited, self.arrived = self.arrived / self.waited, 0.0, 0
            if rate < self.least_rate:
                raise SlowError(f"{rate:,.0f} bytes per second, at least {self.least_rate:,.0f} are needed")
        if time.monotonic() >= self.ends:
            raise SlowError("the time for the whole download is up")


@dataclass(frozen=True)
class Marks:
    """Headers that change with the file."""

    tag: str | None = None
    date: str | None = None

    @property
    def validator(self) -> str | None:
        """What If-Range accepts: no weak tags (W/"…")."""
        return self.tag if self.tag and self.tag.startswith('"') else self.date

    def checked(self) -> Marks:
        """These marks, if they can be headers; a ValueError for anything else."""
        for mark in (self.tag, self.date):
            if mark is not None and not (isinstance(mark, str) and mark.isascii() and mark.isprintable()):
                raise ValueError(f"not a header: {mark!r}")
        return self

    def is_same(self, now: Marks) -> bool:
        """Whether a part of the file that comes with the marks `now` may belong to the file with these; it may lack marks.

        >>> Marks('"one"').is_same(Marks()), Marks().is_same(Marks('"one"'))
        (True, False)
        """
        if now.validator not in (None, self.validator):
            return False
        return all(one is None or other in (None, one) for one, other in ((self.tag, now.tag), (self.date, now.date)))


def marks_of(headers: http.client.HTTPMessage) -> Marks:
    """The marks among the headers of a response."""
    return Marks(headers.get("ETag"), headers.get("Last-Modified"))


def open_address(
    url: str, headers: Mapping[str, str], timeout: float, is_verified: bool, pace: Pace
) -> http.client.HTTPResponse:
    """The response, whatever its status; `is_verified` says that the bytes will be compared with a known hash.

    Raises an HTTPError for redirects that are not allowed, and what urllib raises where there is no response. Reading, also
    of the response's headers, keeps to `pace`; `timeout` is the longest silence in seconds.
    """
    opener = web.OpenerDirector()  # with selected handlers: the default one would also open files and ftp
    handlers = (web.ProxyHandler(), _Http(pace), _Https(pace), web.HTTPErrorProcessor(), _Answers(is_verified))
    for handler in handlers:
        opener.add_handler(handler)
    return cast(http.client.HTTPResponse, opener.open(web.Request(url, headers=dict(headers)), timeout=timeout))


def is_private(url: str) -> bool:
    """Whether nobody on the network can change what comes from the address: https, or this machine itself.

    >>> is_private("https://example.org/a.pth"), is_private("http://example.org/a.pth"), is_private("http://127.0.0.1:80/")
    (True, False, True)
    """
    address = urlsplit(url)
    return address.scheme.lower() == "https" or address.hostname in ("127.0.0.1", "::1", "localhost")


class _Answers(web.HTTPRedirectHandler):
    # Returns every response, errors too, and follows redirects to http and https only, never from https to http, nor to
    # plain http on the network if nothing is known about the bytes that must come.
    def __init__(self, is_verified: bool) -> None:
        self.is_verified = is_verified

    def redirect_request(
        self, req: web.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> web.Request | None:
        schemes = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in schemes or not (self.is_verified or is_private(newurl)):
            raise urllib.error.HTTPError(newurl, code, f"redirection to url '{newurl}' is not allowed", headers, fp)
        urlsplit(newurl).port  # noqa: B018  raises for what is no port
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(self, req: web.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:  # it leads to what is no address
            raise urllib.error.HTTPError(req.full_url, code, f"redirection to no address ({error})", headers, fp) from error

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def http_error_default(self, _request: object, response: IO[bytes], *_: object) -> IO[bytes]:
        return response


class _Http(web.HTTPHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def http_open(self, req: web.Request) -> http.client.HTTPResponse:
        return self.do_open(cast(Any, functools.partial(_connection, http.client.HTTPConnection, self.pace)), req)


class _Https(web.HTTPSHandler):
    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def https_open(self, req: web.Request) -> http.client.HTTPResponse:
        return self.do_open(cast(Any, functools.partial(_connection, http.client.HTTPSConnection, self.pace)), req)


def _connection(kind: Any, pace: Pace, host: str, **options: Any) -> http.client.HTTPConnection:
    connection: http.client.HTTPConnection = kind(host, **options)
    connection.response_class = cast(Any, functools.partial(_Response, pace))
    return connection


class _Response(http.client.HTTPResponse):
    def __init__(self, pace: Pace, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Paced(cast(Any, self.fp).detach(), pace))


class _Paced(io.RawIOBase):
    # A socket's file that keeps to a pace: a server that sends a byte now and then never runs into a timeout.
    def __init__(self, raw: io.RawIOBase, pace: Pace) -> None:
        self.raw, self.pace = raw, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        begin = time.monotonic()
        count = cast(Any, self.raw).readinto(buffer)
        self.pace.wait(time.monotonic() - begin, count or 0)
        return cast("int | None", count)

    def close(self) -> None:
        self.raw.close()
        super().close()
