"""The board on the Prometheus source: every family of the page, from the registry, under its subject."""

from __future__ import annotations

from typing import Any, Final

from panels import PROMETHEUS, Panel, Row, board, choice, promql, variable

from moescope.schemas import attributes as a
from moescope.schemas import metrics as m
from moescope.schemas import page_metrics as p
from moescope.schemas.metrics import Kind, Metric
from moescope.schemas.page_metrics import GROUP_LABELS, PAGE_FAMILIES, label_name

_SELECTOR: Final = 'service="$service", ep_group="$ep_group"'
_RATE: Final = "[$__rate_interval]"
_QUANTILES: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))

# What a unit of the registry is called by Grafana: as a state, and as a rate of a counter.
_UNITS: Final = {"s": ("s", "s"), "By": ("bytes", "Bps"), "1": ("none", "none")}
_SHARES: Final = frozenset(
    {
        m.GPU_UTILIZATION.name,
        *(p.RANK_LOAD_SHARE.name, p.HOT_EXPERT_CAPACITY_SHARE.name),
        *(p.FAILOVER_LOST_SHARE.name, p.FAILOVER_UNCOVERED.name),
    }
)

# (heading, beginnings of names); the first that fits takes a family, the last what is left.
_SUBJECTS: Final = (
    ("Requests", ("gen_ai.", "moe.request")),
    ("Tokens and steps", ("moe.tokens", "moe.step", "moe.rank.step", "moe.contract")),
    ("Balance and hot experts", ("moe.layer", "moe.rank.load", "moe.hot_expert", "moe.expert", "moe.replan")),
    ("Dispatch and traffic", ("moe.dispatch", "moe.rank", "moe.straggler")),
    ("Memory and caches", ("moe.memory", "moe.kda_state", "moe.mla_kv_cache", "moe.prefix_cache")),
    ("Failover", ("moe.failover",)),
    ("GPUs", ("hw.gpu",)),
    ("Can it be believed?", ("moe.telemetry", "moe.findings", "")),
)


def prometheus_board() -> dict[str, Any]:
    """The board as Grafana's JSON model."""
    return board(
        uid="moescope-fleet",
        title="moescope: fleet",
        description="The numbers of /metrics. What is per expert has a board of its own.",
        variables=[
            variable(
                "service", "Deployment", PROMETHEUS, f"label_values({p.FINDINGS.prometheus_name}, service)"
            ),
            variable(
                "ep_group",
                "EP group",
                PROMETHEUS,
                f'label_values({p.FINDINGS.prometheus_name}{{service="$service"}}, ep_group)',
            ),
            choice("phase", "Phase", tuple(phase.value for phase in (a.Phase.DECODE, a.Phase.PREFILL))),
        ],
        rows=[_at_a_glance(), *_subjects()],
    )


def _at_a_glance() -> Row:
    finished = m.REQUESTS_FINISHED.prometheus_name
    contract = label_name(a.CONTRACT)
    imbalance = p.LAYER_IMBALANCE_NET.prometheus_name
    good = (
        f'sum(rate({finished}{{{_SELECTOR}, {contract}="{a.Contract.MET}"}}{_RATE})) '
        f"/ sum(rate({finished}{{{_SELECTOR}}}{_RATE}))"
    )
    return Row(
        "At a glance",
        (
            _stat(
                "Findings",
                p.FINDINGS.description,
                f"sum({p.FINDINGS.prometheus_name}{{{_SELECTOR}}})",
                "short",
            ),
            _stat(
                "Good requests",
                "Share of finished requests that kept the latency contract.",
                good,
                "percentunit",
            ),
            _stat(
                "Worst layer", p.LAYER_IMBALANCE_NET.description, f"max({imbalance}{{{_SELECTOR}}})", "none"
            ),
            _stat(
                "TTFT p99", m.TIME_TO_FIRST_TOKEN.description, _quantile(m.TIME_TO_FIRST_TOKEN, (), 0.99), "s"
            ),
            _stat(
                "TPOT p99",
                m.TIME_PER_OUTPUT_TOKEN.description,
                _quantile(m.TIME_PER_OUTPUT_TOKEN, (), 0.99),
                "s",
            ),
            _stat(
                "Oldest rank",
                p.WINDOW_AGE.description,
                f"max({p.WINDOW_AGE.prometheus_name}{{{_SELECTOR}}})",
                "s",
            ),
        ),
    )


def _stat(title: str, description: str, expression: str, unit: str) -> Panel:
    return Panel(title, description, "stat", promql((expression, "")), unit, width=4, height=4)


def _subjects() -> list[Row]:
    panels: dict[str, list[Panel]] = {heading: [] for heading, _ in _SUBJECTS}
    for family in PAGE_FAMILIES:
        panels[_heading(family.metric)].append(_of_family(family.metric, family.labels))
    for metric, labels in _PAGE_ONLY:
        panels[_heading(metric)].append(_of_family(metric, (*GROUP_LABELS, *labels)))
    return [Row(heading, tuple(found)) for heading, found in panels.items() if found]


def _heading(metric: Metric) -> str:
    return next(
        heading for heading, beginnings in _SUBJECTS if any(metric.name.startswith(one) for one in beginnings)
    )


_PHASE_LAYER: Final = (label_name(a.PHASE), label_name(a.LAYER))
_RANK: Final = (label_name(a.EP_RANK),)
_PAGE_ONLY: Final[tuple[tuple[Metric, tuple[str, ...]], ...]] = (
    (p.CONTRACT_LIMIT, (p.KIND_LABEL,)),
    (p.LAYER_IMBALANCE, _PHASE_LAYER),
    (p.LAYER_IMBALANCE_NET, _PHASE_LAYER),
    (p.RANK_LOAD_SHARE, (*_RANK, label_name(a.PHASE))),
    (p.HOT_EXPERT_LOAD, (*_PHASE_LAYER, p.EXPERT_LABEL, p.HARMFUL_LABEL)),
    (p.HOT_EXPERT_CAPACITY_SHARE, (*_PHASE_LAYER, p.EXPERT_LABEL)),
    (p.STRAGGLER, (*_RANK, p.KIND_LABEL)),
    (p.MEMORY_FULL_IN, (*_RANK, label_name(a.POOL))),
    (p.FAILOVER_LOST_SHARE, _RANK),
    (p.FAILOVER_UNCOVERED, ()),
    (p.REPLAN_GAIN, (label_name(a.PHASE),)),
    (p.WINDOW_AGE, _RANK),
    (p.FINDINGS, (p.KIND_LABEL,)),
)
_LEGENDS: Final = {label_name(a.EP_RANK): "rank ", label_name(a.LAYER): "layer ", label_name(a.HW_ID): "GPU "}
_MANY_SERIES: Final = 12
"""Lines of one panel: of a gauge by layer the largest are drawn."""


def _of_family(metric: Metric, labels: tuple[str, ...]) -> Panel:
    keys, selector = _shown(metric, labels)
    legend = " ".join(f"{_LEGENDS.get(key, '')}{{{{{key}}}}}" for key in keys) or "{{ep_group}}"
    name = f"{metric.prometheus_name}{{{selector}}}"
    state, rate = _units(metric)
    title = _title(metric)
    if metric.bounds:
        series = tuple((_quantile(metric, keys, q), f"{word} {legend}") for q, word in _QUANTILES)
        return Panel(title, metric.description, "timeseries", promql(*series), state)
    if metric.kind is Kind.COUNTER:
        by = f" by ({', '.join(keys)})" if keys else ""
        expression = f"sum{by} (rate({name}{_RATE}))"
        return Panel(
            f"{title}, a second", metric.description, "timeseries", promql((expression, legend)), rate
        )
    if p.EXPERT_LABEL in keys:
        worst = promql((f"sort_desc({name})", ""), instant=True)
        return Panel(title, metric.description, "table", worst, state, width=16)
    if label_name(a.LAYER) in keys:
        largest = promql((f"topk({_MANY_SERIES}, {name})", legend))
        return Panel(f"{title}: the largest", metric.description, "timeseries", largest, state)
    if metric.name.startswith("moe.memory") and metric is not p.MEMORY_FULL_IN:
        fullest = promql((f"max by (pool) ({name})", "{{pool}}"))
        return Panel(f"{title}: the largest rank", metric.description, "timeseries", fullest, state)
    return Panel(title, metric.description, "timeseries", promql((name, legend)), state)


def _shown(metric: Metric, labels: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Labels that tell a panel's lines apart, and the selector: of ranks one phase is shown at a time."""
    keys = tuple(label for label in labels if label not in GROUP_LABELS)
    # The limits of the contract are the server's settings, and so of no deployment.
    selector = "" if metric is p.CONTRACT_LIMIT else _SELECTOR
    if label_name(a.EXCLUDED) in keys:
        keys = tuple(key for key in keys if key not in _RANK)
    phase = label_name(a.PHASE)
    if set(_RANK) | {phase} <= set(keys):
        keys = tuple(key for key in keys if key != phase)
        selector += f', {phase}="$phase"'
    return keys, selector


def _quantile(metric: Metric, keys: tuple[str, ...], quantile: float) -> str:
    by = ", ".join(("le", *keys))
    buckets = f"{metric.prometheus_name}_bucket{{{_SELECTOR}}}"
    return f"histogram_quantile({quantile}, sum by ({by}) (rate({buckets}{_RATE})))"


def _units(metric: Metric) -> tuple[str, str]:
    if metric.name in _SHARES:
        return "percentunit", "percentunit"
    return _UNITS.get(metric.unit, ("short", "short"))


def _title(metric: Metric) -> str:
    words = metric.name.removeprefix("moe.").removeprefix("gen_ai.server.").replace("hw.gpu", "GPU")
    text = words.replace(".", " ").replace("_", " ")
    for plain, proper in (("kda ", "KDA "), ("mla kv ", "MLA KV "), (" io", " traffic")):
        text = text.replace(plain, proper)
    return text[0].upper() + text[1:]
