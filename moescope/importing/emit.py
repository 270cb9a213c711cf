"""Send a recording: the same files with the same options make the same bytes, which a store keeps once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from moescope.collector.expert_load import NumpyExpertCounter, Row
from moescope.collector.expert_load_source import ExpertLoadSource
from moescope.collector.reporter import Exporter
from moescope.importing.plan import ImportPlan, LoadPass
from moescope.schemas.errors import StoreUnavailableError
from moescope.schemas.identity import EngineIdentity
from moescope.schemas.records import Window
from moescope.schemas.topology import RankGrid

_NS: Final = 1_000_000_000
_PAUSE_SECONDS: Final = 0.5
_NEVER_AGAIN: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where in time the passes go: ``interval_ns`` each from ``start_ns`` on, or all in one window of it."""

    start_ns: int
    interval_ns: int
    has_window_per_pass: bool

    def windows(self, passes: int) -> int:
        """How many there are."""
        return passes if self.has_window_per_pass else 1

    def end_ns(self, passes: int) -> int:
        """End of the last one."""
        return self.start_ns + self.interval_ns * self.windows(passes)


def emit(
    plan: ImportPlan,
    layout: Layout,
    *,
    ep_group: str,
    make_exporter: Callable[[EngineIdentity], Exporter],
    timeout_seconds: float,
    progress: Callable[[str, int, int | None], None],
) -> bool:
    """Send everything; False where the store rejected some of it.

    The first rank carries the counts, which are added up over the ranks; each rank carries its placement.

    Raises:
        StoreUnavailableError: a window was not acknowledged in time.
    """
    is_whole = True
    groups = [[one] for one in plan.passes] if layout.has_window_per_pass else [list(plan.passes)]
    for rank in range(plan.ep_size):
        identity = _identity(plan, rank, ep_group)
        exporter = make_exporter(identity)
        try:
            for number, window in enumerate(
                _windows(plan, layout, identity, groups if not rank else [[]]), 1
            ):
                is_whole &= _send(exporter, window, timeout_seconds)
                if not rank:
                    progress("sending windows", number, len(groups))
        finally:
            exporter.close()
    return is_whole


def _identity(plan: ImportPlan, rank: int, ep_group: str) -> EngineIdentity:
    return EngineIdentity(
        plan.shape.name,
        plan.shape,
        RankGrid(ep_group, rank, plan.ep_size),
        engine="sglang",
        instance=f"import:{plan.digest}:{rank}",
        host="import",
    )


def _windows(
    plan: ImportPlan, layout: Layout, identity: EngineIdentity, groups: list[list[LoadPass]]
) -> Iterator[Window]:
    shape = plan.shape
    counter = NumpyExpertCounter(shape.num_moe_layers, shape.num_experts)
    source = ExpertLoadSource(identity, counter, plan.placement, snapshot_every_windows=_NEVER_AGAIN)
    start_ns = layout.start_ns
    for number, group in enumerate(groups):
        for one in group:
            source.add_counts(one.phase, one.tokens, plan.counts(one))
        if number == 0 and group and plan.warmup_tokens:
            source.begin_step((Row.WARMUP, plan.warmup_tokens))
        end_ns = start_ns + layout.interval_ns
        yield Window(start_ns, end_ns, source.close_window(snapshot=number == 0))
        start_ns = end_ns


def _send(exporter: Exporter, window: Window, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    attempt = exporter.export(window, timeout_seconds)
    while not attempt.delivered:
        if time.monotonic() >= deadline:
            raise StoreUnavailableError(
                f"the endpoint does not take the windows ({attempt.reason}). Check --endpoint, or start one "
                "with: moescope serve. Then import again: what is stored is not stored twice"
            )
        time.sleep(min(_PAUSE_SECONDS, attempt.retry_after_seconds or _PAUSE_SECONDS))
        attempt = exporter.retry(max(deadline - time.monotonic(), 0.1))
    return not attempt.reason
