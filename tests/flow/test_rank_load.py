"""`rank_load` with placements that change, on rows put straight into the tables. Embedded engine."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import clickhouse_connect
from moescope.schemas import migrate
from moescope.schemas.settings import load_settings

client = clickhouse_connect.get_client(dsn=f"chdb://{sys.argv[1]}")
migrate.apply(client, load_settings({}))
MINUTE = "toDateTime64('2026-11-29 12:{:02}:30', 3, 'UTC')"

def place(minute, rank, size, replicas):
    client.command(
        "INSERT INTO moescope.expert_replicas "
        "(time, service, ep_group, ep_rank, ep_size, layer, experts, replicas) "
        f"VALUES ({MINUTE.format(minute)}, 's', '0', {rank}, {size}, 3, 4, {replicas})"
    )

def count(minute, tokens):
    client.command(
        "INSERT INTO moescope.expert_load (time, service, ep_group, phase, layer, experts, tokens) "
        f"VALUES ({MINUTE.format(minute)}, 's', '0', 'decode', 3, 4, {tokens})"
    )

place(0, 0, 2, [1, 1, 0, 0])
place(0, 1, 2, [0, 0, 1, 1])
count(0, [13, 23, 79, 1])
place(2, 0, 2, [1, 1, 0, 1])       # expert 3 now has two copies
place(2, 1, 2, [0, 0, 1, 1])
count(2, [13, 23, 79, 2])
place(4, 0, 1, [1, 1, 1, 1])       # the group comes back as one rank
count(4, [13, 23, 79, 1])
query = "SELECT toMinute(time), ep_rank, load, mean_load FROM moescope.rank_load ORDER BY ALL"
for row in client.query(query).result_rows:
    print(*row)
"""


def test_each_minute_uses_the_placement_of_its_time_and_of_its_own_ranks(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "engine")],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "0 0 36.0 58.0",
        "0 1 80.0 58.0",
        "2 0 37.0 58.5",
        "2 1 80.0 58.5",
        "4 0 116.0 116.0",
    ]
