"""The OTLP exporter: what was sent once is frozen, and repeated byte for byte until it is acknowledged.

At most one window is frozen. While it waits, its owner closes no other, so memory is bounded by that window
and the live counters, and an acknowledgement that got lost doubles nothing: the store sees the same bytes.
"""

from __future__ import annotations

import logging
import time
from collections import deque

from opentelemetry.sdk.resources import Resource

from moescope.exporters.otlp_config import OtlpConfig
from moescope.exporters.otlp_transport import Answer, Transport, Verdict, connect
from moescope.exporters.otlp_wire import OtlpPacker
from moescope.schemas.identity import Identity
from moescope.schemas.records import Attempt, Window

logger = logging.getLogger("moescope")


class OtlpExporter:
    """Hands windows of one process to one OTLP endpoint.

    Args:
        identity: who reports; ``OTEL_RESOURCE_ATTRIBUTES`` are added to it.
        config: where to.
        version: version of moescope, for the scope.
        transport: how to; from ``config`` if None.
    """

    def __init__(
        self,
        identity: Identity,
        config: OtlpConfig,
        *,
        version: str = "",
        transport: Transport | None = None,
    ) -> None:
        resource = Resource.create(dict(identity.resource_attributes()))
        attributes = {
            key: value for key, value in resource.attributes.items() if isinstance(value, str | bool | int)
        }
        self._packer = OtlpPacker(attributes, version)
        self._transport = transport or connect(config)
        self._frozen: deque[bytes] = deque()

    @property
    def pending_bytes(self) -> int:
        """Size of the frozen requests that wait for their acknowledgement."""
        return sum(map(len, self._frozen))

    def export(self, window: Window, timeout_seconds: float | None = None) -> Attempt:
        """Freeze ``window`` and try to hand it over. Only when nothing is pending."""
        self._frozen.extend(self._transport.encode(request) for request in self._packer.pack(window))
        return self.retry(timeout_seconds)

    def retry(self, timeout_seconds: float | None = None) -> Attempt:
        """Send what is frozen, in order, up to the first request that is not taken."""
        reason = ""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._frozen:
            remaining = None if deadline is None else deadline - time.monotonic()
            answer = self._transport.send(self._frozen[0], remaining)
            if answer.verdict is Verdict.AGAIN:
                return Attempt(
                    delivered=False, reason=answer.reason, retry_after_seconds=answer.retry_after_seconds
                )
            request = self._frozen.popleft()
            reason = _report_loss(answer, len(request)) or reason
        return Attempt(delivered=True, reason=reason)

    def close(self) -> None:
        """Let go of the connection."""
        self._transport.close()


def _report_loss(answer: Answer, request_bytes: int) -> str:
    """Say loudly what the endpoint will never store; repeating it would block everything behind it."""
    if answer.verdict is Verdict.NEVER:
        logger.error(
            "moescope: the endpoint refuses %d bytes for good (%s: %s); they are dropped",
            request_bytes,
            answer.reason,
            answer.message,
        )
        return answer.reason
    if answer.rejected_points:
        logger.error("moescope: the endpoint rejected %d points: %s", answer.rejected_points, answer.message)
        return "rejected_points"
    return ""
