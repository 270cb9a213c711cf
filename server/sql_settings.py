"""Which settings a client may send with a query, and which limits hold whatever it sends.

A list of what is allowed, not of what is not: among ClickHouse's 1,800 settings are some that read or write
files (``output_format_schema``), change the language of the query (``dialect``) or switch on experiments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from moescope.schemas.settings import Settings
from moescope.schemas.sql_handle import quote_text
from moescope.schemas.sql_refusals import (
    BAD_ARGUMENTS,
    READONLY,
    SETTING_CONSTRAINT_VIOLATION,
    UNKNOWN_SETTING,
    refusal,
)

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Parameters of the HTTP interface itself; those that mean nothing here are accepted all the same.
TRANSPORT: Final = frozenset(
    {
        "query",
        "database",
        "default_format",
        "user",
        "password",
        "session_id",
        "session_timeout",
        "session_check",
        "query_id",
        "quota_key",
        "compress",
        "decompress",
        "role",
        "client_protocol_version",
        "buffer_size",
        "wait_end_of_query",
        "stacktrace",
        "enable_http_compression",
        "http_zlib_compression_level",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "add_http_cors_header",
        "cancel_http_readonly_queries_on_client_close",
        "http_write_exception_in_output_format",
        "http_response_buffer_size",
        "http_wait_end_of_query",
        "http_receive_timeout",
        "http_send_timeout",
        "http_native_compression_disable_checksumming_on_decompress",
        "log_comment",
        "log_queries",
        "query_start_time",
    }
)

_ALLOWED: Final = re.compile(
    r"(?!\w*(?:file|path|schema|template|url))(?:"
    r"output_format_\w+|input_format_\w+|date_time_(?:in|out)put_format|session_timezone|format_csv_\w+|"
    r"cast_\w+|bool_(?:true|false)_representation|join_(?:use_nulls|algorithm|default_strictness)|"
    r"group_by_(?:use_nulls|overflow_mode|two_level_threshold\w*)|distinct_overflow_mode|union_default_mode|"
    r"aggregate_functions_null_for_empty|data_type_default_nullable|transform_null_in|any_join_\w+|"
    r"optimize_\w+|query_plan_\w+|compile_\w+|use_(?:uncompressed_cache|skip_indexes|query_cache)|"
    r"final|extremes|limit|offset|max_block_size|prefer_column_name_to_alias|short_circuit_\w+|"
    r"low_cardinality_allow_in_native_format|async_insert|wait_for_async_insert|insert_quorum|priority|"
    r"max_rows_to_read|max_bytes_to_read|max_rows_to_group_by|max_rows_in_join|max_bytes_in_join|"
    r"max_rows_to_sort|max_bytes_to_sort|max_rows_in_set|max_bytes_in_set|max_rows_in_distinct|"
    r"max_bytes_in_distinct|max_columns_to_read|read_overflow_mode|sort_overflow_mode|set_overflow_mode|"
    r"join_overflow_mode|max_bytes_before_external_\w+|max_threads|max_subquery_depth"
    r")"
)
_OVERFLOW: Final = "result_overflow_mode"
_OVERFLOW_MODES: Final = frozenset({"throw", "break"})
_FIXED: Final = {"allow_introspection_functions": "0"}
"""On in the embedded engine; off on a server, since they look into the process."""

_CLAMPED: Final = frozenset({"max_execution_time"})
"""Drivers send their own timeout; a longer one than ours is shortened, not refused."""


def session_settings(
    requested: Mapping[str, str], settings: Settings, known: Collection[str]
) -> dict[str, str]:
    """Return the settings under which a read-only query runs.

    Args:
        requested: what the client sent, without the parameters of the interface.
        settings: the server's limits.
        known: every setting of the engine.

    Raises:
        QueryError: a setting that a reader may not change, or a limit above the server's.
    """
    limits = _limits(settings)
    chosen = {_OVERFLOW: "throw", **_FIXED}
    for name, value in requested.items():
        if name in limits:
            limits[name] = _lowered(name, value, limits[name])
        elif name == _OVERFLOW and value in _OVERFLOW_MODES:
            chosen[name] = value
        elif name == "readonly" and value in {"1", "2"}:
            continue
        elif _ALLOWED.fullmatch(name):
            chosen[name] = value
        elif name not in known:
            raise refusal(UNKNOWN_SETTING, f"Unknown setting '{name}'")
        else:
            raise refusal(READONLY, f"Cannot modify '{name}' setting in readonly mode.")
    return chosen | {name: f"{limit:g}" if limit % 1 else str(int(limit)) for name, limit in limits.items()}


def set_statement(settings: Mapping[str, str]) -> str:
    """Return one ``SET`` statement.

    Raises:
        QueryError: a name that is none.
    """
    return "SET " + ", ".join(f"{_checked(name)} = {quote_text(value)}" for name, value in settings.items())


def _limits(settings: Settings) -> dict[str, float]:
    return {
        "max_execution_time": settings.sql_max_seconds,
        "max_result_rows": settings.sql_max_result_rows,
        "max_result_bytes": settings.sql_max_memory_bytes,
        "max_memory_usage": settings.sql_max_memory_bytes,
    }


def _lowered(name: str, value: str, limit: float) -> float:
    try:
        wanted = float(value)
    except ValueError:
        raise refusal(BAD_ARGUMENTS, f"Setting {name} takes a number, not '{value}'.") from None
    if 0 < wanted <= limit:
        return wanted
    # To ClickHouse 0 means no limit.
    if name in _CLAMPED and wanted >= 0:
        return limit
    raise refusal(
        SETTING_CONSTRAINT_VIOLATION, f"Setting {name} shouldn't be greater than {limit:.0f}: got {value}."
    )


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise refusal(BAD_ARGUMENTS, f"Setting name '{name}' is not valid.")
    return name
