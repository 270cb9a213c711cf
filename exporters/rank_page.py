"""A rank's own Prometheus page: the windows that its reporter closes, added up in the process itself.

Off by default. It never stands in the way of delivery: whatever fails here is logged once, and the windows go
on to their endpoint. prometheus-client is imported at the first window, and only if a page is asked for.
"""

from __future__ import annotations

import logging
import math
from typing import Any, Protocol

from moescope.exporters.page_source import source_of
from moescope.exporters.prometheus_counts import PageCounts
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import Attempt, Window
from moescope.schemas.settings import ENV_PREFIX, Settings

logger = logging.getLogger("moescope")

_LAST_PORT = 65_535


class WindowExporter(Protocol):
    """Where windows go besides the page."""

    @property
    def pending_bytes(self) -> int:
        """Size of the frozen window that waits for its acknowledgement; 0 when there is none."""

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        """Freeze the window and try to hand it over, for so long at most."""

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        """Try again with the same bytes, for so long at most."""

    def close(self) -> None:
        """Let go of connections."""


def with_page(inner: WindowExporter, identity: EngineIdentity, settings: Settings) -> WindowExporter:
    """Give an exporter a page beside it, if the settings ask for one.

    Each rank of a host needs a port of its own: the setting's plus the EP rank.
    """
    if settings.prometheus_port == 0:
        return inner
    port = settings.prometheus_port + identity.grid.ep_rank
    return PageExporter(inner, identity, settings.prometheus_host, port, settings.silent_after_seconds)


class PageExporter:
    """Hands each window to another exporter and adds it to a page.

    Args:
        inner: the exporter that delivers.
        identity: the rank.
        host: address of the page.
        port: of the page.
        silent_after_seconds: states older than that are not shown.
    """

    def __init__(
        self,
        inner: WindowExporter,
        identity: EngineIdentity,
        host: str,
        port: int,
        silent_after_seconds: float = 60.0,
    ) -> None:
        self._inner = inner
        self._source = source_of(identity.resource_attributes())
        self._address = (host, port)
        # A rank never forgets itself: its page shows how old it is.
        self._counts = PageCounts(silent_after_seconds=silent_after_seconds, forget_seconds=math.inf)
        self._server: Any = None
        self._is_given_up = False

    @property
    def pending_bytes(self) -> int:
        """See :class:`WindowExporter`."""
        return self._inner.pending_bytes

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        """Hand the window over; delivered or not, it was counted once, and so it is on the page."""
        try:
            return self._inner.export(window, timeout_seconds)
        finally:
            if not self._is_given_up:
                self._show(window)

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        """See :class:`WindowExporter`."""
        return self._inner.retry(timeout_seconds)

    def close(self) -> None:
        """Close the page and the other exporter."""
        self._is_given_up = True
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._inner.close()

    def _show(self, window: Window) -> None:
        try:
            if self._server is None:
                self._server = self._listen()
            self._counts.add(self._source, window)
        except Exception as error:
            self._is_given_up = True
            logger.warning("moescope: this rank has no Prometheus page: %s", _explain(error, self._address))

    def _listen(self) -> Any:
        from prometheus_client import start_http_server  # noqa: PLC0415 - not part of an engine's environment

        from moescope.exporters.prometheus import live_registry  # noqa: PLC0415 - the same

        host, port = self._address
        if port > _LAST_PORT:
            raise OverflowError(port)
        server, _ = start_http_server(port, host, live_registry(self._counts.snapshot))
        return server


def _explain(error: Exception, address: tuple[str, int]) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "prometheus_client":
        return (
            f"{ENV_PREFIX}PROMETHEUS_PORT asks for one, and prometheus-client is not installed. "
            "Run: pip install prometheus-client"
        )
    if isinstance(error, OSError | OverflowError):
        reason = getattr(error, "strerror", None) or "there is no such port"
        return (
            f"port {address[1]} on {address[0]} cannot be listened on ({reason}); each rank needs "
            f"{ENV_PREFIX}PROMETHEUS_PORT plus its EP rank, choose another with that variable"
        )
    return f"{type(error).__name__}: {error}"
