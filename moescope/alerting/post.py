"""Post JSON, and say what came of it in one of three ways."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from moescope.schemas.errors import SettingError

_TIMEOUT_SECONDS: Final = 10.0
_REFUSALS: Final = frozenset({400, 413, 422})
"""These judge what was posted. Any other answer is about the way (a password, a path, a proxy), which people
put right: what was posted meanwhile must not be lost."""
_MOST_WORDS: Final = 300


class NotTakenError(Exception):
    """Nobody answered, or not now: worth trying again."""


class RefusedError(Exception):
    """The other side will never take it."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: what is posted, and the password, are for the address that was given."""

    def redirect_request(self, *_: Any) -> None:
        """Have the redirection raised as the error that it is."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def post_json(url: str, body: Any) -> None:
    """Post.

    Args:
        url: http or https; ``user:password@`` becomes basic authentication.
        body: JSON values.

    Raises:
        NotTakenError: worth trying again.
        RefusedError: not worth it.
    """
    parts = urlsplit(url)
    headers = {"content-type": "application/json", "user-agent": "moescope"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    request = urllib.request.Request(  # noqa: S310 - check_url let http and https pass, nothing else
        parts._replace(netloc=_host(parts)).geturl(), json.dumps(body).encode(), headers
    )
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            answer.read(_MOST_WORDS)
    except urllib.error.HTTPError as error:
        with error:
            words = error.read(_MOST_WORDS).decode("utf-8", "replace").strip()
        told = f"{error.code} {error.reason}{': ' + words if words else ''}"
        if error.code in _REFUSALS:
            raise RefusedError(told) from None
        raise NotTakenError(told) from None
    except (OSError, http.client.HTTPException) as error:
        raise NotTakenError(str(getattr(error, "reason", error)) or type(error).__name__) from None


def check_url(url: str, setting: str) -> str:
    """Return an address that can be posted to.

    Raises:
        SettingError: it is none of http or https.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in {"http", "https"} and bool(parts.hostname)
        parts.port  # noqa: B018 - raises where it is none
    except ValueError:
        is_right = False
    if not is_right:
        raise SettingError(f"{setting}: {url!r} is no address; write http://host:9093")
    return url


def without_password(url: str) -> str:
    """An address as it may stand in logs and metrics."""
    parts = urlsplit(url)
    return parts._replace(netloc=_host(parts)).geturl() if parts.username is not None else url


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]
