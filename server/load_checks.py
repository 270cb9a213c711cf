"""What a point of the registry must say so that the tables can use it.

The tables are made from changes that can be added up and from states that cannot, with the phase where the
registry has one. A point that is neither would be kept raw and be part of no answer, and its sender would
never hear of it. Metrics of the OpenTelemetry conventions (``gen_ai.*``, ``hw.*``) come from stock senders as
well: those may be cumulative, stay raw and out of the tables.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from moescope.schemas import attributes as a
from moescope.schemas.metrics import TOKENS, Encoding, Kind, Metric
from moescope.server.attribute_text import int_attribute, text_attribute
from moescope.server.bucket_checks import Checks
from moescope.server.buckets import Buckets
from moescope.server.otlp_decode import Block, PointKind
from moescope.server.otlp_messages import DELTA_TEMPORALITY
from moescope.server.reasons import Reason
from moescope.server.vocabulary_checks import vocabulary_checks

MAX_INDICES: Final = 2**16
"""Experts, ranks and layers are numbered in two bytes."""

_PHASES: Final = frozenset(phase.value for phase in a.Phase)
_OWN_NAMESPACE: Final = "moe."
_CHANGES: Final = frozenset({Kind.COUNTER, Kind.HISTOGRAM})


def load_checks(block: Block, metric: Metric) -> Checks:
    """Yield what each point of a registered metric fails.

    Args:
        block: its points.
        metric: the registry's row of the block's name.
    """
    is_delta = block.temporality == DELTA_TEMPORALITY
    if _must_be_delta(metric):
        yield Reason.NOT_DELTA, np.full(len(block.points), not is_delta)
    if metric.kind not in _CHANGES and block.kind is PointKind.SUM and _is_own(metric):
        yield Reason.NOT_A_STATE, np.full(len(block.points), is_delta)
    if metric.kind not in _CHANGES and block.kind in {PointKind.SUM, PointKind.GAUGE}:
        yield Reason.NEGATIVE_STATE, np.array([_is_negative(point) for point in block.points])
    if a.PHASE in metric.attributes:
        yield Reason.PHASE, np.array([not _has_phase(point, metric) for point in block.points])
    yield from vocabulary_checks(block, metric)
    if a.LAYER in metric.attributes:
        yield from _layer_checks(block, metric)


def _layer_checks(block: Block, metric: Metric) -> Checks:
    """Where a metric is by expert a point needs its layer; elsewhere the layer is opt-in."""
    layers = [int_attribute(point.attributes, a.LAYER) for point in block.points]
    needs_layer = [metric.encoding is Encoding.BY_EXPERT or _says_layer(point) for point in block.points]
    yield Reason.NO_LAYER, np.array([layer is None for layer in layers]) & np.array(needs_layer)
    limit = int_attribute(block.origin.resource.attributes, a.MODEL_LAYERS) or MAX_INDICES
    inside = [layer is None or 0 <= layer < min(limit, MAX_INDICES) for layer in layers]
    yield Reason.LAYER_OUT_OF_RANGE, ~np.array(inside)


def width_checks(block: Block, buckets: Buckets, metric: Metric) -> Checks:
    """Yield which points have not as many buckets as there are ranks, or layers, by the resource."""
    resource = block.origin.resource.attributes
    for encoding, key, reason in (
        (Encoding.BY_PEER_RANK, a.EP_SIZE, Reason.RANK_COUNT),
        (Encoding.BY_LAYER, a.MODEL_LAYERS, Reason.LAYER_COUNT),
    ):
        if metric.encoding is encoding:
            expected = int_attribute(resource, key)
            is_wrong = buckets.count_lengths > MAX_INDICES
            if expected is not None:
                is_wrong |= buckets.count_lengths != expected
            yield reason, is_wrong


def _must_be_delta(metric: Metric) -> bool:
    return metric.kind in _CHANGES and not metric.snapshot and _is_own(metric)


def _is_own(metric: Metric) -> bool:
    return metric.name.startswith(_OWN_NAMESPACE)


def _has_phase(point: Any, metric: Metric) -> bool:
    """Only token rows that are no part of the load may go without one."""
    said = text_attribute(point.attributes, a.PHASE)
    if metric is TOKENS and not said:
        return text_attribute(point.attributes, a.EXCLUDED) != a.Excluded.NONE.value
    return said in _PHASES


def _is_negative(point: Any) -> bool:
    kind = point.WhichOneof("value")
    return kind is not None and getattr(point, kind) < 0


def _says_layer(point: Any) -> bool:
    return any(item.key == a.LAYER for item in point.attributes)
