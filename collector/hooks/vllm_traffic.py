"""Bytes that vLLM's all-gather / reduce-scatter exchange moves between the ranks of an EP group.

Its dispatch gathers every rank's rows on every rank, wanted there or not; its combine sends each rank the
part that belongs to its rows. Both are told in bytes of tensors handed over: exact, whatever the transport
makes of them. Rows that pad a batch or keep an idle rank in step are sent, so they are in.

Whose phase the bytes are: those of this rank's own rows are divided by its rows; those of its peers' rows,
whose phases it does not know, go with its own pass. Prefill and decode together are exact.

Other all-to-all kernels pack what they send on the device: their bytes are not reported, nor those of passes
that are replayed from a CUDA graph, where no Python runs.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from moescope.collector.forward_pass import NO_LOAD, ForwardPass
from moescope.collector.hooks.vllm_timing import is_traced
from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import DIRECTION, PHASE, Direction, DispatchStage, Phase
from moescope.schemas.records import IntArray
from moescope.schemas.topology import ModelShape

logger = logging.getLogger("moescope")

# More exchanges than a window has, as a rule; kept while no window is closed.
_EXCHANGES_TO_KEEP: Final = 4096

_Sums: TypeAlias = dict[tuple[Direction, Phase], IntArray]
"""Bytes ``[layers, peer EP ranks]``, one row where layers are not told apart."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One dispatch or combine; the layers of a pass have the same, so they are counted and not kept.

    Two passes seldom have: what is kept of them is bounded by :data:`_EXCHANGES_TO_KEEP`.
    """

    stage: DispatchStage
    ordinal: int
    row_bytes: int
    rows_per_rank: tuple[int, ...]
    ep_ranks: tuple[int, ...]
    own: int
    during: ForwardPass


class Traffic:
    """Counts the exchanges of one worker.

    Args:
        meter: where the bytes go.
        shape: the model's.
        ep_size: ranks of the group.
        by_layer: whether the bytes name their layer.
    """

    def __init__(self, meter: Meter, shape: ModelShape, ep_size: int, *, by_layer: bool) -> None:
        self._meter = meter
        self._layers = shape.layer_index
        self._ep_size = ep_size
        self._by_layer = by_layer
        self._during = NO_LOAD
        self._lock = threading.Lock()
        self._exchanges: OrderedDict[_Exchange, int] = OrderedDict()
        self._sums: _Sums = {}
        self._calls = Counter[DispatchStage]()
        self._has_warned = False

    def begin(self, what: ForwardPass) -> None:
        """A pass begins."""
        if self._during.load_rows and not self._calls and not self._has_warned:
            self._has_warned = True
            logger.info(
                "moescope: a pass exchanged nothing that Python saw: it was replayed from a graph. Bytes of "
                "such passes are not reported; tokens by peer rank are"
            )
        self._during = what
        self._calls.clear()

    def count(
        self,
        stage: DispatchStage,
        row_bytes: int,
        rows_per_rank: Sequence[int],
        ep_ranks: tuple[int, ...],
        own: int,
    ) -> None:
        """Count one exchange.

        Args:
            stage: dispatch or combine.
            row_bytes: bytes of one row in it.
            rows_per_rank: rows of each rank of the exchange.
            ep_ranks: the EP rank of each.
            own: this rank's place among them.
        """
        ordinal = self._calls[stage] % len(self._layers) if self._by_layer else 0
        self._calls[stage] += 1
        exchange = _Exchange(stage, ordinal, row_bytes, tuple(rows_per_rank), ep_ranks, own, self._during)
        with self._lock:
            self._exchanges[exchange] = self._exchanges.get(exchange, 0) + 1
            if len(self._exchanges) > _EXCHANGES_TO_KEEP:  # one for one: no pass waits for all of them
                self._add_to(self._sums, *self._exchanges.popitem(last=False))

    def report(self) -> None:
        """Report what was counted since the last time. From the reporter's thread."""
        with self._lock:
            exchanges, self._exchanges = self._exchanges, OrderedDict()
            sums, self._sums = self._sums, {}
        for exchange, times in exchanges.items():
            self._add_to(sums, exchange, times)
        layers = self._layers if self._by_layer else None
        for (direction, phase), by_peer in sums.items():
            if by_peer.any():
                attributes = {PHASE: phase.value, DIRECTION: direction.value}
                self._meter.add_indexed(
                    metrics.RANK_IO, by_peer if self._by_layer else by_peer[0], attributes, layers
                )

    def _add_to(self, sums: _Sums, exchange: _Exchange, times: int) -> None:
        rows = len(self._layers) if self._by_layer else 1
        for direction, phase, bytes_per_peer in _bytes_of(exchange):
            by_peer = sums.setdefault((direction, phase), np.zeros((rows, self._ep_size), dtype=np.int64))
            by_peer[exchange.ordinal, list(exchange.ep_ranks)] += bytes_per_peer * times


def _bytes_of(exchange: _Exchange) -> list[tuple[Direction, Phase, IntArray]]:
    """``(direction, phase, bytes by rank of the exchange)``."""
    rows = np.array(exchange.rows_per_rank, dtype=np.int64)
    is_peer = np.arange(len(rows)) != exchange.own
    of_peers = rows * exchange.row_bytes * is_peer
    of_own = int(rows[exchange.own]) * exchange.row_bytes * is_peer.astype(np.int64)
    dispatching = exchange.stage is DispatchStage.DISPATCH
    sent_rows_are = Direction.TRANSMIT if dispatching else Direction.RECEIVE
    peer_rows_are = Direction.RECEIVE if dispatching else Direction.TRANSMIT
    return [
        *((sent_rows_are, phase, part) for phase, part in exchange.during.share(of_own).items()),
        (peer_rows_are, exchange.during.phase, of_peers),
    ]


def watch_exchange(traffic: Traffic, vllm_config: Any) -> bool:
    """Count what the EP group's all-to-all manager is handed, from now on: after the warm-up.

    Returns:
        whether its bytes are known.
    """
    from vllm.distributed import get_ep_group  # noqa: PLC0415 - engines are imported where they are there
    from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager  # noqa: PLC0415 - same

    group = get_ep_group()
    manager = getattr(group.device_communicator, "all2all_manager", None)
    if manager is None:
        logger.info("moescope: the EP ranks exchange no tokens, they add up results: no bytes by peer rank")
        return False
    if not isinstance(manager, AgRsAll2AllManager):
        name = type(manager).__name__
        logger.info("moescope: %s packs what it sends on the device: no bytes by peer rank", name)
        return False
    if is_traced(vllm_config):
        logger.info("moescope: torch.compile traces through the exchange on the CPU: no bytes by peer rank")
        return False
    seam = _ManagerSeam(traffic, manager, group.ranks)
    for name in ("dispatch", "dispatch_router_logits"):
        seam.wrap(name, seam.on_dispatch)
    for name in ("combine", "combine_into_output"):
        seam.wrap(name, seam.on_combine)
    return True


class _ManagerSeam:
    def __init__(self, traffic: Traffic, manager: Any, ranks_of_ep: Sequence[int]) -> None:
        self._traffic = traffic
        self._manager = manager
        self._ep_rank_of = {rank: ep_rank for ep_rank, rank in enumerate(ranks_of_ep)}
        self._has_failed = False

    def wrap(self, name: str, note: Any) -> None:
        original = getattr(self._manager, name)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._has_failed:
                self._note(note, args, kwargs)
            return original(*args, **kwargs)

        setattr(self._manager, name, counted)

    def on_dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``(hidden_states, …, is_sequence_parallel, extra_tensors)``: every tensor of it is gathered."""
        values = [*args, *kwargs.values()]
        lists = [tensor for value in values if isinstance(value, list) for tensor in value]
        tensors = [value for value in (*values, *lists) if hasattr(value, "element_size")]
        sequence_parallel = any(value is True for value in values)
        self._count(DispatchStage.DISPATCH, tensors, len(tensors[0]), sequence_parallel)

    def on_combine(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """``(hidden_states, …)``: the rows of all ranks, in their order."""
        values = [*args, *kwargs.values()]
        hidden = args[0] if args else kwargs["hidden_states"]
        sequence_parallel = any(value is True for value in values)
        self._count(DispatchStage.COMBINE, [hidden], None, sequence_parallel)

    def _count(
        self, stage: DispatchStage, tensors: list[Any], own_rows: int | None, sequence_parallel: bool
    ) -> None:
        group = self._manager._get_comm_group(sequence_parallel)  # noqa: SLF001 - the manager's own rule
        if own_rows is None:
            own_rows = len(tensors[0]) // group.world_size
        sizes = self._manager._get_sizes(own_rows, group)  # noqa: SLF001 - same
        row_bytes = sum(math.prod(tensor.shape[1:]) * tensor.element_size() for tensor in tensors)
        ep_ranks = tuple(self._ep_rank_of[rank] for rank in group.ranks)
        self._traffic.count(stage, row_bytes, sizes, ep_ranks, group.rank_in_group)

    def _note(self, note: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            note(args, kwargs)
        except Exception:
            self._has_failed = True
            logger.exception("moescope: bytes by peer rank are not counted any more; serving goes on")
