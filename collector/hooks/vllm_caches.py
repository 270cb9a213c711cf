"""What vLLM's engine core knows of its caches: KDA state and MLA KV cache, never as one number.

vLLM has one pool of blocks for all layers; a block is lent to one *cache group* at a time, and every block
costs the same bytes. Groups of Mamba-like layers keep states in them (KDA, gated delta nets, Mamba), one
block a slot; all other groups keep keys and values (MLA, full, sliding-window attention). So the two compete:
the limit of each is every block that exists but the null block, and what is free may go to either. Blocks
that no request holds any more are free, although the prefix cache may still find them there.

The reporter's thread counts blocks before it closes a window, while the engine goes on: a count may be off by
what was lent or given back in that moment.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from moescope.collector.hooks.vllm_process import MakeProcessRecorder, identity_of
from moescope.collector.hooks.vllm_state_copies import StateCopies
from moescope.collector.process_recorder import ProcessRecorder
from moescope.collector.recorder import Meter
from moescope.collector.tally import NO_ATTRIBUTES
from moescope.schemas import metrics
from moescope.schemas.attributes import POOL, REASON, Component, MemoryPool
from moescope.schemas.metrics import Metric
from moescope.schemas.records import Attributes
from moescope.schemas.settings import load_engine_settings

logger = logging.getLogger("moescope")

_MARK: Final = "_moescope_original"
_METRICS: Final = {
    MemoryPool.KDA_STATE: (metrics.KDA_STATE_SLOTS, metrics.KDA_STATE_SLOTS_LIMIT),
    MemoryPool.MLA_KV_CACHE: (metrics.MLA_KV_CACHE_BLOCKS, metrics.MLA_KV_CACHE_BLOCKS_LIMIT),
}


@dataclass(frozen=True, slots=True)
class _Pool:
    """The cache groups of one kind, and what their blocks are reported as."""

    attributes: dict[str, str]
    used: Metric
    limit: Metric
    managers: tuple[Any, ...]


class CacheWatch:
    """Follows the caches of one engine.

    Args:
        meter: where the numbers go.
        kv_cache_manager: vLLM's ``KVCacheManager``; not kept alive.
    """

    def __init__(self, meter: Meter, kv_cache_manager: Any) -> None:
        self._meter = meter
        self._manager = weakref.ref(kv_cache_manager)
        self._said: dict[tuple[str, str], tuple[Metric, Attributes]] = {}
        for manager in _managers_of(kv_cache_manager).get(MemoryPool.KDA_STATE, ()):
            if StateCopies.can_count(manager):
                StateCopies(manager)  # the manager holds it
        meter.poll(self.look)

    def look(self) -> None:
        """Say what the caches hold now; nothing of caches that are gone."""
        kv_cache_manager = self._manager()
        if kv_cache_manager is None:
            self._forget()
            return
        config, block_pool = kv_cache_manager.kv_cache_config, kv_cache_manager.block_pool
        block_bytes = bytes_of_block(config)
        limit = block_pool.num_gpu_blocks - 1  # the null block is lent to nobody
        for pool in _pools_of(kv_cache_manager):
            used = _count_blocks(pool.managers, block_pool.null_block)
            if used is None:
                continue
            self._say(pool.used, used)
            self._say(pool.limit, limit)
            self._say(metrics.MEMORY_USAGE, used * block_bytes, pool.attributes)
            self._say(metrics.MEMORY_LIMIT, limit * block_bytes, pool.attributes)
            self._count_copies(pool)

    def _say(self, metric: Metric, value: int, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self._said[metric.name, str(attributes.get(POOL))] = metric, attributes
        self._meter.set_state(metric, value, attributes)

    def _forget(self) -> None:
        for metric, attributes in self._said.values():
            self._meter.forget_state(metric, attributes)
        self._said.clear()

    def _count_copies(self, pool: _Pool) -> None:
        for manager in pool.managers:
            copies = StateCopies.of(manager)
            if copies is not None:
                for reason, count in copies.take().items():
                    self._meter.add(metrics.KDA_STATE_COPIES, count, {REASON: reason.value})


def bytes_of_block(kv_cache_config: Any) -> int:
    """Bytes of one block on each rank: the pages of all layers of the largest group.

    Groups overlay each other in one allocation, so a block costs as much when a smaller group has it.
    """
    sizes = {tensor.size for tensor in kv_cache_config.kv_cache_tensors if not tensor.host_resident}
    return int(max(sizes, default=0)) // int(kv_cache_config.num_blocks)


def _pools_of(kv_cache_manager: Any) -> list[_Pool]:
    return [
        _Pool({POOL: pool.value}, *_METRICS[pool], tuple(managers))
        for pool, managers in _managers_of(kv_cache_manager).items()
    ]


def _managers_of(kv_cache_manager: Any) -> dict[MemoryPool, list[Any]]:
    from vllm.v1 import kv_cache_interface as kv  # noqa: PLC0415 - engines are imported where they are there

    managers: dict[MemoryPool, list[Any]] = {}
    groups = kv_cache_manager.kv_cache_config.kv_cache_groups
    for group, manager in zip(groups, kv_cache_manager.coordinator.single_type_managers, strict=True):
        if group.host_resident:  # blocks of the host's memory, from a pool of its own
            continue
        layers = kv.iter_layer_specs(group.kv_cache_spec)
        is_state = all(isinstance(layer, kv.MambaSpec) for layer in layers)
        pool = MemoryPool.KDA_STATE if is_state else MemoryPool.MLA_KV_CACHE
        managers.setdefault(pool, []).append(manager)
    return managers


def _count_blocks(managers: Iterable[Any], null_block: Any) -> int | None:
    """Blocks that requests hold, each once; None if the engine changed the tables just now."""
    block_ids: set[int] = set()
    try:
        for manager in managers:
            for blocks in list(manager.req_to_blocks.values()):
                block_ids.update([block.block_id for block in blocks])
    except RuntimeError:
        return None
    block_ids.discard(null_block.block_id)
    return len(block_ids)


def install(make_process_recorder: MakeProcessRecorder) -> None:
    """Watch the caches of every scheduler that this process makes from now on. Safe to call again."""
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415 - another version may not have it

    original = Scheduler.__init__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def init_and_watch(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            _watch(self, make_process_recorder)
        except Exception:
            logger.exception("moescope: caches are not measured; serving goes on")

    setattr(init_and_watch, _MARK, original)
    Scheduler.__init__ = init_and_watch


def uninstall() -> None:
    """Take the patch back; schedulers that are watched already stay so."""
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415 - engines are imported where they are there

    Scheduler.__init__ = getattr(Scheduler.__init__, _MARK, Scheduler.__init__)


def _watch(scheduler: Any, make_process_recorder: MakeProcessRecorder) -> None:
    settings = load_engine_settings()
    config = scheduler.vllm_config
    identity = identity_of(
        config, Component.SCHEDULER, dp_rank=config.parallel_config.data_parallel_rank, settings=settings
    )
    recorder = make_process_recorder(identity, settings=settings)
    if isinstance(recorder, ProcessRecorder):
        CacheWatch(recorder, scheduler.kv_cache_manager)
        recorder.start()
        _close_when_it_ends(scheduler, recorder)


def _close_when_it_ends(scheduler: Any, recorder: ProcessRecorder) -> None:
    """Hand the last window over first of all: what an engine core may take to end is short.

    It clears the structured outputs' backend, then waits for its workers, then ends its scheduler.
    """
    from vllm import envs  # noqa: PLC0415 - engines are imported where they are there

    # Workers, who have more to say, take a half of the same time.
    seconds = envs.VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS / 4
    for target, name in ((scheduler.structured_output_manager, "clear_backend"), (scheduler, "shutdown")):
        _call_before(target, name, lambda: recorder.close(seconds))


def _call_before(target: Any, name: str, first: Callable[[], object]) -> None:
    original = getattr(target, name)

    @functools.wraps(original)
    def call_both(*args: Any, **kwargs: Any) -> Any:
        try:
            first()
        except Exception:
            logger.exception("moescope: the last window is lost with this engine core")
        return original(*args, **kwargs)

    setattr(target, name, call_both)
