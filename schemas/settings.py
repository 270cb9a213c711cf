"""The settings table: each setting and each threshold is declared here, once.

A setting is read from the environment as ``MOESCOPE_`` and its name in capitals; a command-line option of
the same name overrides it. ``OTEL_*`` variables keep their OpenTelemetry meaning and are read by
:mod:`moescope.exporters`. An unknown ``MOESCOPE_*`` name is refused, with the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from moescope.schemas.errors import SettingError

logger = logging.getLogger("moescope")

ENV_PREFIX: Final = "MOESCOPE_"
SettingValue: TypeAlias = str | int | float | bool

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def _setting(default: Any, *, help: str, low: float | None = None, high: float | None = None) -> Any:  # noqa: A002 - the word that people look for in a settings table
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default. Units stand in the names."""

    # The engine side.
    enabled: bool = _setting(default=True, help="Count at all; off costs one empty call per layer.")
    interval_seconds: float = _setting(
        10.0, low=0.1, high=3600, help="Time between two windows; OTEL_METRIC_EXPORT_INTERVAL wins if set."
    )
    flush_timeout_seconds: float = _setting(
        5.0, low=0, high=600, help="How long the end of a process waits for its last window to be accepted."
    )
    ep_group: str = _setting("0", help="Name of the expert-parallel group this process belongs to.")
    snapshot_every_windows: int = _setting(
        12,
        low=1,
        help="States that hardly change go out once in n windows, spread over them, and when they change.",
    )
    timing_sample: float = _setting(
        0.02, low=0, high=1, help="Share of forward passes whose dispatch, experts and combine are timed."
    )
    rank_traffic: bool = _setting(default=True, help="Count tokens and bytes by peer rank.")
    traffic_by_layer: bool = _setting(
        default=False, help="Bytes and dispatch times by layer too: as many times the points."
    )
    gpu_metrics: bool = _setting(default=True, help="Report hw.gpu.* through NVML where there is one.")
    placement_file: str = _setting(
        "",
        help="vLLM only: a placement of `moescope plan --format vllm`; EPLB's next rearrangement follows it.",
    )
    contract_ttft_seconds: float = _setting(
        2.0, low=0, help="Latency contract: a request is good up to this time to first token."
    )
    contract_tpot_seconds: float = _setting(
        0.1, low=0, help="Latency contract: and up to this mean time per output token."
    )

    prometheus_port: int = _setting(
        0,
        low=0,
        high=65535,
        help="A rank's own Prometheus page listens on this port plus its EP rank; 0: there is none.",
    )
    prometheus_host: str = _setting(
        "127.0.0.1", help="Address of a rank's own Prometheus page, which asks for no token."
    )

    # Every reader.
    dsn: str = _setting(
        "http://127.0.0.1:8123/moescope",
        help="Where the data is: http(s)://user:password@host:port/database or chdb:///path.",
    )
    database: str = _setting("moescope", help="Database that the migrations create and use.")

    # The one-machine server.
    host: str = _setting("127.0.0.1", help="Address to listen on; anything but loopback requires a token.")
    otlp_grpc_port: int = _setting(4317, low=0, high=65535, help="OTLP over gRPC.")
    otlp_http_port: int = _setting(4318, low=0, high=65535, help="OTLP over HTTP.")
    sql_port: int = _setting(8123, low=0, high=65535, help="The ClickHouse HTTP interface.")
    metrics_port: int = _setting(9464, low=0, high=65535, help="/metrics, /healthz and /readyz.")
    dashboard_port: int = _setting(8501, low=0, high=65535, help="The dashboard.")
    data_dir: str = _setting(
        "", help="Where the embedded engine keeps its data; empty: the user's data folder."
    )
    fleet_page_interval_seconds: float = _setting(
        15.0, low=1, help="Time between two judgements of the fleet on /metrics, at least."
    )
    fleet_page_look_seconds: float = _setting(
        60.0,
        low=1,
        help="Time between two looks at the stragglers, memory and failover of an EP group on /metrics, at "
        "least; ten times that between two searches for experts to move.",
    )
    fleet_page_window_seconds: float = _setting(
        300.0, low=10, help="How far back imbalance and hot experts on /metrics look."
    )
    fleet_page_hot_experts: int = _setting(
        20, low=0, high=1000, help="Most hot experts on /metrics, of all deployments together."
    )
    fleet_page_forget_seconds: float = _setting(
        300.0, low=1, help="What nothing was heard of for so long leaves /metrics."
    )
    fleet_page_max_series: int = _setting(
        50_000, low=100, help="Most series on /metrics that come from engines; more are left out and counted."
    )
    signals_interval_seconds: float = _setting(
        1.0, low=0.1, help="Time between two readings of the store for /v1/signals, at least."
    )
    signals_window_seconds: float = _setting(
        300.0, low=60, help="How far back latency, prefix hits and cost on /v1/signals look."
    )
    signals_capacity_seconds: float = _setting(
        1800.0, low=60, help="How far back /v1/signals looks for the best decode rate of an endpoint."
    )
    endpoints_file: str = _setting(
        "", help="YAML file that says what each endpoint takes, for /v1/signals; docs/signals.md has one."
    )
    alert_rules: str = _setting(
        "", help="Files of SQL alert rules, by comma or as a pattern; empty: those that moescope ships."
    )
    alert_interval_seconds: float = _setting(
        30.0, low=1, help="Time between two evaluations of a group of SQL alert rules that names none."
    )
    alert_delay_seconds: float = _setting(
        30.0, low=0, help="SQL alert rules look at the store as of so long ago: late windows are in by then."
    )
    alert_state_file: str = _setting(
        "",
        help="Where `moescope alerts run` keeps what is pending and firing; empty: the user's data folder.",
    )
    alerts_port: int = _setting(
        9465, low=0, high=65535, help="`moescope alerts run`: state, history, /metrics and /healthz."
    )
    alertmanager_url: str = _setting(
        "",
        help="Alertmanagers that `moescope alerts run` sends to, by comma; the Alerts page reads the first.",
    )
    alert_webhook_url: str = _setting("", help="`moescope alerts run` posts each change to this address too.")
    alert_sources: str = _setting(
        "http://127.0.0.1:9465",
        help="Who evaluates rules, by comma, for the Alerts page: `moescope alerts run`, a Prometheus.",
    )
    dashboard_url: str = _setting(
        "http://localhost:8501", help="Where people reach the dashboard; links in alerts begin with it."
    )
    dashboard_login: bool = _setting(
        default=False, help="The dashboard asks for a login (OIDC), as Streamlit's secrets file says."
    )
    token_file: str = _setting("", help="File with the bearer token that clients must send.")
    engine_memory_bytes: int = _setting(
        4 * 2**30, low=256 * 2**20, help="Upper limit of the embedded engine's memory."
    )
    max_request_bytes: int = _setting(
        16 * 2**20, low=2**16, help="Largest OTLP request body, after decompression."
    )
    ingest_queue_requests: int = _setting(
        64, low=1, help="OTLP requests that may wait; more are told to retry."
    )
    ingest_batch_requests: int = _setting(
        32, low=1, high=1024, help="Most waiting OTLP requests that are inserted together."
    )
    ingest_threads: int = _setting(
        1, low=1, high=64, help="Threads that insert; one makes the largest batches, which cost least."
    )
    sql_threads: int = _setting(4, low=1, high=64, help="SQL queries that run at once.")
    sql_read_only: bool = _setting(default=True, help="Refuse writes over SQL; data comes in through OTLP.")
    sql_max_seconds: float = _setting(60.0, low=0.1, help="Longest SQL query.")
    sql_max_result_rows: int = _setting(1_000_000, low=1, help="Most rows of one SQL answer.")
    sql_max_memory_bytes: int = _setting(2 * 2**30, low=2**20, help="Most memory of one SQL query.")
    max_future_seconds: float = _setting(600.0, low=0, help="A point further in the future is rejected.")
    max_age_seconds: float = _setting(14 * 86400.0, low=60, help="A point further in the past is rejected.")

    # Retention, written into the tables by `moescope migrate`.
    landing_ttl_hours: int = _setting(24, low=1, help="How long raw OTLP points are kept.")
    raw_ttl_hours: int = _setting(6, low=1, help="How long per-rank, per-window arrays are kept.")
    minute_ttl_days: int = _setting(3, low=1, help="How long one-minute arrays are kept.")
    ten_minute_ttl_days: int = _setting(30, low=1, help="How long ten-minute arrays are kept.")
    hour_ttl_days: int = _setting(400, low=1, help="How long one-hour arrays are kept.")

    # Thresholds of analysis.
    imbalance_ratio: float = _setting(
        2.0, low=1, help="Acceptable max/mean rank load of a layer, net of the noise floor."
    )
    min_mean_rank_load: float = _setting(
        30.0, low=0, help="Below this mean rank load (assignments) a layer gets no verdict."
    )
    hot_expert_ratio: float = _setting(
        2.0, low=1, help="An expert above this multiple of its layer's median is hot."
    )
    hot_expert_confidence: float = _setting(
        0.99,
        low=0.5,
        high=0.999999,
        help="Posterior probability from which an expert is called hot, or cold.",
    )
    hot_expert_capacity_share: float = _setting(
        0.5, low=0, help="Share of one rank's capacity from which a single hot expert is harmful."
    )
    hot_expert_relief_share: float = _setting(
        0.25,
        low=0,
        high=1,
        help="Part of an imbalanced layer's max/mean - 1 that one hot expert must cause to be harmful.",
    )
    cold_expert_ratio: float = _setting(
        0.25, low=0, high=1, help="An expert below this multiple of its layer's median is cold."
    )
    dead_expert_ratio: float = _setting(
        0.05,
        low=0,
        high=1,
        help="An expert that was never chosen is dead where one at this part of the median would not be.",
    )
    drift_significance: float = _setting(
        1e-4, low=0, high=1, help="p-value below which a layer uses its experts differently than before."
    )
    replan_min_gain: float = _setting(
        0.05,
        low=0,
        help="Mean fall of max/mean rank load, net of noise, for which moving a few experts is advised.",
    )
    straggler_ratio: float = _setting(
        3.0, low=1, help="A rank is late when the others wait this many times as long for it as is usual."
    )
    straggler_link_ratio: float = _setting(
        5.0,
        low=1,
        help="A link is slow when a pair of ranks waits this many times as long as is usual.",
    )
    straggler_time_ratio: float = _setting(
        1.25, low=1, help="A rank is slow when it takes this multiple of what others need for the same load."
    )
    straggler_cost_share: float = _setting(
        0.05, low=0, high=1, help="Share of its time that every other rank must lose to a straggler."
    )
    straggler_windows: int = _setting(
        3, low=1, help="A straggler is named when it was one in n of the newest 2 n - 1 minutes."
    )
    contract_missed_share: float = _setting(
        0.05,
        low=0,
        high=1,
        help="Share of finished requests that may miss the latency contract before a report fails.",
    )
    failover_lost_share: float = _setting(
        0.25,
        low=0,
        high=1,
        help="Share of an EP group's traffic whose experts one rank may take with it before a report fails.",
    )
    prefix_cache_fall_ratio: float = _setting(
        0.5,
        low=0,
        high=1,
        help="A prefix cache that finds less than this part of what it found before is a finding.",
    )
    memory_full_ratio: float = _setting(
        0.95, low=0, high=1, help="A memory pool that can grow is full above this share of its limit."
    )
    memory_forecast_seconds: float = _setting(
        3600.0, low=0, help="A pool that will be full sooner than this at its growth is a finding."
    )
    mla_block_tokens: int = _setting(
        0,
        low=0,
        help="Tokens of one MLA KV cache block, as the engine is configured; 0: measured, to about a third.",
    )
    rank_hour_price: float = _setting(
        0.0, low=0, help="Price of one rank for an hour, in any currency; 0: no costs are shown."
    )
    silent_after_seconds: float = _setting(
        60.0,
        low=1,
        help="An instance without a window for so long, and 2.5 windows of its own, is silent. A store keeps "
        "what this was when its views were made.",
    )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A row of the table, for documentation and messages."""

    name: str
    env: str
    default: SettingValue
    help: str


def setting_rows() -> Iterator[SettingRow]:
    """Every setting, in the order of its declaration."""
    for field in dataclasses.fields(Settings):
        yield SettingRow(field.name, _env_of(field), _default_of(field), field.metadata["help"])


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Read the settings from the environment; ``overrides`` that are not None win.

    Raises:
        SettingError: an unknown ``MOESCOPE_*`` name, or a value that a setting cannot take.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for env, text in environ.items():
        if env.startswith(ENV_PREFIX):
            field = _field_of(env)
            values[field.name] = _parse(field, env, text)
    for name, value in overrides.items():
        if value is not None:
            values[name] = value
            _check_range(_field_of(ENV_PREFIX + name.upper()), f"--{name.replace('_', '-')}", value)
    return Settings(**values)


def load_engine_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings inside an engine, where a wrong one must not stop the serving.

    An unknown or impossible ``MOESCOPE_*`` value is logged, with the way out, and its default used.
    ``OTEL_METRIC_EXPORT_INTERVAL`` (milliseconds) sets the interval if it is there.
    """
    environ = os.environ if environ is None else environ
    usable: dict[str, str] = {}
    for env, text in environ.items():
        if env.startswith(ENV_PREFIX):
            try:
                load_settings({env: text})
                usable[env] = text
            except SettingError as error:
                logger.warning("moescope: %s (ignored)", error)
    interval_ms = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    if interval_ms.isdigit():
        usable[ENV_PREFIX + "INTERVAL_SECONDS"] = str(max(int(interval_ms) / 1000, 0.1))
    return load_settings(usable)


def _env_of(field: dataclasses.Field[Any]) -> str:
    return ENV_PREFIX + field.name.upper()


def _default_of(field: dataclasses.Field[Any]) -> SettingValue:
    return cast("SettingValue", field.default)


def _field_of(env: str) -> dataclasses.Field[Any]:
    for field in dataclasses.fields(Settings):
        if _env_of(field) == env:
            return field
    near = difflib.get_close_matches(env, [row.env for row in setting_rows()], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise SettingError(f"unknown setting {env}{hint}. docs/settings.md lists them all")


def _parse(field: dataclasses.Field[Any], env: str, text: str) -> SettingValue:
    kind = type(_default_of(field))
    try:
        value = _parse_bool(text) if kind is bool else kind(text)
    except ValueError:
        raise SettingError(f"{env}={text!r} is not a {_KIND_WORDS[kind]}") from None
    _check_range(field, env, value)
    return value


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _check_range(field: dataclasses.Field[Any], label: str, value: Any) -> None:
    low, high = field.metadata["low"], field.metadata["high"]
    below = low is not None and not value >= low
    above = high is not None and not value <= high
    if below or above:
        span = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
        raise SettingError(f"{label}={value} is out of range; it takes {span}")


_KIND_WORDS: Final[dict[type, str]] = {
    bool: "yes/no value (1, 0, true, false, yes, no, on, off)",
    int: "whole number",
    float: "number",
    str: "text",
}
