"""Whoever is told of alerts, as the sending thread sees him: what is due, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from moescope.alerting.alert import Alert
from moescope.alerting.state_file import Outgoing


@dataclass(frozen=True, slots=True)
class News:
    """What an evaluation of a rule brought for those who are told.

    Attributes:
        firing: all alerts of the rule that fire.
        started: those of them that began with this evaluation.
        ended: those that stopped with it.
        valid_seconds: so long a firing alert holds without another word.
    """

    firing: Sequence[Alert] = ()
    started: Sequence[Alert] = ()
    ended: Sequence[Alert] = ()
    valid_seconds: float = 240.0


@dataclass(frozen=True, slots=True)
class Batch:
    """One request.

    Attributes:
        body: JSON.
        keys: of what it tells.
        marks: what of each key it tells: the key may stand for something newer when the answer comes.
    """

    body: Any
    keys: tuple[str, ...]
    marks: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """What became of alerts that were to be told; ``waiting`` is now, the others since the start."""

    sent: int = 0
    failed_requests: int = 0
    refused: int = 0
    dropped: int = 0


class Target(Protocol):
    """Somebody who is told. Each method may be called from any thread."""

    name: str
    url: str
    counts: Counts

    def prepare(self, news: News, now: float) -> list[Outgoing]:
        """What must be on disk before :meth:`take_in` gets the same news."""

    def take_in(self, news: News, now: float) -> None:
        """Have the news told."""

    def restore(self, waiting: Sequence[tuple[str, Any]]) -> None:
        """Go on with what was not told before a restart."""

    def due_in(self, now: float) -> float | None:
        """Seconds until something is to be sent; None while there is nothing."""

    def next_batch(self, now: float, most: int) -> Batch | None:
        """What to send now, or None."""

    def singly(self, batch: Batch) -> list[Batch]:
        """The same, one alert a request."""

    def succeeded(self, batch: Batch, now: float) -> list[str]:
        """A batch arrived. Return the keys that need no longer be on disk."""

    def gave_up(self, batch: Batch) -> list[str]:
        """A batch was refused for good. Return the keys that need no longer be on disk."""

    def waiting(self) -> int:
        """How much has not been told."""
