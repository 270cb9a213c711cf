"""What a point of the load must say so that it can be summed: that it is a change, and in which phase.

The tables of the load are made from deltas with a phase. A point without them would be kept raw and be part
of no answer, and its sender would never hear of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from moescope.schemas import attributes as a
from moescope.schemas.metrics import EXPERT_TOKENS, TOKENS, Encoding, Metric
from moescope.server.attribute_text import string_attribute
from moescope.server.bucket_checks import Checks
from moescope.server.otlp_decode import Block
from moescope.server.otlp_messages import DELTA_TEMPORALITY
from moescope.server.reasons import Reason

_PHASES: Final = frozenset(phase.value for phase in a.Phase)


def load_checks(block: Block, metric: Metric) -> Checks:
    """Yield what each point of a registered metric fails.

    Args:
        block: its points.
        metric: the registry's row of the block's name.
    """
    if _must_be_delta(metric):
        is_delta = block.temporality == DELTA_TEMPORALITY
        yield Reason.NOT_DELTA, np.full(len(block.points), not is_delta)
    if metric in (EXPERT_TOKENS, TOKENS):
        needs_phase = np.array([metric is EXPERT_TOKENS or _is_load(point) for point in block.points])
        has_phase = [string_attribute(point.attributes, a.PHASE) in _PHASES for point in block.points]
        yield Reason.PHASE, needs_phase & ~np.array(has_phase)


def _must_be_delta(metric: Metric) -> bool:
    return metric is TOKENS or (metric.encoding is Encoding.BY_EXPERT and not metric.snapshot)


def _is_load(point: Any) -> bool:
    return string_attribute(point.attributes, a.EXCLUDED) == a.Excluded.NONE.value
