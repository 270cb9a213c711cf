"""The board on the ClickHouse source: what Prometheus must not hold. Each documented view has a panel."""

from __future__ import annotations

from typing import Any, Final

from panels import CLICKHOUSE, Panel, Row, board, choice, sql, variable

from moescope.schemas.attributes import Phase

# The plugin fills in $__timeFilter; a choice is quoted by Grafana (:singlequote).
_WHERE: Final = (
    "WHERE $__timeFilter(time) AND service = ${service:singlequote} AND ep_group = ${ep_group:singlequote}"
)
_PHASE: Final = "AND phase = ${phase:singlequote}"


def clickhouse_board() -> dict[str, Any]:
    """The board as Grafana's JSON model."""
    return board(
        uid="moescope-experts",
        title="moescope: experts",
        description="Per expert, per rank pair, per pool: SQL on the documented views (docs/tables.md).",
        variables=[
            variable(
                "service",
                "Deployment",
                CLICKHOUSE,
                "SELECT DISTINCT service FROM telemetry_health ORDER BY service",
            ),
            variable(
                "ep_group",
                "EP group",
                CLICKHOUSE,
                "SELECT DISTINCT ep_group FROM telemetry_health "
                "WHERE service = ${service:singlequote} ORDER BY ep_group",
            ),
            choice("phase", "Phase", tuple(phase.value for phase in (Phase.DECODE, Phase.PREFILL))),
        ],
        rows=[
            Row("Experts", _experts()),
            Row("Ranks and traffic", _ranks()),
            Row("Requests", _requests()),
            Row("Memory", _memory()),
            Row("Can it be believed?", _health()),
        ],
    )


def _series(title: str, description: str, text: str, unit: str, **place: Any) -> Panel:
    return Panel(title, description, "timeseries", sql(text, kind="timeseries"), unit, **place)


def _table(title: str, description: str, text: str, **place: Any) -> Panel:
    return Panel(title, description, "table", sql(text, kind="table"), "short", **place)


def _experts() -> tuple[Panel, ...]:
    return (
        _table(
            "Experts chosen most",
            "(token, expert) assignments in the time shown, and as a multiple of the layer's median expert.",
            f"""SELECT layer, expert, sum(activations) AS assignments,
  round(assignments / nullIf(median(assignments) OVER (PARTITION BY layer), 0), 2) AS times_median
FROM expert_activations_per_minute {_WHERE} {_PHASE}
GROUP BY layer, expert ORDER BY assignments DESC LIMIT 50""",
        ),
        _table(
            "Slowest experts",
            "Time per (token, expert) assignment; apportioned: a grouped kernel's, shared out by tokens.",
            f"""SELECT layer, expert, any(source) AS source,
  round(sum(duration_ns) / sum(tokens)) AS ns_per_token, sum(tokens) AS assignments
FROM expert_latency {_WHERE} {_PHASE}
GROUP BY layer, expert HAVING assignments > 0 ORDER BY ns_per_token DESC LIMIT 50""",
        ),
        _table(
            "Experts with one copy only",
            "Gone with their rank. From the newest placement that each rank reported.",
            f"""SELECT any(ep_rank) AS ep_rank, layer, expert, any(bytes) AS bytes
FROM (
  SELECT layer, expert, ep_rank, argMax(replicas, time) AS replicas, argMax(bytes, time) AS bytes
  FROM expert_memory {_WHERE} GROUP BY layer, expert, ep_rank
)
GROUP BY layer, expert HAVING sum(replicas) = 1 ORDER BY ep_rank, layer, expert LIMIT 200""",
        ),
        _series(
            "Failovers",
            "Times that another copy served in place of an expert, by reason.",
            f"""SELECT time, reason, sum(failovers) AS failovers
FROM expert_failovers {_WHERE} GROUP BY time, reason ORDER BY time, reason""",
            "short",
        ),
        _series(
            "Imbalance of the worst layers",
            "Max / mean rank load, as counted, of the eight layers that are worst in the time shown.",
            f"""SELECT time, concat('layer ', toString(layer)) AS layer_name, max(load_ratio) AS imbalance
FROM rank_load {_WHERE} {_PHASE} AND layer IN (
  SELECT layer FROM rank_load {_WHERE} {_PHASE}
  GROUP BY layer ORDER BY avg(load_ratio * load_ratio) DESC LIMIT 8
)
GROUP BY time, layer ORDER BY time, layer""",
            "none",
            width=16,
        ),
    )


def _ranks() -> tuple[Panel, ...]:
    return (
        _series(
            "Load by rank",
            "Assignments computed by each rank in a minute, all layers together.",
            f"""SELECT time, concat('rank ', toString(ep_rank)) AS rank, sum(load) AS assignments
FROM rank_load {_WHERE} {_PHASE} GROUP BY time, ep_rank ORDER BY time, ep_rank""",
            "short",
        ),
        _series(
            "Step time by rank",
            "Mean time of a forward pass.",
            f"""SELECT time, concat('rank ', toString(ep_rank)) AS rank,
  sum(total_seconds) / sum(steps) AS seconds
FROM step_time {_WHERE} {_PHASE} GROUP BY time, ep_rank ORDER BY time, ep_rank""",
            "s",
        ),
        _series(
            "Who is waited for",
            "Time that others waited for a rank in a minute. With SGLang and DeepEP: compare, read no time.",
            f"""SELECT time, concat('rank ', toString(peer_rank)) AS rank, sum(wait_seconds) AS waited
FROM dispatch_wait {_WHERE} GROUP BY time, peer_rank ORDER BY time, peer_rank""",
            "s",
        ),
        _series(
            "Dispatch and combine, p99",
            "Slowest rank's 99th percentile, all layers together, waiting included.",
            f"""SELECT time, stage, max(p99_seconds) AS seconds
FROM dispatch_time {_WHERE} {_PHASE} AND layer = -1 GROUP BY time, stage ORDER BY time, stage""",
            "s",
        ),
        _table(
            "Traffic between ranks",
            "Bytes sent and tokens sent, each once however many of its experts live at the peer.",
            f"""SELECT ep_rank, peer_rank, sum(bytes_sent) AS bytes, sum(tokens) AS tokens_sent,
  round(sum(assignments) / nullIf(sum(tokens), 0), 2) AS assignments_per_token
FROM rank_traffic {_WHERE} {_PHASE} GROUP BY ep_rank, peer_rank ORDER BY bytes DESC LIMIT 200""",
        ),
        _series(
            "Tokens a second",
            "Token rows computed, those that are part of the load, all ranks together.",
            f"""SELECT time, phase, sum(tokens_per_second) AS tokens
FROM tokens_per_second {_WHERE} AND excluded = 'none' GROUP BY time, phase ORDER BY time, phase""",
            "short",
        ),
    )


def _requests() -> tuple[Panel, ...]:
    return (
        _series(
            "Latency, p99",
            "Of the slowest model: to the first token, per output token, between tokens, queue, end to end.",
            f"""SELECT time, metric, max(p99_seconds) AS seconds
FROM request_latency {_WHERE} GROUP BY time, metric ORDER BY time, metric""",
            "s",
        ),
        _series(
            "Good requests",
            "Share of finished requests that kept the latency contract.",
            f"""SELECT time, sum(good_requests) / nullIf(sum(requests), 0) AS good
FROM goodput {_WHERE} GROUP BY time ORDER BY time""",
            "percentunit",
            maximum=1,
        ),
        _series(
            "Requests running and waiting",
            "Mean over the minute.",
            f"""SELECT time, sum(running) AS running, sum(waiting) AS waiting
FROM request_load {_WHERE} GROUP BY time ORDER BY time""",
            "short",
        ),
        _series(
            "Prefix cache",
            "Share of prompt tokens that the cache held.",
            f"""SELECT time, avg(hit_ratio) AS hit FROM prefix_cache {_WHERE} GROUP BY time ORDER BY time""",
            "percentunit",
            maximum=1,
        ),
        _table(
            "What a gateway would know",
            "The newest minute of each front end: routing_signals, as /v1/signals has it.",
            f"""SELECT role, frontend_host, max(time) AS minute, argMax(requests_running, time) AS running,
  argMax(requests_waiting, time) AS waiting, round(argMax(ttft_p90_seconds, time), 3) AS ttft_p90_seconds,
  argMax(kda_slots_free, time) AS kda_slots_free, argMax(mla_blocks_free, time) AS mla_blocks_free
FROM routing_signals {_WHERE} GROUP BY role, frontend_host ORDER BY role, frontend_host""",
            width=16,
        ),
    )


def _memory() -> tuple[Panel, ...]:
    return (
        _series(
            "Fullest rank of each pool",
            "Used / limit of the rank that is fullest.",
            f"""SELECT time, pool, max(used_ratio) AS used
FROM memory_by_pool {_WHERE} AND used_ratio IS NOT NULL GROUP BY time, pool ORDER BY time, pool""",
            "percentunit",
            maximum=1,
        ),
        _series(
            "Memory by pool",
            "Bytes in use, all ranks together.",
            f"""SELECT time, pool, sum(used_bytes) AS used
FROM memory_by_pool {_WHERE} GROUP BY time, pool ORDER BY time, pool""",
            "bytes",
        ),
        _series(
            "KDA state and MLA KV cache",
            "Used / limit of the fullest rank. Never one number: KDA state is copied, the MLA cache grows.",
            f"""SELECT time, max(kda_slots / kda_slots_limit) AS kda_state,
  max(mla_blocks / mla_blocks_limit) AS mla_kv_cache
FROM cache_state {_WHERE} GROUP BY time ORDER BY time""",
            "percentunit",
            maximum=1,
        ),
        _series(
            "GPU utilization",
            "Fraction of time that each GPU was busy.",
            f"""SELECT time, concat(host, ' ', gpu) AS device, avg(utilization) AS busy
FROM gpu {_WHERE} AND utilization IS NOT NULL GROUP BY time, host, gpu ORDER BY time, host, gpu""",
            "percentunit",
            maximum=1,
        ),
    )


def _health() -> tuple[Panel, ...]:
    return (
        _table(
            "Processes",
            "One row for each process of the last hours; what a state means says moescope report quality.",
            """SELECT state, component, ep_rank, instance, last_seen, round(lag_seconds) AS lag_seconds,
  windows, missing_assignments, export_failures
FROM telemetry_health WHERE service = ${service:singlequote} AND ep_group = ${ep_group:singlequote}
ORDER BY state = 'ok', component, ep_rank LIMIT 300""",
            width=24,
        ),
    )
