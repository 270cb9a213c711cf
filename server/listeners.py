"""The ports: checked all together before anything is opened, so that a busy one costs nothing."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moescope.schemas.errors import PortError
from moescope.schemas.settings import ENV_PREFIX, Settings

_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a port is for, and the setting that moves it."""

    setting: str
    needed_by: str


OTLP_GRPC: Final = Purpose("otlp_grpc_port", "OTLP/gRPC")
OTLP_HTTP: Final = Purpose("otlp_http_port", "OTLP/HTTP")
SQL: Final = Purpose("sql_port", "the ClickHouse SQL endpoint")
METRICS: Final = Purpose("metrics_port", "/metrics and the health pages")


def bind(settings: Settings, purpose: Purpose) -> socket.socket:
    """Listen on the port of a purpose.

    Raises:
        PortError: it cannot be listened on; the message names the port, who needs it and what moves it.
    """
    port = getattr(settings, purpose.setting)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PortError(f"--host {settings.host} is no address of this machine: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise port_error(settings, purpose, error) from None
    return listener


def check_free(settings: Settings, purpose: Purpose) -> None:
    """Make sure that a port can be listened on by somebody who binds it himself.

    Raises:
        PortError: see :func:`bind`.
    """
    bind(settings, purpose).close()


def check_distinct(settings: Settings, purposes: Iterable[Purpose]) -> None:
    """Make sure that no port was given twice.

    Raises:
        PortError: two purposes share a port.
    """
    taken: dict[int, Purpose] = {}
    for purpose in purposes:
        port = getattr(settings, purpose.setting)
        other = taken.setdefault(port, purpose) if port else purpose
        if other is not purpose:
            raise PortError(
                f"port {port} is asked for by {other.needed_by} and by {purpose.needed_by}; "
                f"move one with {_way_out(other)} or {_way_out(purpose)}"
            )


def port_error(settings: Settings, purpose: Purpose, error: OSError) -> PortError:
    """Say which port cannot be listened on, who needs it, and what moves it."""
    port = getattr(settings, purpose.setting)
    if error.errno == errno.EADDRINUSE:
        problem = f"port {port} on {settings.host}, needed by {purpose.needed_by}, is used by another process"
    elif error.errno == errno.EACCES:
        problem = f"port {port}, needed by {purpose.needed_by}, may not be opened by this user"
    elif error.errno == errno.EADDRNOTAVAIL:
        return PortError(
            f"--host {settings.host} is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all"
        )
    else:
        problem = f"port {port}, needed by {purpose.needed_by}, cannot be opened: {error.strerror or error}"
    return PortError(f"{problem}; choose another with {_way_out(purpose)}")


def _way_out(purpose: Purpose) -> str:
    option = purpose.setting.replace("_", "-")
    return f"--{option} or {ENV_PREFIX}{purpose.setting.upper()}"
