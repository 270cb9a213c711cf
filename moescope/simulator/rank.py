"""What one simulated rank reports of a window: the metrics of an engine's worker, by the registry's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moescope.collector.recorder import Meter
from moescope.schemas import attributes as a
from moescope.schemas import metrics
from moescope.schemas.attributes import Direction, Excluded, Phase
from moescope.schemas.metrics import Metric
from moescope.schemas.records import IntArray
from moescope.simulator.group import SimulatedGroup
from moescope.simulator.group_window import GroupWindow
from moescope.simulator.phase_window import PhaseWindow

WARM_UP_TOKENS: Final = 8192
"""Rows that an engine computes before it serves."""
_BATCH_MULTIPLE: Final = 8
"""Captured graphs exist for such batch sizes; the rows between are padding."""
GPUS_PER_NODE: Final = 8


def record_rank(
    meter: Meter, group: SimulatedGroup, window: GroupWindow, rank: int, *, is_fresh: bool
) -> None:
    """Report all but the expert load of one rank.

    Args:
        meter: its recorder.
        group: its EP group.
        window: what the group did.
        rank: which rank.
        is_fresh: whether its process has just started.
    """
    counts_tokens = rank % group.plan.tensor_parallel == 0
    engine = rank // group.plan.tensor_parallel
    excluded = dict.fromkeys((Excluded.PADDING, Excluded.DUMMY), 0)
    for phase in window.phases:
        _steps(meter, phase, engine, int(phase.steps[rank]), excluded)
        _dispatch(meter, phase, rank)
        _traffic(meter, phase, rank)
        _experts(meter, group, phase, rank)
    if counts_tokens:
        for reason, rows in {**excluded, Excluded.WARMUP: WARM_UP_TOKENS if is_fresh else 0}.items():
            if rows:
                meter.add(metrics.TOKENS, rows, {a.EXCLUDED: reason.value})
    for stage, wait in window.wait.items():
        meter.add_indexed(metrics.DISPATCH_WAIT, wait[rank], {a.STAGE: stage.value})
    meter.set_state(metrics.EXPERT_WEIGHT_SIZE, group.facts.expert_bytes)
    _memory(meter, group, window, rank, engine)


def _steps(meter: Meter, phase: PhaseWindow, engine: int, steps: int, excluded: dict[Excluded, int]) -> None:
    at = {a.PHASE: phase.phase.value}
    for seconds, times in phase.step_seconds[engine]:
        meter.observe(metrics.STEP_DURATION, seconds, at, times=times)
    if not steps:
        return
    fewer, more = divmod(int(phase.tokens[engine]), steps)
    for rows, times in ((fewer, steps - more), (fewer + 1, more)):
        if times:
            meter.observe(metrics.STEP_TOKENS, rows, at, times=times)
            if phase.phase is Phase.DECODE:
                excluded[Excluded.PADDING] += times * (-rows % _BATCH_MULTIPLE)
            elif not rows:  # the others prefill: this rank takes part with one row
                excluded[Excluded.DUMMY] += times


def _dispatch(meter: Meter, phase: PhaseWindow, rank: int) -> None:
    if phase.steps[rank]:
        for stage, (buckets, seconds) in phase.calls.items():
            at = {a.STAGE: stage.value, a.PHASE: phase.phase.value}
            meter.add_distribution(metrics.DISPATCH_DURATION, buckets[rank], float(seconds[rank]), at)


def _traffic(meter: Meter, phase: PhaseWindow, rank: int) -> None:
    traffic = phase.traffic
    if traffic is None:
        return
    at = {a.PHASE: phase.phase.value}
    rows: tuple[tuple[Metric, IntArray, Mapping[str, str]], ...] = (
        (metrics.RANK_TOKENS, traffic.tokens[rank], at),
        (metrics.RANK_ASSIGNMENTS, traffic.assignments[rank], at),
        (metrics.RANK_IO, traffic.sent[rank], {**at, a.DIRECTION: Direction.TRANSMIT.value}),
        (metrics.RANK_IO, traffic.received[rank], {**at, a.DIRECTION: Direction.RECEIVE.value}),
    )
    for metric, row, attributes in rows:
        if row.any():
            meter.add_indexed(metric, row, attributes)


def _experts(meter: Meter, group: SimulatedGroup, phase: PhaseWindow, rank: int) -> None:
    if phase.steps[rank]:
        nanoseconds = phase.group_ns(group.shape.moe_layers, group.shape.num_layers)[rank]
        meter.add_indexed(metrics.EXPERT_GROUP_DURATION, nanoseconds, {a.PHASE: phase.phase.value})
    if rank in phase.failovers:
        meter.add_indexed(
            metrics.EXPERT_FAILOVERS,
            phase.failovers[rank],
            {a.REASON: a.FailoverReason.RANK_DOWN.value},
            group.shape.layer_index,
        )


def _memory(meter: Meter, group: SimulatedGroup, window: GroupWindow, rank: int, engine: int) -> None:
    plan = group.memory
    cache = window.cache
    slots, blocks = int(cache.slots[engine]), int(cache.blocks[engine])
    sent, received = _bytes_moved(window, rank)
    traffic = (sent + received) / window.seconds / group.device.link_bytes_per_second
    used = plan.used(slots, blocks, busy=float(window.busy[rank]), traffic=traffic)
    for pool, limit in plan.limits.items():
        meter.set_state(metrics.MEMORY_USAGE, used[pool], {a.POOL: pool.value})
        meter.set_state(metrics.MEMORY_LIMIT, limit, {a.POOL: pool.value})
    meter.set_state(metrics.MLA_KV_CACHE_BLOCKS, blocks)
    meter.set_state(metrics.MLA_KV_CACHE_BLOCKS_LIMIT, plan.mla_blocks)
    if plan.kda_slots:
        meter.set_state(metrics.KDA_STATE_SLOTS, slots)
        meter.set_state(metrics.KDA_STATE_SLOTS_LIMIT, plan.kda_slots)
        for reason, copies in (
            (a.CopyReason.COPY_ON_WRITE, cache.copies),
            (a.CopyReason.CHECKPOINT, cache.checkpoints),
        ):
            meter.add(metrics.KDA_STATE_COPIES, int(copies[engine]), {a.REASON: reason.value})
    at = {a.HW_ID: gpu_of(rank)}
    meter.set_state(metrics.GPU_UTILIZATION, round(float(window.busy[rank]), 4), at)
    meter.set_state(metrics.GPU_MEMORY_USAGE, sum(used.values()), at)
    meter.set_state(metrics.GPU_MEMORY_LIMIT, group.device.memory_bytes, at)
    meter.add(metrics.GPU_IO, sent, {**at, a.DIRECTION: Direction.TRANSMIT.value})
    meter.add(metrics.GPU_IO, received, {**at, a.DIRECTION: Direction.RECEIVE.value})


def _bytes_moved(window: GroupWindow, rank: int) -> tuple[int, int]:
    moved = [phase.traffic for phase in window.phases if phase.traffic is not None]
    sent = sum(int(traffic.sent[rank].sum()) for traffic in moved)
    return sent, sum(int(traffic.received[rank].sum()) for traffic in moved)


def gpu_of(rank: int) -> str:
    """The ``hw.id`` of a rank's GPU: eight to a node."""
    return str(rank % GPUS_PER_NODE)
