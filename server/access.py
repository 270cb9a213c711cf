"""Who may come in: everyone on loopback; elsewhere, and as soon as a token is set, who knows the token."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from moescope.schemas.errors import SettingError, UnauthenticatedError
from moescope.schemas.settings import Settings

_MIN_TOKEN_CHARACTERS: Final = 16


class Gate:
    """Compares what a client sends with the token, in constant time.

    Args:
        token: None lets everyone in.
    """

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def url_credentials(self) -> str:
        """What a URL of this server's SQL endpoint needs before its host: ``user:token@``, or nothing."""
        return "" if self._token is None else f"moescope:{quote(self._token, safe='')}@"

    def check_bearer(self, authorization: str | None) -> None:
        """Check an ``Authorization: Bearer …`` header or metadata entry.

        Raises:
            UnauthenticatedError: it is missing or wrong.
        """
        scheme, _, credentials = (authorization or "").partition(" ")
        if not self._knows(credentials.strip() if scheme.lower() == "bearer" else None):
            raise UnauthenticatedError(
                "this server asks for its token: send the header 'Authorization: Bearer <token>' "
                "(OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20<token>)"
            )

    def check_clickhouse(self, headers: Mapping[str, str], parameters: Mapping[str, str]) -> str | None:
        """Check the ways in which ClickHouse's clients send a password; return the user's name.

        Raises:
            UnauthenticatedError: none of them holds the token.
        """
        user, password = _clickhouse_credentials(headers, parameters)
        if not self._knows(password):
            raise UnauthenticatedError(
                f"{user or 'default'}: Authentication failed: password is incorrect, or there is no user "
                "with such name. The password is the server's token (X-ClickHouse-Key, basic "
                "authentication, password=, or Authorization: Bearer)"
            )
        return user

    def _knows(self, password: str | None) -> bool:
        if self._token is None:
            return True
        return hmac.compare_digest((password or "").encode(), self._token)


def _clickhouse_credentials(
    headers: Mapping[str, str], parameters: Mapping[str, str]
) -> tuple[str | None, str | None]:
    if "x-clickhouse-key" in headers or "x-clickhouse-user" in headers:
        return headers.get("x-clickhouse-user"), headers.get("x-clickhouse-key")
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return None, credentials.strip()
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(credentials, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None, None
        user, _, password = decoded.partition(":")
        return user, password
    return parameters.get("user"), parameters.get("password")


def open_gate(settings: Settings) -> Gate:
    """Read the token file that the settings name.

    Raises:
        SettingError: the file cannot be read or its token is too short, or there is none although the server
            listens on more than loopback.
    """
    if not settings.token_file:
        if not is_loopback(settings.host):
            raise SettingError(
                f"--host {settings.host} can be reached by others, so a token is needed: write one into a "
                "file (openssl rand -hex 32 > token) and name it with --token-file or MOESCOPE_TOKEN_FILE"
            )
        return Gate(None)
    try:
        token = Path(settings.token_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--token-file {settings.token_file} cannot be read: {error}") from None
    if len(token) < _MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
        raise SettingError(
            f"--token-file {settings.token_file} must hold one line of at least {_MIN_TOKEN_CHARACTERS} "
            "ASCII characters; openssl rand -hex 32 makes one"
        )
    return Gate(token)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
