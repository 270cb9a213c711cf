"""SGLang's metric collectors, with ours listening to what they are told.

SGLang asks one function for the class of each collector, which is how a deployment puts in its own. Whatever
class that is, it goes on as before; ours is made of it and hears the same calls. There are collectors only
with ``--enable-metrics``: without it SGLang measures no request, and neither does moescope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

logger = logging.getLogger("moescope")


class RequestListener(Protocol):
    """What the front end's collector is told. Seconds and tokens."""

    def first_token(self, seconds: float) -> None:
        """A request got its first token, so long after its arrival."""

    def next_tokens(self, interval_seconds: float, tokens: int) -> None:
        """A request got so many tokens more within the interval."""

    def finished(
        self,
        duration_seconds: float,
        token_seconds: float | None,
        output_tokens: int,
        prompt_tokens: int,
        cached_tokens: int,
    ) -> None:
        """A request is over."""

    def lose(self) -> None:
        """Nothing more will be told: what was said to be so now is not known any longer."""


class SchedulerListener(Protocol):
    """What a scheduler's collector is told."""

    def queued(self, seconds: float) -> None:
        """A request waited so long before it was first scheduled."""

    def logged(self, stats: Any) -> None:
        """The scheduler logs its state: SGLang's ``SchedulerStats``."""

    def lose(self) -> None:
        """Nothing more will be told: what was said to be so now is not known any longer."""


def listening_tokenizer(base: type, open_listener: Callable[[], RequestListener]) -> type:
    """A tokenizer collector of the class ``base`` that lets a listener hear."""
    return _made(base, _Tokenizer, open_listener)


def listening_scheduler(base: type, open_listener: Callable[[], SchedulerListener]) -> type:
    """A scheduler collector of the class ``base`` that lets a listener hear."""
    return _made(base, _Scheduler, open_listener)


def _made(base: type, mixin: type, open_listener: Callable[[], Any]) -> type:
    return type(
        f"Listening{base.__name__}",
        (mixin, base),
        {"open_listener": staticmethod(open_listener), "__doc__": mixin.__doc__, "__module__": __name__},
    )


class _Listening:
    """Opens its listener when it is made, and forgets it when it fails: SGLang goes on."""

    open_listener: Callable[[], Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.moescope: Any = None
        try:
            self.moescope = self.open_listener()
        except Exception:
            logger.exception("moescope: requests are not measured; SGLang serves on")

    def _tell(self, method: str, *args: Any) -> None:
        if self.moescope is None:
            return
        try:
            getattr(self.moescope, method)(*args)
        except Exception:
            logger.exception("moescope: requests are not measured any more; serving goes on")
            self._lose()

    def _lose(self) -> None:
        lost, self.moescope = self.moescope, None
        try:
            lost.lose()
        except Exception:
            logger.debug("moescope: the last states of requests stay", exc_info=True)


class _Tokenizer(_Listening):
    """SGLang's front-end collector, overheard."""

    def observe_time_to_first_token(self, labels: Any, value: float, *args: Any, **kwargs: Any) -> None:
        """See SGLang's collector."""
        super().observe_time_to_first_token(labels, value, *args, **kwargs)  # type: ignore[misc]  # mixed into a class that has it
        self._tell("first_token", value)

    def observe_inter_token_latency(self, labels: Any, internval: float, num_new_tokens: int) -> None:
        """See SGLang's collector; the parameter is spelled as there."""
        super().observe_inter_token_latency(labels, internval, num_new_tokens)  # type: ignore[misc]  # mixed into a class that has it
        self._tell("next_tokens", internval, num_new_tokens)

    def observe_one_finished_request(
        self,
        labels: Any,
        prompt_tokens: int,
        generation_tokens: int,
        cached_tokens: int,
        e2e_latency: float,
        *args: Any,
        time_per_output_token: float | None = None,
        **kwargs: Any,
    ) -> None:
        """See SGLang's collector."""
        super().observe_one_finished_request(  # type: ignore[misc]  # mixed into a class that has it
            labels,
            prompt_tokens,
            generation_tokens,
            cached_tokens,
            e2e_latency,
            *args,
            time_per_output_token=time_per_output_token,
            **kwargs,
        )
        self._tell(
            "finished", e2e_latency, time_per_output_token, generation_tokens, prompt_tokens, cached_tokens
        )


class _Scheduler(_Listening):
    """SGLang's scheduler collector, overheard."""

    def observe_queue_time(self, latency: float) -> None:
        """See SGLang's collector."""
        super().observe_queue_time(latency)  # type: ignore[misc]  # mixed into a class that has it
        self._tell("queued", latency)

    def log_stats(self, stats: Any) -> None:
        """See SGLang's collector."""
        super().log_stats(stats)  # type: ignore[misc]  # mixed into a class that has it
        self._tell("logged", stats)
