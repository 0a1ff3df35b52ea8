"""Open an http or https address: every response is returned, and redirects cannot lead to a less safe address."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request as web
from collections.abc import Mapping
from typing import IO, cast
from urllib.parse import urlsplit


def open_address(url: str, headers: Mapping[str, str], timeout: float, is_verified: bool) -> http.client.HTTPResponse:
    """The response, whatever its status; `is_verified` says that the bytes will be compared with a known hash.

    Raises an HTTPError for redirects that are not allowed, and what urllib raises where there is no response.
    """
    opener = web.OpenerDirector()  # with selected handlers: the default one would also open files and ftp
    for handler in (web.ProxyHandler, web.HTTPHandler, web.HTTPSHandler, web.HTTPErrorProcessor):
        opener.add_handler(handler())
    opener.add_handler(_Answers(is_verified))
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
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_default(self, _request: object, response: IO[bytes], *_: object) -> IO[bytes]:
        return response
