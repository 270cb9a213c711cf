"""What stands on a Prometheus page: rows of the registry, sums of them, and what only a page has.

A page never has a series per (layer, expert), and none of an index-encoded metric: of those it has sums. Its
number of series follows from the ranks, the layers and the closed vocabularies, never from the experts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Final

from moescope.schemas import attributes as a
from moescope.schemas import metrics as m
from moescope.schemas.metrics import Encoding, Kind, Metric

_NS: Final = 1e-9


class Reading(Enum):
    """What of a record becomes the value of a series."""

    VALUE = "the number, or the distribution, as it is"
    SUM = "the sum over all indices of an index-encoded record"
    BY_PEER = "each index of a record by peer rank, told of that peer"
    TOTAL = "the sum of a distribution's values"
    COUNT = "how many values a distribution holds"


@dataclass(frozen=True, slots=True)
class PageFamily:
    """One family of a page, filled from the records of windows.

    Attributes:
        metric: its name, kind, unit and words on the page.
        source: the row of the registry whose records fill it.
        keys: point attributes that become labels; others are added up.
        by_rank: whether each rank has series of its own, or the EP group one sum.
        reading: what of a record is taken.
        scale: factor from the record's unit to the page's.
        starts_with: label values that are there from the first window on, as 0, so that the first event is
            an increase.
    """

    metric: Metric
    source: Metric
    keys: tuple[str, ...] = ()
    by_rank: bool = False
    reading: Reading = Reading.VALUE
    scale: float = 1.0
    starts_with: tuple[tuple[str, ...], ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The label names, in the order of the values."""
        place = RANK_LABELS if self.by_rank else GROUP_LABELS
        return (*place, *map(label_name, self.keys))


def label_name(key: str) -> str:
    """The label of an attribute: dots become underscores, our own prefix goes."""
    return _LABELS.get(key) or key.removeprefix("moe.").replace(".", "_")


_LABELS: Final = {a.SERVICE_NAME: "service", a.DIRECTION: "direction", a.HW_ID: "gpu"}

GROUP_LABELS: Final = (label_name(a.SERVICE_NAME), label_name(a.EP_GROUP))
RANK_LABELS: Final = (*GROUP_LABELS, label_name(a.EP_RANK))


def _as_it_is(metric: Metric, *keys: str, by_rank: bool = False) -> PageFamily:
    return PageFamily(metric, metric, keys, by_rank)


def _summed(
    source: Metric,
    *keys: str,
    by_rank: bool = True,
    starts_with: tuple[tuple[str, ...], ...] = (),
    description: str,
) -> PageFamily:
    """A counter under the registry's own name; nanoseconds become seconds, as a page has them."""
    is_time = source.unit == "ns"
    metric = dataclasses.replace(
        source,
        kind=Kind.COUNTER,
        encoding=Encoding.PLAIN,
        unit="s" if is_time else source.unit,
        attributes=keys,
        description=description,
    )
    scale = _NS if is_time else 1.0
    return PageFamily(metric, source, keys, by_rank, Reading.SUM, scale, starts_with)


_WAIT_NOTE: Final = (
    ", as the engine counts it: with SGLang and DeepEP a sum over warps that wait side by side, which "
    "compares ranks and is no time."
)

# What only a page has, from windows.
DISPATCH_WAITED_FOR: Final = Metric(
    "moe.dispatch.waited_for",
    Kind.COUNTER,
    "s",
    (a.STAGE,),
    f"Time that the other ranks waited for this one{_WAIT_NOTE}",
)
RANK_STEPS: Final = Metric(
    "moe.rank.steps",
    Kind.COUNTER,
    "{step}",
    (a.PHASE,),
    "Forward passes of this rank.",
)
RANK_STEP_TIME: Final = Metric(
    "moe.rank.step.time",
    Kind.COUNTER,
    "s",
    (a.PHASE,),
    "Time spent in forward passes of this rank.",
)
WINDOW_AGE: Final = Metric(
    "moe.telemetry.window.age",
    Kind.GAUGE,
    "s",
    (),
    "Time since the end of the newest window that came from this rank, by this machine's clock.",
)

# What only a page has, from the analysis: the same numbers as `moescope report`.
LAYER_IMBALANCE: Final = Metric(
    "moe.layer.imbalance",
    Kind.GAUGE,
    "1",
    (a.PHASE, a.LAYER),
    "Imbalance of a layer: max / mean rank load, as counted.",
)
LAYER_IMBALANCE_NET: Final = Metric(
    "moe.layer.imbalance.net",
    Kind.GAUGE,
    "1",
    (a.PHASE, a.LAYER),
    "Imbalance of a layer net of its noise floor: what the threshold applies to. Absent where there are too "
    "few tokens for a verdict.",
)
RANK_LOAD_SHARE: Final = Metric(
    "moe.rank.load.share",
    Kind.GAUGE,
    "1",
    (a.PHASE,),
    "Part of the EP group's expert work that this rank does, all layers together.",
)
HOT_EXPERT_LOAD: Final = Metric(
    "moe.hot_expert.load",
    Kind.GAUGE,
    "1",
    (a.PHASE, a.LAYER),
    "Load of a hot expert as a multiple of its layer's median expert: only experts that are hot beyond "
    "doubt, the most harmful ones, never more than the setting fleet_page_hot_experts.",
)
HOT_EXPERT_CAPACITY_SHARE: Final = Metric(
    "moe.hot_expert.capacity_share",
    Kind.GAUGE,
    "1",
    (a.PHASE, a.LAYER),
    "Part of a rank's even share of the work that one copy of a hot expert takes; the same experts as "
    "moe_hot_expert_load_ratio.",
)
STRAGGLER: Final = Metric(
    "moe.straggler",
    Kind.GAUGE,
    "1",
    (),
    "How many times as long as is usual the others wait for this rank, for a link that it sends on, or for "
    "the node of which it is the first rank; or how slow its experts are. Only what is named, by kind: "
    "absent where nobody is late beyond doubt.",
)
MEMORY_FULL_IN: Final = Metric(
    "moe.memory.full_in",
    Kind.GAUGE,
    "s",
    (a.POOL,),
    "Time until a pool is full at its present growth, on the rank where that is first; 0 where it is full. "
    "Absent for pools that do not grow steadily.",
)
FAILOVER_LOST_SHARE: Final = Metric(
    "moe.failover.lost_share",
    Kind.GAUGE,
    "1",
    (),
    "Part of the EP group's expert work that would be lost with this rank, the one with most to lose: "
    "work of experts that no other rank holds.",
)
FAILOVER_UNCOVERED: Final = Metric(
    "moe.failover.uncovered",
    Kind.GAUGE,
    "1",
    (),
    "Part of the EP group's expert work that is done by experts which one rank alone holds.",
)
REPLAN_GAIN: Final = Metric(
    "moe.replan.gain",
    Kind.GAUGE,
    "1",
    (a.PHASE,),
    "By how much moving a few experts would lower max / mean rank load, net of noise, mean over layers. Only "
    "where the load drifted and the gain is worth the moves (setting replan_min_gain).",
)
CONTRACT_LIMIT: Final = Metric(
    "moe.contract.limit",
    Kind.GAUGE,
    "s",
    (),
    "Latency contract of the server's settings, by kind: a request is good up to this time to first token "
    "(ttft) and this mean time per output token (tpot).",
)
FINDINGS: Final = Metric(
    "moe.findings",
    Kind.GAUGE,
    "{finding}",
    (),
    "Processes, layers, experts or pools that something is wrong with, by kind; what it is says "
    "`moescope report`.",
)

EXPERT_LABEL: Final = "expert"
HARMFUL_LABEL: Final = "harmful"
KIND_LABEL: Final = "kind"

PAGE_FAMILIES: Final[tuple[PageFamily, ...]] = (
    _as_it_is(m.TOKENS, a.PHASE, a.EXCLUDED, by_rank=True),
    PageFamily(RANK_STEPS, m.STEP_DURATION, (a.PHASE,), True, Reading.COUNT),
    PageFamily(RANK_STEP_TIME, m.STEP_DURATION, (a.PHASE,), True, Reading.TOTAL),
    _as_it_is(m.STEP_DURATION, a.PHASE),
    _as_it_is(m.STEP_TOKENS, a.PHASE),
    PageFamily(
        dataclasses.replace(
            m.DISPATCH_DURATION,
            description="Duration of one dispatch or combine, waiting included, all layers together.",
        ),
        *(m.DISPATCH_DURATION, (a.STAGE, a.PHASE)),
    ),
    _summed(m.DISPATCH_WAIT, a.STAGE, description=f"Time that this rank waited for the others{_WAIT_NOTE}"),
    PageFamily(
        *(DISPATCH_WAITED_FOR, m.DISPATCH_WAIT, (a.STAGE,)), by_rank=True, reading=Reading.BY_PEER, scale=_NS
    ),
    _summed(
        *(m.RANK_IO, a.PHASE, a.DIRECTION), description="Bytes that this rank exchanged with all its peers."
    ),
    _summed(
        *(m.RANK_TOKENS, a.PHASE),
        description="Tokens that this rank sent, each once per peer however many of its experts live there.",
    ),
    _summed(m.RANK_ASSIGNMENTS, a.PHASE, description="(token, expert) assignments that this rank sent."),
    _summed(
        *(m.EXPERT_GROUP_DURATION, a.PHASE),
        description="Time that this rank spent in grouped expert kernels, all layers together.",
    ),
    _summed(
        *(m.EXPERT_DURATION, a.PHASE, a.SOURCE),
        by_rank=False,
        description="Time spent computing experts one by one, all experts together.",
    ),
    _summed(
        *(m.EXPERT_FAILOVERS, a.REASON),
        by_rank=False,
        starts_with=tuple((reason.value,) for reason in a.FailoverReason),
        description="Times that another copy served in place of an expert, all experts together.",
    ),
    _as_it_is(m.MEMORY_USAGE, a.POOL, by_rank=True),
    _as_it_is(m.MEMORY_LIMIT, a.POOL, by_rank=True),
    _as_it_is(m.KDA_STATE_SLOTS, by_rank=True),
    _as_it_is(m.KDA_STATE_SLOTS_LIMIT, by_rank=True),
    _as_it_is(m.KDA_STATE_COPIES, a.REASON, by_rank=True),
    _as_it_is(m.MLA_KV_CACHE_BLOCKS, by_rank=True),
    _as_it_is(m.MLA_KV_CACHE_BLOCKS_LIMIT, by_rank=True),
    _as_it_is(m.PREFIX_CACHE_TOKENS, a.RESULT),
    _as_it_is(m.REQUESTS_RUNNING, by_rank=True),
    _as_it_is(m.REQUESTS_WAITING, by_rank=True),
    _as_it_is(m.REQUESTS_FINISHED, a.CONTRACT),
    _as_it_is(m.REQUEST_OUTPUT_TOKENS, a.CONTRACT),
    _as_it_is(m.TIME_TO_FIRST_TOKEN),
    _as_it_is(m.TIME_PER_OUTPUT_TOKEN),
    _as_it_is(m.INTER_TOKEN_LATENCY),
    _as_it_is(m.REQUEST_QUEUE_DURATION),
    _as_it_is(m.REQUEST_DURATION),
    _as_it_is(m.GPU_UTILIZATION, a.HW_ID, by_rank=True),
    _as_it_is(m.GPU_MEMORY_USAGE, a.HW_ID, by_rank=True),
    _as_it_is(m.GPU_MEMORY_LIMIT, a.HW_ID, by_rank=True),
    _as_it_is(m.GPU_IO, a.HW_ID, a.DIRECTION, by_rank=True),
    _as_it_is(m.TELEMETRY_EXPORT_DURATION),
    _as_it_is(m.TELEMETRY_EXPORT_FAILURES, a.REASON),
    _as_it_is(m.TELEMETRY_QUEUE_SIZE, by_rank=True),
)

JUDGED_METRICS: Final = (
    *(LAYER_IMBALANCE, LAYER_IMBALANCE_NET, RANK_LOAD_SHARE, HOT_EXPERT_LOAD, HOT_EXPERT_CAPACITY_SHARE),
    *(STRAGGLER, MEMORY_FULL_IN, FAILOVER_LOST_SHARE, FAILOVER_UNCOVERED, REPLAN_GAIN, FINDINGS),
)
PAGE_ONLY_METRICS: Final = (
    *(DISPATCH_WAITED_FOR, RANK_STEPS, RANK_STEP_TIME, WINDOW_AGE, CONTRACT_LIMIT, *JUDGED_METRICS),
)

NOT_ON_A_PAGE: Final[dict[str, str]] = {
    m.EXPERT_TOKENS.name: "a series per layer and expert; the page has the imbalance and the hot experts",
    m.EXPERT_REPLICAS.name: "a series per layer and expert; the placement is in the store",
    m.EXPERT_WEIGHT_SIZE.name: "a constant of the model; the pool of the weights is on the page",
}
"""Rows of the registry that no page shows, and why."""
