"""Words of a closed vocabulary: one that the registry does not know is rejected at the door.

The analysis makes its own types of these attributes, and a Prometheus page a series of each value: a word
that nobody knows must harm neither. Metrics of the OpenTelemetry conventions may leave an attribute out,
since stock senders do; a wrong word is wrong there as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import numpy as np

from moescope.schemas import attributes as a
from moescope.schemas.metrics import EXPERT_FAILOVERS, KDA_STATE_COPIES, Metric
from moescope.server.attribute_text import text_attribute
from moescope.server.bucket_checks import Checks
from moescope.server.otlp_decode import Block
from moescope.server.reasons import MAX_REASON_CHARACTERS, Reason

_OWN_NAMESPACE: Final = "moe."
_COMPONENTS: Final = frozenset({"", *(component.value for component in a.Component)})

_VOCABULARIES: Final[dict[str, tuple[Reason, type[StrEnum]]]] = {
    a.EXCLUDED: (Reason.EXCLUDED, a.Excluded),
    a.SOURCE: (Reason.SOURCE, a.DurationSource),
    a.STAGE: (Reason.STAGE, a.DispatchStage),
    a.POOL: (Reason.POOL, a.MemoryPool),
    a.RESULT: (Reason.RESULT, a.CacheResult),
    a.CONTRACT: (Reason.CONTRACT, a.Contract),
    a.DIRECTION: (Reason.DIRECTION, a.Direction),
}
_REASON_VOCABULARIES: Final[dict[str, tuple[Reason, type[StrEnum]]]] = {
    EXPERT_FAILOVERS.name: (Reason.FAILOVER_REASON, a.FailoverReason),
    KDA_STATE_COPIES.name: (Reason.COPY_REASON, a.CopyReason),
}


def vocabulary_checks(block: Block, metric: Metric) -> Checks:
    """Yield which points of a registered metric use a word that is none of its vocabulary.

    Args:
        block: its points.
        metric: the registry's row of the block's name.
    """
    component = text_attribute(block.origin.resource.attributes, a.COMPONENT)
    yield Reason.COMPONENT, np.full(len(block.points), component not in _COMPONENTS)
    may_be_absent = not metric.name.startswith(_OWN_NAMESPACE)
    for key, reason, words in _vocabularies_of(metric):
        known = {"", *words} if may_be_absent else {*words}
        said = [text_attribute(point.attributes, key) for point in block.points]
        yield reason, np.array([word not in known for word in said])
    if a.REASON in metric.attributes:
        lengths = [len(text_attribute(point.attributes, a.REASON)) for point in block.points]
        yield Reason.LONG_REASON, np.array(lengths) > MAX_REASON_CHARACTERS


def _vocabularies_of(metric: Metric) -> Iterator[tuple[str, Reason, tuple[str, ...]]]:
    for key in metric.attributes:
        of_key = _REASON_VOCABULARIES.get(metric.name) if key == a.REASON else _VOCABULARIES.get(key)
        if of_key is not None:
            reason, vocabulary = of_key
            yield key, reason, tuple(word.value for word in vocabulary)
