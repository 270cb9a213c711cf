"""One thing that the other ranks wait for, as it is named."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final


class StragglerKind(StrEnum):
    """What is the matter with it."""

    SLOW_RANK = "slow_rank"
    SLOW_NODE = "slow_node"
    SLOW_LINK = "slow_link"
    OVERLOADED_RANK = "overloaded_rank"


class Confidence(IntEnum):
    """How sure that is; larger is surer."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """One thing that the others wait for.

    Attributes:
        ranks: EP ranks: the late one; of a link the sender and, if it is one pair, who waits; of a node all.
        node: of a slow node: its host, or which ranks it has where hosts are not known.
        times_others: how many times as long as is usual, in what ``says`` compares.
        says: what is, in words, with that number.
        load_of_median: its assignments over the median rank's, None where unknown.
        windows: in so many of ``judged_windows``, the newest ones, it was so; ``all_windows`` were looked at,
            and in ``all_late`` of them it was so.
        window_seconds: length of a window.
        since_ms: start of the first window of them all in which it was so, Unix milliseconds.
        cost_seconds_per_minute: what all others together wait for it in each minute beyond what is usual;
            None where the engine counts no time.
        lost_share: part of its time that each of the others loses to it; None likewise.
        share_of_waiting: its part of all that is waited; None where waits are not stored.
        evidence: sentences.
        advice: what to do.
    """

    kind: StragglerKind
    ranks: tuple[int, ...]
    node: str | None = None
    times_others: float
    says: str
    load_of_median: float | None = None
    windows: int
    judged_windows: int
    all_late: int
    all_windows: int
    window_seconds: float
    since_ms: int
    cost_seconds_per_minute: float | None = None
    lost_share: float | None = None
    share_of_waiting: float | None = None
    confidence: Confidence
    evidence: tuple[str, ...]
    advice: str

    @property
    def rank(self) -> int | None:
        """The late rank, or the sender of a link; None for a node."""
        return None if self.kind is StragglerKind.SLOW_NODE else self.ranks[0]

    @property
    def pair(self) -> tuple[int, int] | None:
        """Of a link between two ranks: sender and who waits."""
        is_pair = self.kind is StragglerKind.SLOW_LINK and len(self.ranks) == 2
        return (self.ranks[0], self.ranks[1]) if is_pair else None


SLOW_KINDS: Final = frozenset({StragglerKind.SLOW_RANK, StragglerKind.SLOW_NODE, StragglerKind.SLOW_LINK})
"""Kinds that no placement cures."""
