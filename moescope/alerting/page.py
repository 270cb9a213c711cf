"""The HTTP API: rules, alerts and history in Prometheus's JSON, ``/metrics`` and the health pages."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from moescope.alerting.alert import Alert, rfc3339
from moescope.alerting.group_runner import GroupRunner
from moescope.alerting.humanize import plain
from moescope.alerting.own_metrics import OwnMetrics
from moescope.alerting.rule_keeper import RuleKeeper
from moescope.alerting.state_file import StateFile
from moescope.schemas.errors import UnauthenticatedError
from moescope.server.access import Gate

MOST_EVENTS: Final = 5000
_HISTORY_SECONDS: Final = 86400.0
_LATE_ROUNDS: Final = 3
_PLAIN: Final = "text/plain; charset=utf-8"
_NEVER: Final = "0001-01-01T00:00:00Z"


class AlertsPage:
    """The application behind the alerts port. The health pages ask for no token: probes have none."""

    def __init__(
        self,
        runners: Sequence[GroupRunner],
        state: StateFile,
        metrics: OwnMetrics,
        gate: Gate,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runners = runners
        self._state = state
        self._metrics = metrics
        self._gate = gate
        self._clock = clock
        self.app = Starlette(
            routes=[
                Route("/api/v1/rules", self._guarded(self._rules)),
                Route("/api/v1/alerts", self._guarded(self._alerts)),
                Route("/api/v1/history", self._guarded(self._history)),
                Route("/metrics", self._guarded(self._page)),
                Route("/healthz", _alive),
                Route("/readyz", self._ready),
                Route("/", _overview),
            ]
        )

    def not_ready(self) -> str:
        """Why alerts cannot be relied on; empty if they can."""
        now = self._clock()
        for runner in self._runners:
            name = f"group {runner.group.name}"
            if runner.last_at is None:
                return f"{name} was not evaluated yet"
            late = now - runner.last_at
            if late > _LATE_ROUNDS * runner.interval:
                return f"{name} was last evaluated {late:.0f} s ago; it is due every {runner.interval:g} s"
        keepers = [keeper for runner in self._runners for keeper in runner.keepers]
        if keepers and all(keeper.last_error for keeper in keepers):
            return f"no rule could be evaluated: {keepers[0].last_error}"
        return ""

    def _guarded(self, answer: Callable[[Request], Response]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            try:
                self._gate.check_bearer(request.headers.get("authorization"))
            except UnauthenticatedError as error:
                return Response(f"{error}\n", 401, {"www-authenticate": "Bearer"}, _PLAIN)
            return await asyncio.to_thread(answer, request)

        return respond

    def _rules(self, _: Request) -> Response:
        return _success({"groups": [_group(runner) for runner in self._runners]})

    def _alerts(self, _: Request) -> Response:
        keepers = (keeper for runner in self._runners for keeper in runner.keepers)
        return _success({"alerts": [_alert(alert) for keeper in keepers for alert in keeper.alerts()]})

    def _history(self, request: Request) -> Response:
        now = self._clock()
        try:
            end = _moment(request.query_params.get("end"), now)
            start = _moment(request.query_params.get("start"), end - _HISTORY_SECONDS)
        except ValueError as error:
            return JSONResponse(
                {"status": "error", "errorType": "bad_data", "error": str(error)}, status_code=400
            )
        return _success({"events": self._state.events(start, end, MOST_EVENTS)})

    def _page(self, _: Request) -> Response:
        return Response(self._metrics.page(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _ready(self, _: Request) -> Response:
        reason = self.not_ready()
        if reason:
            return Response(f"not ready: {reason}\n", status_code=503, media_type=_PLAIN)
        return Response("ready\n", media_type=_PLAIN)


async def _alive(_: Request) -> Response:
    return Response("alive\n", media_type=_PLAIN)


async def _overview(_: Request) -> Response:
    text = "moescope alerts: /api/v1/rules, /api/v1/alerts, /api/v1/history, /metrics, /healthz, /readyz\n"
    return Response(text, media_type=_PLAIN)


def _success(data: Any) -> Response:
    return JSONResponse({"status": "success", "data": data})


def _group(runner: GroupRunner) -> dict[str, Any]:
    return {
        "name": runner.group.name,
        "file": str(runner.group.file),
        "interval": runner.interval,
        "limit": runner.group.limit,
        "evaluationTime": runner.last_seconds,
        "lastEvaluation": _NEVER if runner.last_at is None else rfc3339(runner.last_at),
        "rules": [_rule(keeper) for keeper in runner.keepers],
    }


def _rule(keeper: RuleKeeper) -> dict[str, Any]:
    rule = keeper.rule
    health = "unknown" if keeper.last_at is None else "err" if keeper.last_error else "ok"
    return {
        "name": rule.name,
        "type": "alerting",
        "query": rule.expression.sql,
        "duration": rule.for_seconds,
        "keepFiringFor": rule.keep_firing_seconds,
        "noData": rule.no_data.value,
        "labels": {name: text.source for name, text in rule.labels.items()},
        "annotations": {name: text.source for name, text in rule.annotations.items()},
        "alerts": [_alert(alert) for alert in keeper.alerts()],
        "health": health,
        "lastError": keeper.last_error,
        "evaluationTime": keeper.last_seconds,
        "lastEvaluation": _NEVER if keeper.last_at is None else rfc3339(keeper.last_at),
        "state": keeper.state.value,
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.state.value,
        "isFiring": alert.is_firing,
        "activeAt": _NEVER if alert.active_at is None else rfc3339(alert.active_at),
        "firedAt": None if alert.fired_at is None else rfc3339(alert.fired_at),
        "value": plain(alert.value),
    }


def _moment(text: str | None, otherwise: float) -> float:
    """Unix seconds of a parameter: a number, or a date as in RFC 3339."""
    if text is None:
        return otherwise
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time; write Unix seconds or 2026-11-29T12:00:00Z") from None
        return moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp()
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is no time; write Unix seconds or 2026-11-29T12:00:00Z")
    return seconds
