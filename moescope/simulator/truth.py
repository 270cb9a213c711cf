"""Exactly what was emitted, for reconciliation: every number is noted on its way to the recorder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from moescope.collector.recorder import Meter
from moescope.collector.tally import NO_ATTRIBUTES
from moescope.schemas.attributes import EXCLUDED, PHASE, Component, Excluded, Phase
from moescope.schemas.metrics import TOKENS, Metric
from moescope.schemas.records import Attributes, AttributeValue, FloatArray, IntArray
from moescope.schemas.topology import ModelShape

AttributeKey: TypeAlias = tuple[tuple[str, AttributeValue], ...]
Key: TypeAlias = tuple[str, AttributeKey]


class Ledger:
    """What one simulated process, through all its restarts, handed to its recorder.

    Attributes:
        counters: sums by metric and attributes.
        states: the last value, and ``state_sums`` the sum over the windows it was said in.
        distributions: observations and their sum.
        indexed: int64 ``[rows, indices]``, summed.
    """

    def __init__(self) -> None:
        self.counters: dict[Key, int | float] = defaultdict(int)
        self.states: dict[Key, int | float] = {}
        self.state_sums: dict[Key, int | float] = defaultdict(int)
        self.distributions: dict[Key, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self.indexed: dict[Key, IntArray] = {}
        self.layers: dict[Key, IntArray] = {}


def key_of(metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> Key:
    """How a ledger finds a number."""
    return metric.name, tuple(sorted(attributes.items()))


class Witness:
    """A :class:`~moescope.collector.recorder.Meter` that notes what it passes on.

    Args:
        meter: the recorder.
        ledger: where to note.
    """

    def __init__(self, meter: Meter, ledger: Ledger) -> None:
        self._meter = meter
        self.ledger = ledger

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.recorder.Meter.add`."""
        self._meter.add(metric, value, attributes)
        self.ledger.counters[key_of(metric, attributes)] += value

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.recorder.Meter.set_state`; once a window."""
        self._meter.set_state(metric, value, attributes)
        self.ledger.states[key_of(metric, attributes)] = value
        self.ledger.state_sums[key_of(metric, attributes)] += value

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See :meth:`moescope.collector.recorder.Meter.forget_state`."""
        self._meter.forget_state(metric, attributes)
        self.ledger.states.pop(key_of(metric, attributes), None)

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """See :meth:`moescope.collector.recorder.Meter.observe`."""
        self._meter.observe(metric, value, attributes, times=times)
        count, total = self.ledger.distributions[key_of(metric, attributes)]
        self.ledger.distributions[key_of(metric, attributes)] = count + times, total + value * times

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """See :meth:`moescope.collector.recorder.Meter.observe_many`."""
        for value in values:
            self.observe(metric, value, attributes)

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """See :meth:`moescope.collector.recorder.Meter.add_distribution`."""
        self._meter.add_distribution(metric, bucket_counts, total, attributes)
        count, before = self.ledger.distributions[key_of(metric, attributes)]
        self.ledger.distributions[key_of(metric, attributes)] = (
            count + int(bucket_counts.sum()),
            before + total,
        )

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """See :meth:`moescope.collector.recorder.Meter.add_indexed`; a key keeps its layers for good."""
        self._meter.add_indexed(metric, counts_per_row_index, attributes, layers)
        key = key_of(metric, attributes)
        counts = np.atleast_2d(np.array(counts_per_row_index, dtype=np.int64))
        self.ledger.indexed[key] = self.ledger.indexed[key] + counts if key in self.ledger.indexed else counts

    def note_tokens(self, phase: Phase, tokens: int) -> None:
        """Note the rows that an expert count handed over elsewhere stands for."""
        self.ledger.counters[key_of(TOKENS, {PHASE: phase.value, EXCLUDED: Excluded.NONE.value})] += tokens

    def poll(self, look: Callable[[], None]) -> None:
        """See :meth:`moescope.collector.recorder.Meter.poll`."""
        self._meter.poll(look)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Meter.flush`."""
        return self._meter.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """See :meth:`moescope.collector.recorder.Meter.close`."""
        return self._meter.close(timeout_seconds)


class RequestTruth:
    """What became of a group's requests, from the simulated requests themselves and not from their metrics.

    Attributes:
        goodput: requests and output tokens, all and those that kept the contract.
        latency: observations and their sum in seconds, by the view's word for the metric.
    """

    def __init__(self) -> None:
        self.goodput = dict.fromkeys(("requests", "good_requests", "output_tokens", "good_tokens"), 0)
        self.latency: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))

    def add_latencies(self, name: str, seconds: FloatArray) -> None:
        """Add what some requests waited: float64 ``[requests]``."""
        count, total = self.latency[name]
        self.latency[name] = count + len(seconds), total + float(seconds.sum())


class Truth:
    """What a fleet emitted.

    Attributes:
        requests: what became of them, by EP group.
        experts: assignments by EP group and phase, int64 ``[num_moe_layers, num_experts]``.
        lost: requests that a dead rank took with it, by EP group.
        turned_away: requests that nobody served, by EP group.
        active_windows: windows in which each scenario was on.
    """

    def __init__(self, shape: ModelShape) -> None:
        self.shape = shape
        self.lost: dict[str, int] = defaultdict(int)
        self.turned_away: dict[str, int] = defaultdict(int)
        self.active_windows: dict[str, int] = defaultdict(int)
        self.windows = 0
        size = (shape.num_moe_layers, shape.num_experts)
        self.requests: dict[str, RequestTruth] = defaultdict(RequestTruth)
        self.experts: dict[tuple[str, Phase], IntArray] = defaultdict(lambda: np.zeros(size, dtype=np.int64))
        self._ledgers: dict[tuple[str, Component, int], Ledger] = defaultdict(Ledger)

    def ledger(self, ep_group: str, component: Component, ep_rank: int) -> Ledger:
        """The ledger of one place in the fleet; processes that follow each other there share it."""
        return self._ledgers[ep_group, component, ep_rank]

    def add_experts(self, ep_group: str, phase: Phase, tokens_per_layer_expert: IntArray) -> None:
        """Add what one rank recorded."""
        self.experts[ep_group, phase] += tokens_per_layer_expert

    def counts(self, phase: Phase) -> IntArray:
        """Assignments of all groups so far: int64 ``[num_moe_layers, num_experts]``, caller-owned."""
        counts = np.zeros((self.shape.num_moe_layers, self.shape.num_experts), dtype=np.int64)
        for (_, of), of_group in self.experts.items():
            counts += of_group if of is phase else 0
        return counts

    def total(self) -> int:
        """Assignments of all layers and phases."""
        return sum(int(counts.sum()) for counts in self.experts.values())
