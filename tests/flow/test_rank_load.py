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
MINUTE = "toDateTime64('2026-11-29 12:{:02}:{:02}', 3, 'UTC')"

def place(minute, rank, size, replicas, layer=3, second=30):
    client.command(
        "INSERT INTO moescope.expert_replicas "
        "(time, service, ep_group, ep_rank, ep_size, layer, experts, replicas) "
        f"VALUES ({MINUTE.format(minute, second)}, 's', '0', {rank}, {size}, {layer}, 4, {replicas})"
    )

def count(minute, tokens, layer=3):
    client.command(
        "INSERT INTO moescope.expert_load (time, service, ep_group, phase, layer, experts, tokens) "
        f"VALUES ({MINUTE.format(minute, 30)}, 's', '0', 'decode', {layer}, 4, {tokens})"
    )

place(0, 0, 2, [1, 1, 0, 0])
place(0, 1, 2, [0, 0, 1, 1])
count(0, [13, 23, 79, 1])
place(2, 0, 2, [1, 1, 0, 1])       # expert 3 now has two copies
place(2, 1, 2, [0, 0, 1, 1])
count(2, [13, 23, 79, 2])
place(4, 0, 1, [1, 1, 1, 1])       # the group comes back as one rank
count(4, [13, 23, 79, 1])
# Layer 5 is told in other windows than layer 3, and changes within a minute.
place(0, 0, 2, [1, 1, 0, 0], layer=5, second=5)
place(0, 1, 2, [0, 0, 1, 1], layer=5, second=5)
count(0, [13, 23, 79, 1], layer=5)
place(2, 0, 2, [1, 1, 0, 0], layer=5, second=5)
place(2, 1, 2, [0, 0, 1, 1], layer=5, second=5)
place(2, 0, 2, [1, 0, 1, 0], layer=5, second=45)
place(2, 1, 2, [0, 1, 0, 1], layer=5, second=45)
count(2, [13, 23, 79, 1], layer=5)
count(3, [13, 23, 79, 1], layer=5)
columns = "toMinute(time), ep_rank, load, mean_load"
query = f"SELECT {columns} FROM moescope.rank_load WHERE layer = {sys.argv[2]} ORDER BY ALL"
for row in client.query(query).result_rows:
    print(*row)
"""


def rank_loads(folder, layer: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "engine"), str(layer)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_minute_uses_the_placement_of_its_time_and_of_its_own_ranks(tmp_path):
    assert rank_loads(tmp_path, 3) == [
        "0 0 36.0 58.0",
        "0 1 80.0 58.0",
        "2 0 37.0 58.5",
        "2 1 80.0 58.5",
        "4 0 116.0 116.0",
    ]


def test_layer_that_changes_within_a_minute_has_its_new_placement_at_the_end_of_it(tmp_path):
    assert rank_loads(tmp_path, 5) == [
        "0 0 36.0 58.0",
        "0 1 80.0 58.0",
        "2 0 92.0 58.0",
        "2 1 24.0 58.0",
        "3 0 92.0 58.0",
        "3 1 24.0 58.0",
    ]
