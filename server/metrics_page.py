"""``/metrics`` for Prometheus, ``/v1/signals`` for a gateway, ``/healthz`` and ``/readyz`` for probes."""

from __future__ import annotations

import asyncio

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moescope.schemas.errors import MoescopeError, UnauthenticatedError
from moescope.server.access import Gate
from moescope.server.fleet_page import FleetPage
from moescope.server.own_metrics import OwnMetrics
from moescope.server.signals_page import SignalsPage
from moescope.server.store import Store

_PLAIN = "text/plain; charset=utf-8"


class MetricsPage:
    """The application behind the metrics port. The health pages ask for no token: probes have none."""

    def __init__(
        self, metrics: OwnMetrics, fleet: FleetPage, store: Store, gate: Gate, signals: SignalsPage
    ) -> None:
        self._metrics = metrics
        self._fleet = fleet
        self._store = store
        self._gate = gate
        self.app = Starlette(
            routes=[
                Route("/metrics", self._page),
                Route("/v1/signals", signals.respond, methods=["GET"]),
                Route("/healthz", _alive),
                Route("/readyz", self._ready),
            ]
        )

    async def _page(self, request: Request) -> Response:
        try:
            self._gate.check_bearer(request.headers.get("authorization"))
        except UnauthenticatedError as error:
            headers = {"www-authenticate": "Bearer"}
            return Response(f"{error}\n", status_code=401, media_type=_PLAIN, headers=headers)
        # Thousands of series take their time, and every other port is served by this thread.
        page = await asyncio.to_thread(self._text)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def _text(self) -> bytes:
        fleet = self._fleet.render()
        return self._metrics.page() + fleet

    async def _ready(self, _: Request) -> Response:
        try:
            await asyncio.to_thread(self._store.check)
        except MoescopeError as error:
            return Response(f"not ready: {error}\n", status_code=503, media_type=_PLAIN)
        return Response("ready\n", media_type=_PLAIN)


async def _alive(_: Request) -> Response:
    return Response("alive\n", media_type=_PLAIN)
