"""What a receiver answers: the same failures in the words of gRPC and of HTTP.

OTLP asks for it: a failure that passes is UNAVAILABLE or RESOURCE_EXHAUSTED with RetryInfo (503 or 429 with
Retry-After), a body that will never be accepted is INVALID_ARGUMENT (400), rejected points are a partial
success.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from moescope.schemas.errors import (
    MalformedRequestError,
    QueueFullError,
    RequestRefusedError,
    RequestTooLargeError,
    StoreUnavailableError,
    UnauthenticatedError,
)
from moescope.server.ingest import Receipt
from moescope.server.otlp_messages import ExportResponse

UNAVAILABLE_RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a request fails.

    Attributes:
        outcome: the word for the counter.
        grpc_code: status of gRPC.
        http_status: status of HTTP.
        retry_after_seconds: when to come again; None where that would not help.
    """

    outcome: str
    grpc_code: grpc.StatusCode
    http_status: int
    retry_after_seconds: float | None = None


def failure_of(error: Exception) -> Failure:
    """Classify what the way from body to store raised."""
    if isinstance(error, QueueFullError):
        return Failure("queue_full", grpc.StatusCode.RESOURCE_EXHAUSTED, 429, error.retry_after_seconds)
    if isinstance(error, StoreUnavailableError):
        return Failure("unavailable", grpc.StatusCode.UNAVAILABLE, 503, UNAVAILABLE_RETRY_SECONDS)
    if isinstance(error, RequestTooLargeError):
        return Failure("too_large", grpc.StatusCode.INVALID_ARGUMENT, 413)
    if isinstance(error, MalformedRequestError | RequestRefusedError):
        outcome = "malformed" if isinstance(error, MalformedRequestError) else "refused"
        return Failure(outcome, grpc.StatusCode.INVALID_ARGUMENT, 400)
    if isinstance(error, UnauthenticatedError):
        return Failure("unauthenticated", grpc.StatusCode.UNAUTHENTICATED, 401)
    return Failure("failed", grpc.StatusCode.UNAVAILABLE, 503, UNAVAILABLE_RETRY_SECONDS)


def status_message(failure: Failure, text: str) -> status_pb2.Status:
    """Return the ``google.rpc.Status`` of a failure, with RetryInfo where trying again helps."""
    code, _ = failure.grpc_code.value
    status = status_pb2.Status(code=code_pb2.Code.ValueType(code), message=text)
    if failure.retry_after_seconds is not None:
        seconds, fraction = divmod(failure.retry_after_seconds, 1)
        delay = duration_pb2.Duration(seconds=int(seconds), nanos=int(fraction * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def retry_after_header(failure: Failure) -> str | None:
    """Return the whole seconds of ``Retry-After``."""
    if failure.retry_after_seconds is None:
        return None
    return str(max(1, math.ceil(failure.retry_after_seconds)))


def export_response(receipt: Receipt) -> ExportResponse:
    """Return the response of a stored request; ``partial_success`` is set where points were rejected."""
    response = ExportResponse()
    if receipt.rejected:
        response.partial_success.rejected_data_points = receipt.rejected
        response.partial_success.error_message = receipt.message
    return response


def outcome_of(receipt: Receipt) -> str:
    """The word for the counter of a stored request."""
    return "partial" if receipt.rejected else "stored"
