"""What one running request holds of the caches, as far as stored numbers tell, and whose caches they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray

_MIN_CHANGES: Final = 8
_CLEAR: Final = 0.7
"""Correlation from which the changes of slots and of running requests belong together."""


class Basis(StrEnum):
    """Where a number of the request model comes from."""

    MEASURED = "measured"
    SETTING = "setting"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RequestModel:
    """What one running request holds.

    Attributes:
        slots_per_request: KDA state slots, whatever its length.
        slots_basis: measured as the slots that come and go with a running request; otherwise one is assumed.
        tokens_per_block: of the MLA KV cache; None where nothing tells.
        block_basis: a setting, or measured: tokens that running requests hold over the blocks in use, which
            is right to about a third.
    """

    slots_per_request: float
    slots_basis: Basis
    tokens_per_block: float | None
    block_basis: Basis

    def blocks_of(self, context_tokens: int) -> int | None:
        """Blocks of a request of that context, whole ones; None where the block size is not known."""
        return None if self.tokens_per_block is None else math.ceil(context_tokens / self.tokens_per_block)


def slots_of_a_request(slots: FloatArray, running: FloatArray) -> float | None:
    """Measure the slots that come and go with a running request.

    From one window to the next, slots change by those of requests that began less those that ended, and by
    checkpoints, which have no part in it: the slope of changes in slots over changes in running requests.

    Args:
        slots: float64 ``[windows]``, KDA state slots of all engines that ``running`` is of.
        running: float64 ``[windows]``, running requests.

    Returns:
        to the next whole number, at least 1; None where the changes do not tell.
    """
    known = np.isfinite(slots) & np.isfinite(running)
    more_slots, more_running = np.diff(slots[known]), np.diff(running[known])
    if len(more_slots) < _MIN_CHANGES or not more_running.any():
        return None
    x, y = more_running - more_running.mean(), more_slots - more_slots.mean()
    if not (x.any() and y.any()):
        return None
    likeness = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return max(float(round(float(x @ y) / float(x @ x))), 1.0) if likeness > _CLEAR else None


def tokens_of_a_block(
    blocks: float, running: float, *, prompt_tokens: float, output_tokens: float
) -> float | None:
    """Measure, roughly, the tokens of a block: tokens that running requests hold / blocks in use.

    A running request holds its prompt and, over its life, half of its output on average (Little's law, with
    lifetimes that do not depend on lengths): right to about a third.

    Args:
        blocks: in use, mean over time, of all engines.
        running: requests, mean over time.
        prompt_tokens: of the mean request.
        output_tokens: of the mean request.
    """
    tokens = running * (prompt_tokens + output_tokens / 2)
    return tokens / blocks if blocks > 0 and tokens > 0 else None


def share_engines(ranks: Sequence[int], states: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Put neighbouring ranks together that always say the same: they are one engine's.

    Args:
        ranks: ``[ranks]``, increasing.
        states: float64 ``[ranks, numbers]``, what each says of its caches over time; NaN where nothing.
    """
    engines: list[list[int]] = []
    for row, rank in enumerate(ranks):
        is_same = row > 0 and rank == ranks[row - 1] + 1 and _says_the_same(states[row - 1], states[row])
        if is_same:
            engines[-1].append(int(rank))
        else:
            engines.append([int(rank)])
    return tuple(map(tuple, engines))


def _says_the_same(one: FloatArray, other: FloatArray) -> bool:
    """Equal in all numbers, of which enough differ: two caches that never change prove nothing."""
    return bool(np.array_equal(one, other, equal_nan=True) and len(np.unique(one[np.isfinite(one)])) > 4)
