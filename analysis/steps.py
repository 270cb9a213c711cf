"""Forward passes: how long they take and how many tokens they compute, prefill and decode apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moescope.analysis.distribution import Distribution, DistributionKey
from moescope.schemas import metrics
from moescope.schemas.attributes import Phase
from moescope.schemas.metrics import Metric

STEP_METRICS: Final = (metrics.STEP_DURATION, metrics.STEP_TOKENS)


def pick_steps(
    distributions: Mapping[DistributionKey, Distribution], metric: Metric
) -> Mapping[Phase, Distribution]:
    """One of :data:`STEP_METRICS` by phase, what of it is stored."""
    keys = {phase: DistributionKey(metric.name, phase=phase.value) for phase in Phase}
    return {phase: distributions[key] for phase, key in keys.items() if key in distributions}
