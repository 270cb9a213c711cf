"""Ranks that stopped to report while others of their group went on: slow is not the word for them."""

from __future__ import annotations

from collections.abc import Sequence

from moescope.analysis import words
from moescope.analysis.quality import Quality, read_quality
from moescope.analysis.store import Store
from moescope.schemas.settings import Settings


def read_silent_ranks(store: Store, service: str, ep_group: str, settings: Settings) -> tuple[int, ...]:
    """EP ranks of a group that fell silent before the others.

    Raises:
        StoreError: the store cannot answer.
    """
    return list_silent_ranks(read_quality(store, service), ep_group, settings)


def list_silent_ranks(quality: Quality, ep_group: str, settings: Settings) -> tuple[int, ...]:
    """The same of what is known already."""
    group = [one for one in (*quality.reporting, *quality.silent) if one.ep_group == ep_group]
    newest = max((one.last_ms for one in group), default=0)
    late_ms = settings.silent_after_seconds * 1000
    silent = [one for one in quality.silent if one.ep_group == ep_group and newest - one.last_ms > late_ms]
    return tuple(one.ep_rank for one in silent)


def describe_silent_ranks(ranks: Sequence[int]) -> str:
    """The beginning of a sentence: ``Rank 7 is silent and may be dead``."""
    return f"{words.listed('rank', ranks)} {'is' if len(ranks) == 1 else 'are'} silent and may be dead"
