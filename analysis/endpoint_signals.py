"""From the minutes of one endpoint to its signals. What nobody reported has no value, and no confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from moescope.analysis.distribution import BucketRow, Percentiles, describe_distribution
from moescope.analysis.requests import cost_per_thousand_tokens
from moescope.schemas import metrics
from moescope.schemas.metrics import Metric
from moescope.schemas.settings import Settings
from moescope.schemas.signals import Endpoint, EndpointLimits, Evidence, Signal, make_signal

LATENCIES: Final = {"ttft": metrics.TIME_TO_FIRST_TOKEN, "tpot": metrics.TIME_PER_OUTPUT_TOKEN}
_BEST: Final = 95
"""Percentile of the minutes' decode rates: the best that is no exception."""
_MS: Final = 1000
_MINUTE_MS: Final = 60 * _MS


@dataclass(frozen=True, slots=True)
class _Minutes:
    """The minutes of one endpoint, oldest first, and what is said of them."""

    rows: Sequence[Mapping[str, Any]]
    now_ms: int

    @property
    def whole(self) -> Sequence[Mapping[str, Any]]:
        """Those without a newest one in which not yet all processes reported.

        Windows of processes end at different times, so a minute that has only begun holds some of the ranks,
        and a sum over it is no state of the endpoint. A process that is gone is missed for a minute.
        """
        is_partial = len(self.rows) > 1 and self.rows[-1]["processes"] < self.rows[-2]["processes"]
        return self.rows[:-1] if is_partial else self.rows

    def newest(self, name: str, unit: str) -> Signal:
        """The newest state or rate that somebody reported."""
        for row in reversed(self.whole):
            if row[name] is not None:
                return self.signal(float(row[name]), unit, row, row["windows"], Evidence.WINDOWS)
        return self.signal(None, unit, None, 0, Evidence.WINDOWS)

    def signal(
        self,
        value: float | None,
        unit: str,
        row: Mapping[str, Any] | None,
        observations: int,
        evidence: Evidence,
    ) -> Signal:
        """A value as old as the newest window of a minute."""
        age = 0.0 if row is None else (self.now_ms - row["newest_ms"]) / _MS
        return make_signal(value, unit, age_seconds=age, observations=observations, evidence=evidence)

    def since(self, seconds: float) -> list[Mapping[str, Any]]:
        """Those of :attr:`whole` that end within the last so many seconds."""
        return [row for row in self.whole if row["time_ms"] + _MINUTE_MS > self.now_ms - seconds * _MS]


def describe_endpoint(
    rows: Sequence[Mapping[str, Any]],
    latency: Sequence[Mapping[str, Any]],
    settings: Settings,
    limits: Sequence[EndpointLimits],
    *,
    now_ms: int,
) -> Endpoint:
    """Say what is known of one EP group.

    Args:
        rows: of ``queries/routing_signals.sql``, oldest first, at least one.
        latency: of ``queries/signal_latency.sql``.
        settings: ``signals_window_seconds``, ``signals_capacity_seconds`` and ``rank_hour_price``.
        limits: what is configured, of any endpoint.
        now_ms: Unix milliseconds.
    """
    minutes = _Minutes(rows, now_ms)
    recent = minutes.since(settings.signals_window_seconds)
    newest = rows[-1]
    front = next((row for row in reversed(rows) if row["instance"]), newest)
    service, ep_group = newest["service"], newest["ep_group"]
    return Endpoint(
        *(service, ep_group, newest["role"], front["host"], front["instance"]),
        limits=find_limits(limits, service, ep_group),
        load={
            **_rates(minutes, settings.signals_capacity_seconds),
            "kda_slots_free": minutes.newest("kda_free", "{slot}"),
            "kda_slots_limit": minutes.newest("kda_limit", "{slot}"),
            "mla_blocks_free": minutes.newest("mla_free", "{block}"),
            "mla_blocks_limit": minutes.newest("mla_limit", "{block}"),
            "requests_running": minutes.newest("running", "{request}"),
            "requests_waiting": minutes.newest("waiting", "{request}"),
            **_latencies(latency, now_ms),
        },
        state=_prefix(minutes, recent),
        economics={"cost_per_thousand_good_tokens": _cost(minutes, recent, settings)},
    )


def find_limits(limits: Sequence[EndpointLimits], service: str, ep_group: str) -> EndpointLimits | None:
    """What is configured: for the EP group itself, or for all of its deployment; None where nothing is."""
    for wanted in (ep_group, ""):
        for one in limits:
            if (one.service, one.ep_group) == (service, wanted):
                return one
    return None


def _rates(minutes: _Minutes, seconds: float) -> dict[str, Signal]:
    """Tokens a second by phase, and how far decode is from the best that it did in so many seconds."""
    now = minutes.newest("decode", "{token}/s")
    rows = minutes.since(seconds)
    rates = [float(row["decode"]) for row in rows if row["decode"] is not None]
    best = float(np.percentile(rates, _BEST)) if rates else None
    row = next((one for one in reversed(rows) if one["decode"] is not None), None)
    headroom = None if best is None or now.value is None or best <= 0 else max(1 - now.value / best, 0.0)
    return {
        "prefill_tokens_per_second": minutes.newest("prefill", "{token}/s"),
        "decode_tokens_per_second": now,
        "decode_best_tokens_per_second": minutes.signal(best, "{token}/s", row, len(rates), Evidence.WINDOWS),
        "decode_headroom_ratio": minutes.signal(headroom, "1", row, len(rates), Evidence.WINDOWS),
    }


def _latencies(rows: Sequence[Mapping[str, Any]], now_ms: int) -> dict[str, Signal]:
    found: dict[str, Signal] = {}
    for name, metric in LATENCIES.items():
        of_metric = [row for row in rows if row["metric"] == metric.name]
        whole = _merge(metric, of_metric) if of_metric else None
        age = (now_ms - max(row["newest_ms"] for row in of_metric)) / _MS if of_metric else 0.0
        for quantile in ("p50", "p90"):
            value = None if whole is None else float(getattr(whole, quantile))
            found[f"{name}_{quantile}_seconds"] = make_signal(
                None if value is None or np.isnan(value) else value,
                "s",
                age_seconds=age,
                observations=0 if whole is None else whole.observations,
                evidence=Evidence.REQUESTS,
            )
    return found


def _merge(metric: Metric, rows: Sequence[Mapping[str, Any]]) -> Percentiles:
    histograms = [
        BucketRow(
            *(0, np.array(row["bounds"], dtype=np.float64), np.array(row["bucket_counts"], dtype=np.float64)),
            *(row["observations"], row["total"]),
        )
        for row in rows
    ]
    return describe_distribution(metric, histograms).whole


def _prefix(minutes: _Minutes, recent: Sequence[Mapping[str, Any]]) -> dict[str, Signal]:
    looked_up = sum(row["looked_up"] for row in recent)
    requests = sum(row["finished"] for row in recent)
    row = next((one for one in reversed(recent) if one["looked_up"]), None)
    shares = {
        "prefix_hit_ratio": sum(row["found"] or 0 for row in recent),
        "prefix_partial_hit_ratio": sum(row["partial"] or 0 for row in recent),
    }
    return {
        name: minutes.signal(
            tokens / looked_up if looked_up else None,
            "1",
            row,
            # A group that only prefills finishes none: there its windows are what is known.
            requests or len(recent),
            Evidence.REQUESTS if requests else Evidence.WINDOWS,
        )
        for name, tokens in shares.items()
    }


def _cost(minutes: _Minutes, recent: Sequence[Mapping[str, Any]], settings: Settings) -> Signal:
    cost = cost_per_thousand_tokens(
        sum(row["good_tokens"] for row in recent),
        rank_seconds=sum(row["rank_seconds"] for row in recent),
        rank_hour_price=settings.rank_hour_price,
    )
    row = next((one for one in reversed(recent) if one["finished"]), None)
    requests = sum(row["finished"] for row in recent)
    return minutes.signal(cost, "{currency}/kilotoken", row, requests, Evidence.REQUESTS)


def list_silent(limits: Sequence[EndpointLimits], known: AbstractSet[tuple[str, str]]) -> list[Endpoint]:
    """Endpoints that are configured by name and of which nothing is heard: they are not left out.

    ``known`` are services and EP groups that report.
    """
    services = {service for service, _ in known}
    nothing = _Minutes((), 0)
    return [
        Endpoint(
            *(one.service, one.ep_group, "", "", ""),
            limits=one,
            load={"decode_tokens_per_second": nothing.newest("decode", "{token}/s")},
            state={},
            economics={},
        )
        for one in limits
        if ((one.service, one.ep_group) not in known if one.ep_group else one.service not in services)
    ]
