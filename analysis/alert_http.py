"""Ask rule evaluators and Alertmanagers over HTTP; every failure becomes a sentence with a way out."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from moescope.analysis.store import root_reason, without_password
from moescope.schemas.errors import AlertSourceError
from moescope.schemas.settings import Settings

_TIMEOUT_SECONDS: Final = 5.0
_MAX_BYTES: Final = 32 * 2**20


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of a setting that lists them by comma."""
    return tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())


def get_json(base: str, path: str, settings: Settings, params: Mapping[str, str] | None = None) -> Any:
    """Ask for a JSON answer.

    Args:
        base: ``http(s)://user:password@host:port/prefix``.
        path: below it.
        settings: whose token goes to an address on the port of ``moescope alerts run``.
        params: of the query.

    Raises:
        AlertSourceError: no answer, or one that is no JSON.
    """
    parts = urlsplit(base)
    shown = without_password(base)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise AlertSourceError(f"{shown!r} is no address; write http://host:port")
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + path, urlencode(params or {}), ""))
    request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked
    for name, value in _headers(base, settings).items():
        # A redirection must not carry a password to somebody else.
        request.add_unredirected_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310 - as above
            return json.loads(response.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(500).decode("utf-8", "replace").strip()
        raise AlertSourceError(_refused(shown, error.code, said), status=error.code) from error
    except (OSError, ValueError, http.client.HTTPException, RecursionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        words = root_reason(reason) if isinstance(reason, BaseException) else str(reason)
        raise AlertSourceError(f"{shown} gives no answer ({words})") from error


def _headers(base: str, settings: Settings) -> dict[str, str]:
    parts = urlsplit(base)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    if settings.token_file and parts.port == settings.alerts_port:
        try:
            return {
                "Authorization": f"Bearer {Path(settings.token_file).read_text(encoding='utf-8').strip()}"
            }
        except OSError as error:
            raise AlertSourceError(
                f"the token file {settings.token_file} cannot be read ({root_reason(error)})"
            ) from error
    return {}


def _refused(shown: str, status: int, said: str) -> str:
    if status in {401, 403}:
        return (
            f"{shown} asks for a login; write http://user:password@host:port, or set MOESCOPE_TOKEN_FILE for "
            "`moescope alerts run`"
        )
    return f"{shown} answers with HTTP status {status}: {said.splitlines()[0] if said else 'no reason'}"
