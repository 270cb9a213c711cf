"""Bytes to an endpoint, and what its answer means.

The bytes are what was frozen: they are sent as they are, so that a repetition is the same request. An answer
means one of three things: taken, try again with the same bytes, or never to be taken.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import requests
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from moescope.exporters.otlp_config import Compression, OtlpConfig
from moescope.exporters.otlp_config import Protocol as OtlpProtocol

_EXPORT_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_GZIP_LEVEL: Final = 1
_HTTP_OK: Final = range(200, 300)
_NEVER_HTTP: Final = frozenset({400, 413, 415, 422})
_NEVER_GRPC: Final = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE})


class Verdict(Enum):
    """What an answer means for the frozen bytes."""

    TAKEN = "taken"
    AGAIN = "again"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Answer:
    """An endpoint's answer.

    Attributes:
        verdict: what to do with the bytes.
        reason: a short word: the status, in lower case.
        message: what the endpoint said.
        retry_after_seconds: what it asked for.
        rejected_points: points that it will never store, of a request that it took.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    retry_after_seconds: float | None = None
    rejected_points: int = 0


class Transport(Protocol):
    """A connection to one endpoint, made when it is first used."""

    def encode(self, request: bytes) -> bytes:
        """Compress as configured; what comes out is what is frozen."""

    def send(self, body: bytes, timeout_seconds: float | None = None) -> Answer:
        """Send encoded bytes, for the configured or the given time-out, the shorter. Never raises."""

    def close(self) -> None:
        """Let go of the connection."""


def connect(config: OtlpConfig) -> Transport:
    """Return the transport of the configured protocol. Nothing is opened yet."""
    return GrpcTransport(config) if config.protocol is OtlpProtocol.GRPC else HttpTransport(config)


class HttpTransport:
    """OTLP/HTTP, protobuf."""

    def __init__(self, config: OtlpConfig) -> None:
        self._config = config
        self._session: requests.Session | None = None
        self._headers = {**config.headers, "Content-Type": "application/x-protobuf"}
        if config.compression is Compression.GZIP:
            self._headers["Content-Encoding"] = "gzip"

    def encode(self, request: bytes) -> bytes:
        """See :meth:`Transport.encode`."""
        if self._config.compression is Compression.GZIP:
            return gzip.compress(request, compresslevel=_GZIP_LEVEL, mtime=0)
        return request

    def send(self, body: bytes, timeout_seconds: float | None = None) -> Answer:
        """See :meth:`Transport.send`."""
        config = self._config
        if self._session is None:
            self._session = requests.Session()
            self._session.verify = config.certificate_file or True
            if config.client_certificate_file and config.client_key_file:
                self._session.cert = (config.client_certificate_file, config.client_key_file)
        timeout = _shorter(config.timeout_seconds, timeout_seconds)
        try:
            response = self._session.post(config.endpoint, data=body, headers=self._headers, timeout=timeout)
        except (requests.RequestException, OSError) as error:
            return Answer(Verdict.AGAIN, "unreachable", str(error))
        if response.status_code in _HTTP_OK:
            return _taken(response.content)
        verdict = Verdict.NEVER if response.status_code in _NEVER_HTTP else Verdict.AGAIN
        return Answer(
            verdict,
            f"http_{response.status_code}",
            _http_message(response),
            _seconds(response.headers.get("Retry-After")),
        )

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        if self._session is not None:
            self._session.close()
            self._session = None


class GrpcTransport:
    """OTLP/gRPC. Bytes go out as they are; no message object is built."""

    def __init__(self, config: OtlpConfig) -> None:
        self._config = config
        self._channel: grpc.Channel | None = None
        self._call: Any = None

    def encode(self, request: bytes) -> bytes:
        """See :meth:`Transport.encode`. gRPC compresses the frame itself; the message stays the same."""
        return request

    def send(self, body: bytes, timeout_seconds: float | None = None) -> Answer:
        """See :meth:`Transport.send`."""
        try:
            if self._call is None:
                self._open()
        except OSError as error:
            return Answer(Verdict.AGAIN, "certificate", str(error))
        compression = grpc.Compression.Gzip if self._config.compression is Compression.GZIP else None
        try:
            response = self._call(
                body,
                timeout=_shorter(self._config.timeout_seconds, timeout_seconds),
                metadata=tuple(self._config.headers.items()),
                compression=compression,
            )
        except grpc.RpcError as error:
            return _grpc_answer(error)
        return _taken(response)

    def close(self) -> None:
        """See :meth:`Transport.close`."""
        if self._channel is not None:
            self._channel.close()
            self._channel, self._call = None, None

    def _open(self) -> None:
        config = self._config
        options = (
            # An engine outlives many endpoints; the default waits up to two minutes to look again.
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.max_send_message_length", -1),
            # Channels of one process would otherwise share a connection and its backoff.
            ("grpc.use_local_subchannel_pool", 1),
        )
        if config.is_secure:
            credentials = grpc.ssl_channel_credentials(
                _read(config.certificate_file),
                _read(config.client_key_file),
                _read(config.client_certificate_file),
            )
            self._channel = grpc.secure_channel(config.endpoint, credentials, options)
        else:
            self._channel = grpc.insecure_channel(config.endpoint, options)
        self._call = self._channel.unary_unary(_EXPORT_METHOD, None, None)


def _taken(body: bytes) -> Answer:
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except Exception:
        return Answer(Verdict.TAKEN)  # a 2xx is an acknowledgement, whatever its body says
    return Answer(
        Verdict.TAKEN, message=partial.error_message, rejected_points=int(partial.rejected_data_points)
    )


def _grpc_answer(error: Any) -> Answer:
    code = error.code()
    verdict = Verdict.NEVER if code in _NEVER_GRPC else Verdict.AGAIN
    return Answer(verdict, code.name.lower(), error.details() or "", _retry_info(error))


def _retry_info(error: Any) -> float | None:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                details = Status.FromString(value).details
            except DecodeError:
                return None  # a proxy's trailer; our own backoff is as good
            for detail in details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return float(info.retry_delay.ToMilliseconds()) / 1000
    return None


def _shorter(configured: float, given: float | None) -> float:
    return configured if given is None else max(min(configured, given), 0.001)


def _http_message(response: requests.Response) -> str:
    try:
        return Status.FromString(response.content).message or response.reason
    except Exception:
        return response.text[:200] or response.reason


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None  # an HTTP date; our own backoff is as good


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
