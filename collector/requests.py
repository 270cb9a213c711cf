"""A finished request as metrics: TTFT, TPOT, queue, end to end, and whether it kept the latency contract."""

from __future__ import annotations

from dataclasses import dataclass

from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import CONTRACT, OPERATION, PROVIDER, REQUEST_MODEL, Contract
from moescope.schemas.records import Attributes
from moescope.schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One request, timed by one monotonic clock. Seconds; None where the engine does not know.

    Attributes:
        duration_seconds: from its arrival to its last token.
        first_token_seconds: from its arrival to its first token; None if it never got one.
        queue_seconds: from its arrival to the step that first computed it.
        output_tokens: tokens that were generated.
    """

    duration_seconds: float
    first_token_seconds: float | None
    output_tokens: int
    queue_seconds: float | None = None

    @property
    def token_seconds(self) -> float | None:
        """TPOT: (end to end − TTFT) / (n − 1); None for fewer than two output tokens, never 0."""
        if self.first_token_seconds is None or self.output_tokens < 2:
            return None
        return (self.duration_seconds - self.first_token_seconds) / (self.output_tokens - 1)

    def keeps(self, *, ttft_seconds: float, tpot_seconds: float) -> bool:
        """Whether it was good: first token in time and, where there is more than one, tokens fast enough."""
        if self.first_token_seconds is None or self.first_token_seconds > ttft_seconds:
            return False
        return self.token_seconds is None or self.token_seconds <= tpot_seconds


class RequestMetrics:
    """Turns the requests of one model into metrics.

    Args:
        meter: where they go.
        model: name of the model that requests ask for.
        provider: the engine that serves it.
        settings: the latency contract.
    """

    def __init__(self, meter: Meter, *, model: str, provider: str, settings: Settings) -> None:
        self._meter = meter
        self._ttft_seconds = settings.contract_ttft_seconds
        self._tpot_seconds = settings.contract_tpot_seconds
        self.attributes: Attributes = {
            OPERATION: "text_completion",
            PROVIDER: provider,
            REQUEST_MODEL: model,
        }

    def first_token(self, seconds: float) -> None:
        """A request got its first token, so long after its arrival."""
        self._meter.observe(metrics.TIME_TO_FIRST_TOKEN, seconds, self.attributes)

    def next_tokens(self, gap_seconds: float, times: int = 1) -> None:
        """A request got its next token, so long after the one before."""
        self._meter.observe(metrics.INTER_TOKEN_LATENCY, gap_seconds, self.attributes, times=times)

    def queued(self, seconds: float) -> None:
        """A request waited so long to be scheduled: said by itself where it does not end here."""
        self._meter.observe(metrics.REQUEST_QUEUE_DURATION, seconds, self.attributes)

    def finished(self, request: FinishedRequest) -> None:
        """A request is over. Its first token was already said by :meth:`first_token`."""
        meter, attributes = self._meter, self.attributes
        meter.observe(metrics.REQUEST_DURATION, request.duration_seconds, attributes)
        if request.queue_seconds is not None:
            self.queued(request.queue_seconds)
        if request.token_seconds is not None:
            meter.observe(metrics.TIME_PER_OUTPUT_TOKEN, request.token_seconds, attributes)
        is_good = request.keeps(ttft_seconds=self._ttft_seconds, tpot_seconds=self._tpot_seconds)
        contract = {CONTRACT: (Contract.MET if is_good else Contract.MISSED).value}
        meter.add(metrics.REQUESTS_FINISHED, 1, contract)
        meter.add(metrics.REQUEST_OUTPUT_TOKENS, request.output_tokens, contract)
