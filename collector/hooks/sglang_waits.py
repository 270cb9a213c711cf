"""How long a rank waits for each peer in DeepEP's low-latency all-to-alls.

DeepEP adds up what its kernels wait in a tensor that the caller may hand in; SGLang hands in none. The unit
is the GPU's clock cycle, summed over the warps that wait side by side: use ratios between peers, never the
sums as time. Cycles become nanoseconds by the highest SM clock where torch tells it, and one each otherwise:
that makes ranks of unlike clocks comparable, and no time of a sum over warps. The view ``dispatch_wait`` and
the Prometheus page say so where they show it.

Written by DeepEP's signatures (``deep_ep.Buffer`` of sgl-deep-ep 0.1.2) and tested against a stand-in for
them: there is no DeepEP without several GPUs. Its newer elastic buffer measures no waits.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import torch

from moescope.collector.device_copy import DeviceCopy
from moescope.collector.recorder import Meter
from moescope.schemas import metrics
from moescope.schemas.attributes import STAGE, DispatchStage
from moescope.schemas.records import IntArray

logger = logging.getLogger("moescope")

_SEAMS: Final = {
    DispatchStage.DISPATCH: ("low_latency_dispatch", "dispatch_wait_recv_cost_stats"),
    DispatchStage.COMBINE: ("low_latency_combine", "combine_wait_recv_cost_stats"),
}
_MARK: Final = "_moescope_original"


class WaitCounter:
    """The cycles that one stage waited for each peer, on the device.

    Args:
        stage: dispatch or combine.
        num_ranks: ranks of the group.
        device: where DeepEP's kernels run.
    """

    def __init__(self, stage: DispatchStage, num_ranks: int, device: Any) -> None:
        self.stage = stage
        self.num_ranks = num_ranks
        with torch.inference_mode(mode=False):
            self.cycles = torch.zeros(num_ranks, dtype=torch.int64, device=device)
        self._copy = DeviceCopy(self.cycles)
        self._kilohertz = _clock_of(device)
        self._read_ns = np.zeros(num_ranks, dtype=np.int64)

    def take_ns(self) -> IntArray:
        """Nanoseconds by peer rank since the last call: int64 ``[num_ranks]``."""
        # Whole cycles to whole nanoseconds of the total, so that no rounding adds up.
        now = (self._copy.fetch().astype(object) * 1_000_000 // self._kilohertz).astype(np.int64)
        since, self._read_ns = now - self._read_ns, now
        return since

    def reads_paused(self) -> AbstractContextManager[None]:
        """Keep other threads from calling the device, while this one captures a CUDA graph."""
        return self._copy.paused()


class WaitWatch:
    """Both stages' waits of one rank."""

    def __init__(self, counters: list[WaitCounter]) -> None:
        self._counters = counters

    def report(self, meter: Meter) -> None:
        """Say what was waited since the last window."""
        for counter in self._counters:
            ns_per_rank = counter.take_ns()
            if ns_per_rank.any():
                meter.add_indexed(metrics.DISPATCH_WAIT, ns_per_rank, {STAGE: counter.stage.value})

    @contextmanager
    def reads_paused(self) -> Iterator[None]:
        """See :meth:`WaitCounter.reads_paused`."""
        with ExitStack() as paused:
            for counter in self._counters:
                paused.enter_context(counter.reads_paused())
            yield


def watch_low_latency_waits(num_ranks: int, device: Any) -> WaitWatch | None:
    """Have DeepEP's buffers measure their waits from now on; None where DeepEP is not loaded.

    Not while a CUDA graph is captured: graphs keep the address of the tensors.
    """
    buffer = getattr(sys.modules.get("deep_ep"), "Buffer", None)
    if buffer is None:
        return None
    counters = [
        counter
        for stage, (method, parameter) in _SEAMS.items()
        if (counter := _watch(buffer, method, parameter, WaitCounter(stage, num_ranks, device)))
    ]
    return WaitWatch(counters) if counters else None


def _watch(buffer: Any, method: str, parameter: str, counter: WaitCounter) -> WaitCounter | None:
    original = getattr(buffer, method, None)
    if original is None or hasattr(original, _MARK):
        return None
    names = list(inspect.signature(original).parameters)
    if parameter not in names:
        logger.info("moescope: this DeepEP's %s measures no waits; moe.dispatch.wait stays empty", method)
        return None
    setattr(buffer, method, _handing_in(original, parameter, names.index(parameter), counter))
    return counter


def _handing_in(
    original: Callable[..., Any], parameter: str, position: int, counter: WaitCounter
) -> Callable[..., Any]:
    @functools.wraps(original)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_there = len(args) >= position or kwargs.get(parameter) is not None
        if not is_there and getattr(self, "group_size", None) == counter.num_ranks:
            kwargs[parameter] = counter.cycles
        return original(self, *args, **kwargs)

    setattr(measured, _MARK, original)
    return measured


def _clock_of(device: Any) -> int:
    """Kilohertz of the SM clock; a million, which takes a cycle for a nanosecond, where it is not known."""
    if torch.device(device).type != "cuda":
        return 1_000_000
    clock = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)
    if not clock:
        logger.info("moescope: the SM clock is not known; moe.dispatch.wait counts cycles, not nanoseconds")
    return int(clock) or 1_000_000
