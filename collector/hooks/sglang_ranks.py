"""Which rank of an SGLang deployment this process is, and which token rows its routers see.

With an all-to-all between the ranks (DeepEP and its kind), each rank routes rows of its own: those of its
attention-DP rank, or with attention TP a slice of them. Without one, all ranks route the same rows: those of
the whole batch, or, with attention DP, those gathered from every attention-DP rank.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moescope.schemas.attributes import Role
from moescope.schemas.errors import EngineNotSupportedError
from moescope.schemas.topology import RankGrid

logger = logging.getLogger("moescope")

_ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE}


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place. ``routes_own_rows``: whether its routers see rows that no other rank's see."""

    tp_rank: int
    pp_rank: int
    pp_size: int
    attn_tp_rank: int
    attn_tp_size: int
    attn_dp_rank: int
    attn_dp_size: int
    ep_rank: int
    ep_size: int
    moe_tp_rank: int
    moe_tp_size: int
    moe_dp_rank: int
    moe_dp_size: int
    replica: int = 0
    replicas: int = 1
    routes_own_rows: bool = False

    @property
    def counts(self) -> bool:
        """Whether this rank counts: of those that route the same rows, the first does."""
        return self.routes_own_rows or self.attn_tp_rank == 0

    @property
    def reports(self) -> bool:
        """Whether it reports at all: a rank that counts nothing may still hold experts."""
        return self.counts or (self.ep_size > 1 and self.moe_tp_rank == 0)

    @property
    def shard(self) -> int | None:
        """Which slice of its attention-DP rank's rows it routes; None for all of them."""
        return self.attn_tp_rank if self.routes_own_rows and self.attn_tp_size > 1 else None

    @property
    def is_gathered(self) -> bool:
        """Whether its routers see the rows of every attention-DP rank, one after the other."""
        return not self.routes_own_rows and self.attn_dp_size > 1

    def grid(self, ep_group: str) -> RankGrid:
        """Its place in its EP group. Groups that live beside each other get names of their own."""
        parts = [
            ("dp", self.replica, self.replicas),
            ("pp", self.pp_rank, self.pp_size),
            ("moe-dp", self.moe_dp_rank, self.moe_dp_size),
        ]
        if self.ep_size > 1:
            parts.append(("moe-tp", self.moe_tp_rank, self.moe_tp_size))
        else:  # each attention-DP rank counts its own rows for experts that all of them share
            parts.append(("attn-dp", self.attn_dp_rank, self.attn_dp_size))
        name = "-".join([ep_group, *(f"{what}{rank}" for what, rank, size in parts if size > 1)])
        return RankGrid(name, self.ep_rank, self.ep_size)

    def own_rows(self, topk_ids: Any, rows_per_dp_rank: Sequence[int] | None) -> Any | None:
        """Cut this rank's rows out of the ids that a router selected; None where they fit nothing.

        Args:
            topk_ids: ids ``[rows, top_k]``.
            rows_per_dp_rank: rows of each attention-DP rank as they are gathered, padding included.
        """
        if not self.is_gathered:
            return topk_ids
        rows = len(topk_ids)
        if rows_per_dp_rank is not None and len(rows_per_dp_rank) == self.attn_dp_size:
            own = rows_per_dp_rank[self.attn_dp_rank]
            if rows == sum(rows_per_dp_rank):
                first = sum(rows_per_dp_rank[: self.attn_dp_rank])
                return topk_ids[first : first + own]
            if rows == own:
                return topk_ids
        _warn_about_rows(rows, tuple(rows_per_dp_rank or ()))
        return None


def find_ranks() -> Ranks:
    """Read the ranks from SGLang's published configuration.

    Raises:
        EngineNotSupportedError: the rows of a batch reach the router in an order that the hook cannot follow.
    """
    from sglang.srt.layers.moe.utils import is_moe_input_scattered_across_dp_ranks  # noqa: PLC0415 - lazy
    from sglang.srt.runtime_context import get_exec, get_parallel  # noqa: PLC0415 - lazy

    parallel = get_parallel()
    routes_own_rows = bool(is_moe_input_scattered_across_dp_ranks())
    if get_exec().overlap.enable_two_batch_overlap:
        raise EngineNotSupportedError(
            "two-batch overlap is on; serve without --enable-two-batch-overlap to count experts"
        )
    if parallel.attn_cp_size > 1:
        raise EngineNotSupportedError(
            "attention context parallelism is on; serve with --attn-cp-size 1 to count experts"
        )
    if routes_own_rows and parallel.attn_tp_size > 1 and parallel.disable_attn_tp_gather:
        raise EngineNotSupportedError(
            "with --disable-attn-tp-gather some batches are split over attention TP and some are not; "
            "serve without it to count experts"
        )
    return dataclasses.replace(
        find_first_rank(),
        tp_rank=parallel.tp_rank,
        pp_rank=parallel.pp_rank,
        attn_tp_rank=parallel.attn_tp_rank,
        attn_dp_rank=parallel.attn_dp_rank,
        ep_rank=parallel.moe_ep_rank,
        moe_tp_rank=parallel.moe_tp_rank,
        moe_dp_rank=parallel.moe_dp_rank,
        replica=(parallel.dp_rank or 0) if _replicas(parallel) > 1 else 0,
        routes_own_rows=routes_own_rows,
    )


def find_first_rank() -> Ranks:
    """Return the deployment's first rank, from the sizes that every process of it has published."""
    from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415 - engines are imported where they are there

    parallel = get_parallel()
    return Ranks(
        tp_rank=0,
        pp_rank=0,
        pp_size=parallel.pp_size,
        attn_tp_rank=0,
        attn_tp_size=parallel.attn_tp_size,
        attn_dp_rank=0,
        attn_dp_size=parallel.attn_dp_size,
        ep_rank=0,
        ep_size=parallel.moe_ep_size,
        moe_tp_rank=0,
        moe_tp_size=parallel.moe_tp_size,
        moe_dp_rank=0,
        moe_dp_size=parallel.moe_dp_size,
        replicas=_replicas(parallel),
    )


def _replicas(parallel: Any) -> int:
    """Data-parallel replicas are engines of their own; attention DP is one engine."""
    return 1 if parallel.attn_dp_enabled else int(parallel.dp_size)


def role_of_this_process() -> Role:
    """Which phases this engine serves now, from its disaggregation mode.

    SGLang can switch it while it serves; what a process says of itself keeps the role that it started with.
    """
    from sglang.srt.runtime_context import get_disagg  # noqa: PLC0415 - engines are imported where they are there

    return _ROLES.get(str(get_disagg().disaggregation_mode), Role.MIXED)


def most_rows_of_a_pass(context_tokens: int) -> int:
    """The most token rows that a forward pass of this deployment can have, with room to spare.

    Args:
        context_tokens: the longest prompt, which is one pass where prefills are not chunked.
    """
    from sglang.srt.runtime_context import get_schedule  # noqa: PLC0415 - engines are imported where they are

    schedule = get_schedule()
    chunk = int(schedule.chunked_prefill_size or 0)
    longest = chunk if chunk > 0 else context_tokens
    return max(longest, int(schedule.max_prefill_tokens or 0)) + _ROWS_BESIDE_A_PREFILL


# Requests that decode in a mixed batch, tokens verified at once in speculative decoding, padding.
_ROWS_BESIDE_A_PREFILL = 8192


@functools.cache
def _warn_about_rows(rows: int, rows_per_dp_rank: tuple[int, ...]) -> None:
    logger.warning(
        "moescope: %d routed rows are neither this rank's nor those of all ranks %s; they are not counted",
        rows,
        rows_per_dp_rank,
    )
