"""The derived tables take both generations of the stock landing tables. Embedded engine."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import clickhouse_connect
from moescope.schemas import migrate
from moescope.schemas.settings import load_settings

client = clickhouse_connect.get_client(dsn=f"chdb://{sys.argv[1]}")
client.command("CREATE DATABASE moescope")
for migration in migrate.list_migrations():
    statement = migrate.render(migration, load_settings({}))
    if migration.name.startswith("otel_metrics"):
        statement = statement.replace("DateTime64(9, 'UTC')", sys.argv[2])
    client.command(statement)

COMMON = "ResourceAttributes, ServiceName, MetricName, Attributes, StartTimeUnix, TimeUnix"
RESOURCE = "{'moe.ep.rank': '3', 'moe.ep.size': '4', 'moe.ep.group': '0'}"

def insert(table, columns, metric, attributes, values):
    client.command(
        f"INSERT INTO moescope.otel_metrics_{table} ({COMMON}, {columns}) VALUES "
        f"({RESOURCE}, 's', '{metric}', {attributes}, '2026-11-29 12:00:50', '2026-11-29 12:01:00', {values})"
    )

insert("sum", "Value, AggregationTemporality", "moe.memory.usage", "{'moe.pool': 'weights'}", "79, 2")
insert("gauge", "Value", "moe.memory.usage", "{'moe.pool': 'runtime'}", "23")
insert("gauge", "Value", "hw.gpu.utilization", "{'hw.id': 'GPU-13'}", "0.5")
insert("sum", "Value, AggregationTemporality", "hw.gpu.utilization", "{'hw.id': 'GPU-23'}", "0.25, 2")
insert(
    "histogram", "Count, Sum, BucketCounts, ExplicitBounds, AggregationTemporality", "moe.step.duration",
    "{'moe.phase': 'decode'}", "13, 6.5, [13, 0], [1], 1",
)
insert(
    "histogram", "Count, BucketCounts, ExplicitBounds, AggregationTemporality", "moe.rank.tokens",
    "{'moe.phase': 'decode'}", "36, [13, 23, 0, 0], [0, 1, 2], 1",
)
for query in (
    "SELECT time, start_time, end_time, component FROM moescope.measurement WHERE pool = 'weights'",
    "SELECT time, ep_rank, pool, used_bytes FROM moescope.memory_by_pool ORDER BY pool",
    "SELECT time, gpu, utilization FROM moescope.gpu ORDER BY gpu",
    "SELECT time, steps, mean_seconds, p50_seconds FROM moescope.step_time",
    "SELECT time, peer_rank, tokens FROM moescope.rank_traffic WHERE tokens > 0 ORDER BY ALL",
):
    for row in client.query(query).result_rows:
        print(*(value.strftime("%H:%M:%S") if hasattr(value, "strftime") else value for value in row))
"""


@pytest.mark.parametrize("time_type", ["DateTime64(9, 'UTC')", "DateTime"])
def test_times_and_numbers_are_the_same_from_either(tmp_path, time_type: str):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "engine"), time_type],
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "12:00:55 12:00:50 12:01:00 rank",
        "12:00:00 3 runtime 23",
        "12:00:00 3 weights 79",
        "12:00:00 GPU-13 0.5",
        "12:00:00 GPU-23 0.25",
        "12:00:00 13 0.5 0.5",
        "12:00:00 0 13",
        "12:00:00 1 23",
    ]
