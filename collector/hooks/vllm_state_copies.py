"""Copies of KDA (Mamba, gated delta net) states between slots, counted where vLLM's scheduler orders them.

With a prefix cache vLLM 0.32 keeps such states at block boundaries (``mamba_cache_mode = align``), one slot
per boundary and cache group, and the worker copies:

- a **checkpoint**: a running request leaves its state behind at a boundary, for the prefix cache, and goes
  on in a slot of its own that begins as a copy; or a state that it is about to overwrite is saved beside it.
- **on write**: a request that was found in the prefix cache goes on from a cached state, which stays.

In the mode ``none`` (no prefix cache) a state is changed where it is, and in the mode ``all`` the kernels
write each boundary's state themselves: nothing is copied and nothing counted. Nor is a state that a prefill
kernel writes into a second slot while it computes.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from typing import Any, Final

from moescope.schemas.attributes import CopyReason

logger = logging.getLogger("moescope")

_NEEDED: Final = ("_allocated_block_reqs", "_partial_hit_reqs", "_checkpoints", "req_to_blocks")
_LOST: Final = "moescope: copies of states are not counted any more; serving goes on"


class StateCopies:
    """Counts the copies of one ``MambaManager``, a cache group: one per request and boundary.

    The manager writes down a request's last state only when it lends it another slot. That is where a copy
    is counted: nothing runs for a token that stays within its block.

    It runs inside vLLM's scheduler, where nothing may raise: what fails is logged, and the manager is vLLM's
    own again.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._counts: Counter[CopyReason] = Counter()
        self._taken: Counter[CopyReason] = Counter()
        # Requests that got a copy of a shared slot, and may have gone on into a slot of their own as well.
        self._unsure: list[tuple[str, int, CopyReason]] = []
        self._take_pending = manager.take_pending_cow_copies
        manager.last_state_block_idx = _LastStates(manager.last_state_block_idx, self)
        self._settle_after_scheduling()

    @staticmethod
    def can_count(manager: Any) -> bool:
        """Whether copies are made, and all is there that counting them touches."""
        if manager.mamba_cache_mode != "align":
            return False
        return type(manager.last_state_block_idx) is dict and all(hasattr(manager, name) for name in _NEEDED)

    @staticmethod
    def of(manager: Any) -> StateCopies | None:
        """What counts the copies of this manager, if anything does."""
        states = getattr(manager, "last_state_block_idx", None)
        return states.copies if isinstance(states, _LastStates) else None

    def take(self) -> Counter[CopyReason]:
        """Return the copies since the last call, by why they were made."""
        counts = Counter(self._counts)
        new = counts - self._taken
        self._taken = counts
        return new

    def state_leaves(self, request_id: str) -> None:
        """Count what follows when a request's state is not where it was any more. Never raises."""
        try:
            self._count(request_id)
        except Exception:
            logger.exception(_LOST)
            self._give_up()

    def _count(self, request_id: str) -> None:
        manager = self._manager
        is_running = request_id in manager._allocated_block_reqs  # noqa: SLF001 - vLLM shows it nowhere else
        reason = CopyReason.CHECKPOINT if is_running else CopyReason.COPY_ON_WRITE
        if request_id in manager._partial_hit_reqs:  # noqa: SLF001 - same
            self._counts[reason] += 1
            self._unsure.append((request_id, len(manager.req_to_blocks[request_id]), reason))
        elif request_id in manager._checkpoints:  # noqa: SLF001 - same
            self._unsure.append((request_id, len(manager.req_to_blocks[request_id]), reason))
        else:
            self._counts[reason] += 1

    def _settle_after_scheduling(self) -> None:
        original = self._take_pending

        @functools.wraps(original)
        def settle_and_take(*args: Any, **kwargs: Any) -> Any:
            if self._unsure:
                try:
                    self._settle()
                except Exception:
                    logger.exception(_LOST)
                    self._give_up()
            return original(*args, **kwargs)

        self._manager.take_pending_cow_copies = settle_and_take

    def _settle(self) -> None:
        unsure, self._unsure = self._unsure, []
        for request_id, slots_before, reason in unsure:
            if len(self._manager.req_to_blocks.get(request_id, ())) > slots_before:
                self._counts[reason] += 1

    def _give_up(self) -> None:
        self._unsure.clear()
        self._manager.take_pending_cow_copies = self._take_pending
        self._manager.last_state_block_idx = dict(self._manager.last_state_block_idx)


class _LastStates(dict[str, int]):
    """``MambaManager.last_state_block_idx``, which says that it is written to."""

    def __init__(self, before: dict[str, int], copies: StateCopies) -> None:
        super().__init__(before)
        self.copies = copies

    def __setitem__(self, request_id: str, block_idx: int) -> None:
        super().__setitem__(request_id, block_idx)
        self.copies.state_leaves(request_id)
