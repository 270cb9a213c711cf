"""The OTLP/gRPC receiver. It sees the raw bytes of a request, so that they can be digested and read fast."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from moescope.schemas.settings import Settings
from moescope.server.access import Gate
from moescope.server.answers import export_response, failure_of, outcome_of, status_message
from moescope.server.ingest import Ingest
from moescope.server.otlp_decode import Encoding
from moescope.server.otlp_messages import EXPORT_METHOD
from moescope.server.own_metrics import OwnMetrics

_LOG: Final = logging.getLogger(__name__)
_PROTOCOL: Final = "grpc"
_STATUS_DETAILS: Final = "grpc-status-details-bin"
_HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"
"""``HealthCheckResponse{status: SERVING}``: field 1, varint 1."""


class GrpcReceiver:
    """Listens for ``MetricsService/Export`` and the standard health check.

    Args:
        ingest: takes the bodies.
        gate: asks for the token.
        settings: largest request.
        metrics: counts outcomes.
        executor: each request holds one of its threads until it is stored; its size bounds the requests in
            memory, since a request's bytes are read by the thread that serves it.
    """

    def __init__(
        self,
        ingest: Ingest,
        gate: Gate,
        settings: Settings,
        metrics: OwnMetrics,
        executor: ThreadPoolExecutor,
    ) -> None:
        self._ingest = ingest
        self._gate = gate
        self._metrics = metrics
        self._server = grpc.server(
            executor,
            handlers=[_Handlers({EXPORT_METHOD: self._export, _HEALTH_CHECK: _check_health})],
            options=[
                ("grpc.max_receive_message_length", settings.max_request_bytes),
                # Another process on the same port would take part of the requests.
                ("grpc.so_reuseport", 0),
            ],
        )

    def listen(self, address: str) -> int:
        """Bind ``host:port``, start, and return the port; port 0 takes a free one.

        Raises:
            RuntimeError: the port cannot be had.
        """
        port = self._server.add_insecure_port(address)
        self._server.start()
        return int(port)

    def stop(self, grace_seconds: float) -> None:
        """Refuse new requests, give those under way some time, and close the port."""
        self._server.stop(grace_seconds).wait()

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            self._gate.check_bearer(metadata.get("authorization"))
            self._metrics.request_bytes.labels(_PROTOCOL).inc(len(body))
            receipt = self._ingest.accept(body, Encoding.PROTOBUF)
        except Exception as error:
            failure = failure_of(error)
            self._metrics.requests.labels(_PROTOCOL, failure.outcome).inc()
            if failure.outcome == "failed":
                _LOG.exception("an OTLP/gRPC request failed")
            details = status_message(failure, str(error)).SerializeToString()
            context.set_trailing_metadata(((_STATUS_DETAILS, details),))
            context.abort(failure.grpc_code, str(error))
        self._metrics.requests.labels(_PROTOCOL, outcome_of(receipt)).inc()
        return export_response(receipt).SerializeToString()


_Behaviour = Callable[[bytes, grpc.ServicerContext], bytes]


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Unary methods over raw bytes, by their path."""

    def __init__(self, behaviours: dict[str, _Behaviour]) -> None:
        self._handlers = {
            path: grpc.unary_unary_rpc_method_handler(behaviour) for path, behaviour in behaviours.items()
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return the handler of a path; gRPC answers UNIMPLEMENTED where there is none."""
        return self._handlers.get(handler_call_details.method)


def _check_health(_: bytes, __: grpc.ServicerContext) -> bytes:
    return _SERVING
