"""Numbers added up between two windows: counters, states, distributions and arrays by index.

Hooks name a row of the registry and hand over what happened; the reporter's thread takes it all when it
closes a window. Any thread may add. What the registry does not allow fails here, at the hook, and not in a
store.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from moescope.schemas.errors import ShapeError
from moescope.schemas.metrics import Kind, Metric
from moescope.schemas.records import (
    Attributes,
    AttributeValue,
    Distribution,
    IndexedCounts,
    IntArray,
    Measurement,
    Record,
)

logger = logging.getLogger("moescope")

StateKey: TypeAlias = tuple[str, tuple[tuple[str, AttributeValue], ...]]
NO_ATTRIBUTES: Final[Attributes] = {}
_NO_LAYERS: Final = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Observed:
    metric: Metric
    attributes: Attributes
    bucket_counts: list[int]
    sum: float = 0.0


@dataclass(slots=True)
class _State:
    metric: Metric
    attributes: Attributes
    value: int | float
    is_due: bool = True


@dataclass(slots=True)
class _Indexed:
    metric: Metric
    attributes: Attributes
    layers: IntArray
    counts_per_row_index: IntArray


class Tally:
    """Adds up plain metrics and arrays by index until the window is closed."""

    def __init__(self) -> None:
        self._known: set[tuple[str, StateKey]] = set()
        self._noted = threading.local()
        self._has_warned: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Forget everything, in a forked child too: a lock may have been held when it was forked."""
        self._lock = threading.Lock()
        self._states: dict[StateKey, _State] = {}
        self._clear()

    def _clear(self) -> None:
        self._added: dict[StateKey, Measurement] = {}
        self._observed: dict[StateKey, _Observed] = {}
        self._indexed: dict[StateKey, _Indexed] = {}

    def add(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Add to a counter.

        Raises:
            ShapeError: the metric is no counter, or has no such attribute.
        """
        key = self._check("add", metric, attributes, metric.kind is Kind.COUNTER)
        if not self._is_usable(metric, value, low=0):
            return
        with self._lock:
            before = self._added.get(key)
            total = value if before is None else before.value + value
            self._added[key] = Measurement(metric, total, attributes)

    def set_state(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Say what an up-down counter or a gauge is now; it is reported so until it is said again.

        Raises:
            ShapeError: the metric is no state, or has no such attribute.
        """
        is_state = metric.kind in {Kind.UP_DOWN_COUNTER, Kind.GAUGE}
        key = self._check("set_state", metric, attributes, is_state)
        if not self._is_usable(metric, value):
            return
        noted: set[StateKey] | None = getattr(self._noted, "keys", None)
        if noted is not None:
            noted.add(key)
        with self._lock:
            state = self._states.get(key)
            if state is None:
                self._states[key] = _State(metric, attributes, value)
            elif state.value != value:
                state.value, state.is_due = value, True

    @contextlib.contextmanager
    def owning_states(self, owned: set[StateKey]) -> Iterator[None]:
        """Note in ``owned`` which states this thread sets meanwhile, and forget them all if that fails.

        What nobody can read any more must not look as if it were still so.
        """
        self._noted.keys = owned
        try:
            yield
        except Exception:
            with self._lock:
                for key in owned:
                    self._states.pop(key, None)
            owned.clear()
            raise
        finally:
            self._noted.keys = None

    def forget_state(self, metric: Metric, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Report a state no longer: nobody knows it any more."""
        with self._lock:
            self._states.pop((metric.name, tuple(attributes.items())), None)

    def observe(
        self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES, *, times: int = 1
    ) -> None:
        """Add a value, or the same value several times, to a distribution, in the metric's unit.

        Raises:
            ShapeError: the metric is no plain histogram, or has no such attribute.
        """
        is_plain = metric.kind is Kind.HISTOGRAM and not metric.is_index_encoded
        key = self._check("observe", metric, attributes, is_plain)
        if not self._is_usable(metric, value, low=0):
            return
        bucket = bisect.bisect_left(metric.bounds, value)
        with self._lock:
            observed = self._observed.get(key)
            if observed is None:
                observed = _Observed(metric, attributes, [0] * (len(metric.bounds) + 1))
                self._observed[key] = observed
            observed.bucket_counts[bucket] += times
            observed.sum += value * times

    def observe_many(
        self, metric: Metric, values: Iterable[float], attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Add several values to a distribution; see :meth:`observe`."""
        for value in values:
            self.observe(metric, value, attributes)

    def add_distribution(
        self, metric: Metric, bucket_counts: IntArray, total: float, attributes: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Add a distribution that somebody else counted: int64 ``[len(metric.bounds) + 1]`` and its sum.

        Raises:
            ShapeError: it does not have the metric's buckets.
        """
        is_plain = metric.kind is Kind.HISTOGRAM and not metric.is_index_encoded
        key = self._check("add_distribution", metric, attributes, is_plain)
        if len(bucket_counts) != len(metric.bounds) + 1:
            raise ShapeError(f"{metric.name} has {len(metric.bounds) + 1} buckets, got {len(bucket_counts)}")
        if not self._is_usable(metric, total, low=0):
            return
        with self._lock:
            observed = self._observed.setdefault(
                key, _Observed(metric, attributes, [0] * (len(metric.bounds) + 1))
            )
            observed.bucket_counts = [
                before + int(more) for before, more in zip(observed.bucket_counts, bucket_counts, strict=True)
            ]
            observed.sum += float(total)

    def add_indexed(
        self,
        metric: Metric,
        counts_per_row_index: Any,
        attributes: Attributes = NO_ATTRIBUTES,
        layers: IntArray | None = None,
    ) -> None:
        """Add counts by index.

        Args:
            metric: an index-encoded row of the registry, no snapshot.
            counts_per_row_index: whole numbers ``[indices]``, with ``layers`` ``[layers, indices]``; copied.
            attributes: those that all rows share.
            layers: int64, the model's layer index of each row, strictly increasing.

        Raises:
            ShapeError: the metric is not index-encoded, or the array changed its shape within a window.
        """
        key = self._check("add_indexed", metric, attributes, metric.is_index_encoded and not metric.snapshot)
        counts = np.atleast_2d(np.array(counts_per_row_index, dtype=np.int64))
        if counts.min(initial=0) < 0:
            raise ShapeError(f"{metric.name}: counts are negative; hand over what came since the last call")
        rows = _NO_LAYERS if layers is None else np.asarray(layers, dtype=np.int64)
        with self._lock:
            there = self._indexed.get(key)
            if there is None:
                self._indexed[key] = _Indexed(metric, attributes, rows, counts)
            elif there.counts_per_row_index.shape != counts.shape or not np.array_equal(there.layers, rows):
                raise ShapeError(
                    f"{metric.name}: {counts.shape} does not add to {there.counts_per_row_index.shape}"
                )
            else:
                there.counts_per_row_index += counts

    def close_window(self, *, snapshot: bool) -> tuple[Record, ...]:
        """Return what was added since the last call, and the states; steady ones if due or ``snapshot``."""
        with self._lock:
            added, observed, indexed = self._added, self._observed, self._indexed
            self._clear()
            states = [
                Measurement(state.metric, state.value, state.attributes)
                for state in self._states.values()
                if snapshot or state.is_due or not state.metric.is_steady
            ]
            for state in self._states.values():
                state.is_due = False
        return (
            *added.values(),
            *states,
            *(
                Distribution(item.metric, np.asarray(item.bucket_counts, np.int64), item.sum, item.attributes)
                for item in observed.values()
            ),
            *(
                IndexedCounts(item.metric, item.layers, item.counts_per_row_index, item.attributes)
                for item in indexed.values()
            ),
        )

    def _check(self, verb: str, metric: Metric, attributes: Attributes, is_right_kind: bool) -> StateKey:
        key = (metric.name, tuple(attributes.items()))
        if (verb, key) not in self._known:  # looked at once, then known
            _refuse_wrong_use(verb, metric, attributes, is_right_kind=is_right_kind)
            self._known.add((verb, key))
        return key

    def _is_usable(self, metric: Metric, value: float, low: float = -math.inf) -> bool:
        """A clock that went backwards must not stop a hook; the value is left out, and said once."""
        if math.isfinite(value) and value >= low:
            return True
        if metric.name not in self._has_warned:
            self._has_warned.add(metric.name)
            logger.warning("moescope: %s cannot be %r; such values are left out", metric.name, value)
        return False


def _refuse_wrong_use(
    verb: str, metric: Metric, attributes: Mapping[str, AttributeValue], *, is_right_kind: bool
) -> None:
    if not is_right_kind:
        raise ShapeError(f"{verb}() does not fit {metric.name}: {metric.kind.value}, {metric.encoding.value}")
    unknown = [name for name in attributes if name not in metric.attributes]
    if unknown:
        raise ShapeError(
            f"{metric.name} has no attribute {unknown[0]}; it has {', '.join(metric.attributes)}"
        )
