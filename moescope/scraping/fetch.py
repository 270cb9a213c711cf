"""Fetch one page over HTTP, with a limit on everything that another machine decides."""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from moescope.schemas.errors import PageError, UsageError

_MAX_BYTES: Final = 64 * 2**20
_CHUNK_BYTES: Final = 2**16
_GZIP: Final = zlib.MAX_WBITS | 16
_ACCEPT: Final = "text/plain;version=0.0.4, */*;q=0.1"  # OpenMetrics is read, and not asked for


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: credentials are for the address that was given, and for no other."""

    def redirect_request(self, *_: Any) -> None:
        """Have the redirection raised as the error that it is."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page is.

    Attributes:
        url: without user and password: it goes into logs.
        headers: what the request carries besides.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> str:
        """The machine."""
        return urlsplit(self.url).hostname or ""

    @property
    def place(self) -> str:
        """``host:port``, and the path where it is not the usual one."""
        parts = urlsplit(self.url)
        return parts.netloc + (parts.path if parts.path != "/metrics" else "")


@dataclass(frozen=True, slots=True)
class Body:
    """A page as it came. ``date`` is when the server says that it made it."""

    text: str
    content_type: str
    date: str


def parse_address(text: str, bearer_token: str = "") -> Address:
    """Read ``host:port`` or a URL; the path is ``/metrics`` if it has none.

    User and password of the URL are sent as basic authentication, ``bearer_token`` as a bearer token.

    Raises:
        UsageError: it is no HTTP address.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        port, parts = None, SplitResult("", "", "", "", "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"{text!r} is no page's address; write http://host:8000/metrics or host:8000")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    url = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/") or "/metrics", parts.query, ""))
    headers = {}
    if bearer_token:
        headers["Authorization"] = f"Bearer {bearer_token}"
    elif parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return Address(url, headers)


def fetch(address: Address, timeout_seconds: float) -> Body:
    """Fetch a page, within ``timeout_seconds`` for all of it.

    Raises:
        PageError: it did not come, or is no page; the message says why, and what to do where that is known.
    """
    deadline = time.monotonic() + timeout_seconds
    headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip", **address.headers}
    request = urllib.request.Request(address.url, headers=headers)  # noqa: S310 - parse_address lets http(s) through alone
    try:
        with _OPENER.open(request, timeout=timeout_seconds) as answer:
            raw = _read(answer, deadline)
            names = answer.headers
            text = _unpack(raw, names.get("Content-Encoding", "")).decode("utf-8")
            return Body(text, names.get("Content-Type", ""), names.get("Date", ""))
    except urllib.error.HTTPError as error:
        error.close()
        elsewhere = error.headers.get("Location", "")
        raise PageError(f"http_{error.code}", _status_sentence(error.code, elsewhere)) from None
    except TimeoutError:
        raise PageError("timeout", f"no page within {timeout_seconds:g} s") from None
    except UnicodeDecodeError:
        raise PageError("not_metrics", "this is no Prometheus page (it is no text)") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, TimeoutError):
            raise PageError("timeout", f"no page within {timeout_seconds:g} s") from None
        raise PageError("unreachable", f"no answer ({cause})") from None


def _read(answer: Any, deadline: float) -> bytes:
    """Read the body piece by piece: a server that trickles must not hold the scraper."""
    pieces, length = [], 0
    while piece := answer.read1(_CHUNK_BYTES):
        pieces.append(piece)
        length += len(piece)
        if length > _MAX_BYTES:
            raise PageError("too_large", f"the page is larger than {_MAX_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    if answer.length:
        raise PageError("truncated", f"the page ends {answer.length} bytes early")
    return b"".join(pieces)


def _unpack(raw: bytes, encoding: str) -> bytes:
    if encoding in {"", "identity"}:
        return raw
    if encoding != "gzip":
        raise PageError("encoding", f"the page is packed with {encoding!r}, which was not asked for")
    unpacker = zlib.decompressobj(_GZIP)
    try:
        body = unpacker.decompress(raw, _MAX_BYTES + 1)
    except zlib.error:
        raise PageError("encoding", "the page says that it is gzip and is not") from None
    if len(body) > _MAX_BYTES:
        raise PageError("too_large", f"the page is larger than {_MAX_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise PageError("truncated", "the packed page ends early")
    return body


def _status_sentence(status: int, elsewhere: str) -> str:
    if elsewhere:
        return f"HTTP {status}: the page is at {elsewhere}; give that address"
    hints = {
        401: "give a token with --bearer-token-file, or http://user:password@host",
        403: "this user or token may not read the page",
        404: "there is no page at this path; SGLang needs --enable-metrics, Dynamo DYN_SYSTEM_PORT",
    }
    hint = hints.get(status)
    return f"HTTP {status}" + (f": {hint}" if hint else "")
