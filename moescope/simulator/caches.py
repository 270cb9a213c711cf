"""The caches of one EP group's engines: KDA state slots and KV cache blocks, and what is copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from moescope.schemas.records import FloatArray, IntArray
from moescope.simulator.memory import MemoryPlan
from moescope.simulator.requests import RequestFlow, Requests
from moescope.simulator.serving import MLA_BLOCK_TOKENS

_CHECKPOINT_TOKENS: Final = 8192
"""A prompt leaves a KDA state to be found again after so many tokens, and one at its end."""
_KEPT_SHARE: Final = 0.25
"""Share of the slots that ordinary checkpoints fill at most; they yield to running requests."""


@dataclass(frozen=True, slots=True)
class CacheWindow:
    """Caches at the end of a window, int64 ``[engines]``.

    Attributes:
        slots: KDA state slots in use.
        blocks: KV cache blocks in use.
        copies: KDA states copied because a shared prefix was written on.
        checkpoints: KDA states copied to be found again.
    """

    slots: IntArray
    blocks: IntArray
    copies: IntArray
    checkpoints: IntArray


class GroupCaches:
    """Follows the caches of a group.

    Args:
        plan: the memory of each rank.
        engines: data-parallel engines.
    """

    def __init__(self, plan: MemoryPlan, engines: int) -> None:
        self._plan = plan
        self._engines = engines
        self._checkpoints: IntArray = np.zeros(engines, dtype=np.int64)
        self._kept: FloatArray = np.zeros(engines)

    def keep(self, engine: int, slots: float) -> None:
        """Sessions of one engine keep so many more slots, for good."""
        self._kept[engine] = min(self._kept[engine] + slots, self._plan.kda_slots)

    def release(self) -> None:
        """The sessions that kept slots are over."""
        self._kept[:] = 0

    def room(self, context: float) -> FloatArray:
        """Requests of so many tokens that may run at once: float64 ``[engines]``, one at least."""
        by_blocks = self._plan.mla_blocks * MLA_BLOCK_TOKENS / max(context, 1.0)
        room: FloatArray = np.full(self._engines, by_blocks)
        if self._plan.kda_slots:
            room = np.minimum(room, self._plan.kda_slots - self._kept)
        return np.maximum(room, 1.0)

    def close_window(self, flow: RequestFlow, started: Requests) -> CacheWindow:
        """What is in use now that ``started`` looked their prefixes up."""
        blocks = np.minimum(flow.blocks_per_engine(MLA_BLOCK_TOKENS), self._plan.mla_blocks)
        none = np.zeros(self._engines, dtype=np.int64)
        if not self._plan.kda_slots:
            return CacheWindow(none, blocks, none, none)
        copies = np.bincount(started.engine[started.cached > 0], minlength=self._engines)
        left = 1 + (started.prompt - started.cached) // _CHECKPOINT_TOKENS
        checkpoints = np.bincount(started.engine, left, minlength=self._engines).astype(np.int64)
        most = int(_KEPT_SHARE * self._plan.kda_slots)
        self._checkpoints = np.minimum(self._checkpoints + checkpoints, most)
        wanted = flow.running_per_engine() + self._checkpoints + self._kept.astype(np.int64)
        slots = np.minimum(wanted, self._plan.kda_slots)
        return CacheWindow(slots, blocks, copies.astype(np.int64), checkpoints)
