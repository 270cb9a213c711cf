"""What a gateway wants to know of each endpoint now: load and headroom, probable state, economics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from moescope.analysis.endpoint_signals import LATENCIES, describe_endpoint, list_silent
from moescope.analysis.store import Store, open_store
from moescope.schemas.settings import Settings
from moescope.schemas.signals import EndpointLimits, FleetSignals

_MS: Final = 1000
_MINUTE_MS: Final = 60 * _MS


class SignalReader:
    """Reads a store and says what a gateway is to know. For one thread.

    Args:
        dsn: of the store; opened at the first reading.
        settings: ``signals_*`` and the price of a rank.
        limits: endpoints as configured.
        clock_ms: Unix milliseconds.
    """

    def __init__(
        self,
        dsn: str,
        settings: Settings,
        limits: Sequence[EndpointLimits] = (),
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._dsn = dsn
        self._settings = settings
        self._limits = tuple(limits)
        self._clock_ms = clock_ms
        self._store: Store | None = None

    def read(self) -> FleetSignals:
        """Say what is known now.

        Raises:
            StoreError: the store cannot answer.
        """
        if self._store is None:
            self._store = open_store(self._dsn)
        return read_signals(self._store, self._settings, self._limits, now_ms=self._clock_ms())

    def close(self) -> None:
        """Let go of the store."""
        if self._store is not None:
            self._store.close()


def read_signals(
    store: Store, settings: Settings, limits: Sequence[EndpointLimits], *, now_ms: int
) -> FleetSignals:
    """Read what every EP group reported lately, and what is configured of it.

    Raises:
        StoreError: the store cannot answer.
    """
    # Half a minute ahead: a clock that is a little fast must not hide what it reports.
    end_ms = now_ms + _MINUTE_MS // 2
    longest = max(settings.signals_capacity_seconds, settings.signals_window_seconds)
    minutes = store.query(
        "routing_signals",
        start_ms=(now_ms - round(longest * _MS)) // _MINUTE_MS * _MINUTE_MS,
        end_ms=end_ms,
    ).to_pylist()
    latency = store.query(
        "signal_latency",
        metrics=[metric.name for metric in LATENCIES.values()],
        start_ms=now_ms - round(settings.signals_window_seconds * _MS),
        end_ms=end_ms,
    ).to_pylist()
    by_endpoint, latency_by_endpoint = _by_endpoint(minutes), _by_endpoint(latency)
    endpoints = [
        describe_endpoint(rows, latency_by_endpoint.get(key, []), settings, limits, now_ms=now_ms)
        for key, rows in by_endpoint.items()
    ]
    known = {(one.service, one.ep_group) for one in endpoints}
    return FleetSignals(now_ms, (*endpoints, *list_silent(limits, known)))


def _by_endpoint(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["service"], row["ep_group"]), []).append(row)
    return found
