"""Where OTLP goes: the standard ``OTEL_*`` variables, metric-specific ones first.

Specification: OpenTelemetry Protocol Exporter. As in the Python SDK the time-out is in seconds. An endpoint
of the environment without a scheme is encrypted unless ``OTEL_EXPORTER_OTLP_INSECURE`` is true; one that was
given as an argument is plain text unless it is false.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import urlsplit

from opentelemetry.sdk import environment_variables as env
from opentelemetry.util.re import parse_env_headers

from moescope.schemas.errors import SettingError

_HTTP_PATH: Final = "/v1/metrics"


class Protocol(StrEnum):
    """How a request travels."""

    GRPC = "grpc"
    HTTP = "http/protobuf"


class Compression(StrEnum):
    """Of the request body. None by default: level 9 costs a hundred times the packing."""

    NONE = "none"
    GZIP = "gzip"


_Choice = TypeVar("_Choice", Protocol, Compression)


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """Everything a transport needs.

    ``endpoint`` is ``host:port`` for gRPC and a full URL for HTTP.
    """

    protocol: Protocol
    endpoint: str
    is_secure: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    compression: Compression = Compression.NONE
    certificate_file: str | None = None
    client_key_file: str | None = None
    client_certificate_file: str | None = None


def is_disabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``OTEL_SDK_DISABLED`` or ``OTEL_METRICS_EXPORTER=none`` turns metrics off."""
    environ = os.environ if environ is None else environ
    return (
        environ.get(env.OTEL_SDK_DISABLED, "").strip().lower() == "true"
        or environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none"
    )


def load_otlp_config(
    environ: Mapping[str, str] | None = None,
    *,
    endpoint: str | None = None,
    protocol: Protocol | None = None,
) -> OtlpConfig:
    """Read the configuration; arguments win over the environment.

    Raises:
        SettingError: a variable holds what it cannot take; the message names it.
    """
    environ = os.environ if environ is None else environ
    if protocol is None:
        protocol = _choice(environ, "PROTOCOL", Protocol, Protocol.GRPC)
    is_plain_by_default = endpoint is not None
    if endpoint is None:
        endpoint, is_base = _endpoint_from(environ, protocol)
    else:
        is_base = not urlsplit(_with_scheme(endpoint)).path.strip("/")
    url = urlsplit(_with_scheme(endpoint))
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise SettingError(f"OTLP endpoint {endpoint!r} is no URL such as http://127.0.0.1:4317")
    is_secure = url.scheme == "https" or (
        "://" not in endpoint and not _is_insecure(environ, default=is_plain_by_default)
    )
    if protocol is Protocol.GRPC:
        target = f"{url.hostname if ':' not in url.hostname else f'[{url.hostname}]'}:{url.port or 4317}"
    else:
        target = url.geturl().rstrip("/") + _HTTP_PATH if is_base else url.geturl()
    return OtlpConfig(
        protocol=protocol,
        endpoint=target,
        is_secure=is_secure,
        headers=parse_env_headers(_first(environ, "HEADERS") or "", liberal=True),
        timeout_seconds=_timeout(environ),
        compression=_choice(environ, "COMPRESSION", Compression, Compression.NONE),
        certificate_file=_first(environ, "CERTIFICATE"),
        client_key_file=_first(environ, "CLIENT_KEY"),
        client_certificate_file=_first(environ, "CLIENT_CERTIFICATE"),
    )


def _endpoint_from(environ: Mapping[str, str], protocol: Protocol) -> tuple[str, bool]:
    """The endpoint, and whether ``/v1/metrics`` is still to be added (only to the general variable)."""
    if own := environ.get(env.OTEL_EXPORTER_OTLP_METRICS_ENDPOINT):
        return own, False
    default = "http://localhost:4317" if protocol is Protocol.GRPC else "http://localhost:4318"
    return environ.get(env.OTEL_EXPORTER_OTLP_ENDPOINT) or default, True


def _first(environ: Mapping[str, str], suffix: str) -> str | None:
    return environ.get(f"OTEL_EXPORTER_OTLP_METRICS_{suffix}") or environ.get(f"OTEL_EXPORTER_OTLP_{suffix}")


def _with_scheme(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _is_insecure(environ: Mapping[str, str], *, default: bool) -> bool:
    text = _first(environ, "INSECURE")
    return default if text is None else text.strip().lower() == "true"


def _timeout(environ: Mapping[str, str]) -> float:
    text = _first(environ, "TIMEOUT") or "10"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise SettingError(f"OTEL_EXPORTER_OTLP_TIMEOUT={text!r} is no positive number of seconds")
    return seconds


def _choice(environ: Mapping[str, str], suffix: str, kind: type[_Choice], default: _Choice) -> _Choice:
    text = (_first(environ, suffix) or default.value).strip().lower()
    try:
        return kind(text)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise SettingError(
            f"OTEL_EXPORTER_OTLP_{suffix}={text!r} is not supported; use one of: {known}"
        ) from None
